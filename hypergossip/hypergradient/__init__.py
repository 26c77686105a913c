"""Hypergradient oracles, one file each."""

from .aid import AID
from .base import Estimate, Oracle
from .higp import HIGP
from .jhip import JHIP
from .neumann import Neumann

__all__ = ["AID", "HIGP", "JHIP", "Estimate", "Neumann", "Oracle"]
