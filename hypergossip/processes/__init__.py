"""Several processes as one run: how they meet, and what they compare."""

from .agreement import Member, compare
from .meeting import Meeting

__all__ = ["Meeting", "Member", "compare"]
