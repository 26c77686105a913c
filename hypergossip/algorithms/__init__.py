"""One file per algorithm, each one agent's program."""

from .base import Algorithm, Diagnostics, DoubleLoop
from .dbo import DBO
from .dbogt import DBOGT
from .dsbo import DSBO

__all__ = ["DBO", "DBOGT", "DSBO", "Algorithm", "Diagnostics", "DoubleLoop"]
