"""Bilevel optimisation over a network without a server."""

from . import precautions

precautions.take()

from .problem import Problem
from .ragged import Ragged, stack_ragged
from .sparse import SparseRows
from .topology import (
    Topology,
    complete,
    erdos_renyi,
    exponential,
    from_graph,
    from_weights,
    hypercube,
    path,
    ring,
    star,
    torus,
)
from .algorithms import DBO, DBOGT, DSBO
from .hypergradient import AID, HIGP, JHIP, Neumann
from .backends import Distributed, Simulated
from .metrics import (
    disagreement,
    hypergradient_norm,
    inner_error,
    linear_error,
    lower_residual,
    movement,
    upper_loss,
)
from .network import Agent, Witness
from .run import Progress, run
from .trace import Trace
from .analysis import Analysis, Recommendation, analyse, recommend
from .wire import Communication, Traffic
from .version import __version__
from .errors import CheckpointDamaged, CheckpointMismatch, Diverged, ProcessLost, ProcessesDiffer, UnconvergedWarning


__all__ = [
    "AID",
    "Agent",
    "Analysis",
    "CheckpointDamaged",
    "CheckpointMismatch",
    "Communication",
    "DBO",
    "DBOGT",
    "DSBO",
    "Distributed",
    "Diverged",
    "HIGP",
    "JHIP",
    "Neumann",
    "Problem",
    "ProcessLost",
    "ProcessesDiffer",
    "Progress",
    "Ragged",
    "Recommendation",
    "Simulated",
    "SparseRows",
    "Topology",
    "Trace",
    "Traffic",
    "UnconvergedWarning",
    "Witness",
    "__version__",
    "analyse",
    "complete",
    "disagreement",
    "erdos_renyi",
    "exponential",
    "from_graph",
    "from_weights",
    "hypercube",
    "hypergradient_norm",
    "inner_error",
    "linear_error",
    "lower_residual",
    "movement",
    "path",
    "recommend",
    "ring",
    "run",
    "stack_ragged",
    "star",
    "torus",
    "upper_loss",
]
