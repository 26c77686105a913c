"""One process among several: its place, how it joins the others, and what it tells the launcher that started it."""

from . import addresses, faults, runtime, supervisor
from .place import Place

__all__ = ["Place", "addresses", "faults", "runtime", "supervisor"]
