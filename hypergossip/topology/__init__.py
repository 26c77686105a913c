"""Who talks to whom. Host-side NumPy only; nothing here is traced."""

from .graphs import complete, erdos_renyi, exponential, from_graph, from_weights, hypercube, path, ring, star, torus
from .weights import Topology

__all__ = [
    "Topology",
    "complete",
    "erdos_renyi",
    "exponential",
    "from_graph",
    "from_weights",
    "hypercube",
    "path",
    "ring",
    "star",
    "torus",
]
