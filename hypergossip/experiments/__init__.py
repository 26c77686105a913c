"""One file per figure of the paper: its preset, and what the measured numbers say of its claims."""
