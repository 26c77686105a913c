"""Several processes as one run: how they join, what they tell each other and compare, and how a loss is told."""

from . import addresses, faults, runtime, supervisor
from .agreement import compare
from .loss import telling_of_losses
from .meeting import Meeting
from .place import Place

__all__ = ["Meeting", "Place", "addresses", "compare", "faults", "runtime", "supervisor", "telling_of_losses"]
