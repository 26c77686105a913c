"""What makes n agents of one agent's program: transforms that give the network its axes."""

from .base import Backend
from .distributed import Distributed
from .simulated import Simulated

__all__ = ["Backend", "Distributed", "Simulated"]
