"""Starts the processes of a run, watches over them, and starts them again after a fault.

What runs here is the launcher, which computes nothing; `child` is what it starts.
"""
