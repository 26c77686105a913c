"""What `hg.run` must be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax

from .algorithms import Algorithm
from .backends import Simulated
from .metrics import RunningSum, name_of
from .problem import Problem
from .steps import check_count
from .topology import Topology


def check_arguments(
    algorithm: Any,
    problem: Any,
    topology: Any,
    steps: Any,
    record_every: Any,
    metrics: Any,
    seed: Any,
    backend: Any,
    callback: Any,
    growth_limit: Any,
) -> None:
    """Refuses what `hg.run` cannot run, on the host and before anything is traced."""
    order = "The order is run(algorithm, problem, topology, steps)."
    _expect(algorithm, Algorithm, "an algorithm such as hg.DBOGT(...)", order)
    _expect(problem, Problem, "an hg.Problem", order)
    _expect(topology, Topology, "a topology such as hg.ring(n)", order)
    if topology.n != problem.n:
        raise ValueError(
            f"The problem has data of {problem.n} agents, the topology has {topology.n}; expected the same."
        )
    check_count("steps", steps)
    check_count("record_every", record_every)
    check_count("seed", seed, least=0)
    if not (isinstance(growth_limit, (int, float)) and growth_limit > 1):
        raise ValueError(f"growth_limit = {growth_limit}; expected a number above 1.")
    if not isinstance(backend, Simulated):
        raise TypeError(f"backend is {backend!r}; expected hg.Simulated().")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}; expected a function of an hg.Progress.")
    _check_single_steps(algorithm)
    _check_metrics(metrics)


def _expect(value: Any, kind: type, what: str, hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"Got {value!r}; expected {what}. {hint}")


def _check_single_steps(algorithm: Algorithm) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(algorithm):
        if eqx.is_array(leaf) and leaf.ndim > 0:
            name = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"{name} has shape {leaf.shape}; expected one number: a run has one step size of each kind."
            )


def _check_metrics(metrics: Any) -> None:
    if not isinstance(metrics, Sequence) or isinstance(metrics, str):
        raise TypeError(f"metrics is {metrics!r}; expected a list of functions of a Witness.")
    names = [name_of(metric) for metric in metrics]
    for metric, name in zip(metrics, names, strict=True):
        if not (callable(metric) or isinstance(metric, RunningSum)):
            raise TypeError(f"The metric {metric!r} is no function of a Witness.")
        if names.count(name) > 1 or name in ("step", "consensus"):
            hint = "step and consensus are always there"
            raise ValueError(f"Two metrics are named {name!r}; expected different names ({hint}).")
