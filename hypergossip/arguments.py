"""What `hg.run` must be given."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from numbers import Real
from typing import Any

import equinox as eqx
import jax

from .algorithms import Algorithm
from .backends import Backend
from .hypergradient import Oracle
from .metrics import FACTORIES, RunningSum, name_of
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
    checkpoint: Any,
    callback: Any,
    growth_limit: Any,
) -> None:
    """Refuses what `hg.run` cannot run, on the host and before anything is traced; the backend is one already."""
    order = "The order is run(algorithm, problem, topology, steps)."
    _expect(algorithm, Algorithm, "an algorithm such as hg.DBOGT(...)", order)
    _expect(problem, Problem, "an hg.Problem", order)
    _expect(topology, Topology, "a topology such as hg.ring(n)", order)
    backend.check(topology.n)
    _check_agents(problem.n, topology.n, backend)
    check_count("steps", steps)
    check_count("record_every", record_every)
    check_count("seed", seed, least=0, below=2**32)  # JAX takes 32 bits of it
    if not (isinstance(growth_limit, Real) and float(growth_limit) > 1):
        raise ValueError(f"growth_limit = {growth_limit}; expected a number above 1.")
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise TypeError(f"checkpoint is {checkpoint!r}; expected the path of a folder, or None to save nothing.")
    if checkpoint == "":
        raise ValueError("checkpoint is an empty string; expected the path of a folder, or None to save nothing.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}; expected a function of an hg.Progress.")
    _check_single_steps(algorithm)
    oracle = getattr(algorithm, "oracle", None)
    if any(problem.own) and isinstance(oracle, Oracle) and oracle.refuses_own:
        raise ValueError(oracle.refuses_own)
    _check_metrics(metrics)


def check_backend(backend: Any) -> None:
    if not isinstance(backend, Backend):
        raise TypeError(f"backend is {backend!r}; expected hg.Simulated() or hg.Distributed().")


def _check_agents(given: int, n: int, backend: Backend) -> None:
    """The problem has data of those agents that this process has: of all, where there is one process."""
    mine = backend.agents(n)
    if given == len(mine):
        return
    if len(mine) == n:
        raise ValueError(f"The problem has data of {given} agents, the topology has {n}; expected the same.")
    raise ValueError(
        f"The problem has data of {given} agents; this process has agents {mine[0]} to {mine[-1]} of {n}. Expected the "
        f"data of its own agents and no others: hg.Distributed().agents({n}) says which they are."
    )


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
        _check_metric(metric, name)
        if not isinstance(name, str):
            raise TypeError(f"The metric {metric!r} has the name {name!r}; expected a string.")
        if names.count(name) > 1 or name in ("step", "consensus"):
            hint = "step and consensus are always there"
            raise ValueError(f"Two metrics are named {name!r}; expected different names ({hint}).")


def _check_metric(metric: Any, name: str) -> None:
    """Refuses what cannot be called with one witness: among it functions that make metrics."""
    if isinstance(metric, RunningSum):
        return
    no_metric = f"The metric {metric!r} is no function of a Witness; expected one that returns a scalar."
    if not callable(metric):
        raise TypeError(no_metric)
    if inspect.isclass(metric) or metric in FACTORIES:
        raise TypeError(f"{no_metric} Did you mean {metric.__name__}()?")
    try:
        signature = inspect.signature(metric)
    except ValueError:  # of some functions written in C
        return
    if not _takes(signature, 1):
        raise TypeError(f"{no_metric} Did you mean {name}()?" if _takes(signature, 0) else no_metric)


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
