"""What makes a run this run: what differs here makes another of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import fingerprint
from ..algorithms import Algorithm
from ..parts import variables_of
from ..problem import Problem
from ..topology import Topology


def of_run(
    algorithm: Algorithm,
    problem: Problem,
    topology: Topology,
    functions: dict[str, Any],
    seed: int,
    record_every: int,
) -> dict[str, Any]:
    """What is the same for all agents; `functions` are the fingerprints of what the user's functions compute."""
    return {
        "algorithm": type(algorithm).__qualname__,
        **{f"algorithm{path}": fingerprint.shown(value) for path, value in fingerprint.fields(algorithm)},
        **{name: value for name, value in functions.items() if name != "schedules"},  # they are fields
        "own leaves of x": list(problem.own),
        "graph": f"{topology.n} agents, {len(topology.edges) // 2} edges, {topology.digest[:12]}",
        "seed": seed,
        "record_every": record_every,
    }


def of_agents(problem: Problem) -> dict[str, np.ndarray]:
    """What each of this process's agents has of its own, as one fingerprint for each of them."""
    own = {"upper data": problem.upper_data, "lower data": problem.lower_data}
    own["start"] = variables_of((problem.x0, problem.y0))
    return {name: np.array(fingerprint.of_each(tree)) for name, tree in own.items()}
