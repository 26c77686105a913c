"""A run before its first step: what its processes show each other, so that they do run the same."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from . import fingerprint
from .parts import variables_of
from .problem import Problem
from .processes import Meeting
from .ragged import extent, padded_alike
from .version import __version__


def with_shapes_alike(problem: Problem, meeting: Meeting) -> Problem:
    """The problem with this process's data padded as far as those of the process with the most."""

    def data(problem: Problem) -> tuple[PyTree, PyTree]:
        return problem.upper_data, problem.lower_data

    of_processes = meeting.gather("how long the data are", [extent(one) for one in data(problem)])
    upper, lower = zip(*of_processes, strict=True)
    grown = padded_alike(problem.upper_data, upper), padded_alike(problem.lower_data, lower)
    return eqx.tree_at(data, problem, grown)


def largest_start(problem: Problem, meeting: Meeting) -> float:
    """The largest size of any number of any agent's start, or 1."""
    sizes = [float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(problem.flat_start()) if leaf.size]
    return max(1.0, *meeting.gather("how large the start is", max(sizes)))


def what_must_agree(problem: Problem, run: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """`run` is the run's identity, `settings` what else it was called with."""
    start = jax.tree.map(lambda leaf: leaf[0], variables_of((problem.x0, problem.y0)))
    return {
        "the release of hypergossip": __version__,
        "the release of jax": jax.__version__,
        "the release of jaxlib": metadata.version("jaxlib"),
        "jax_enable_x64": bool(jax.config.read("jax_enable_x64")),
        **run,
        **settings,
        "x0 and y0": "each agent's own" if problem.each else fingerprint.of_values(start),
        **_shapes("x0", problem.x0),
        **_shapes("y0", problem.y0),
        **_shapes("upper_data", problem.upper_data),
        **_shapes("lower_data", problem.lower_data),
    }


def _shapes(name: str, tree: PyTree) -> dict[str, str]:
    """One agent's shapes and types."""
    return {
        f"{name}{jax.tree_util.keystr(path)}": f"{leaf.dtype}{list(leaf.shape[1:])}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(variables_of(tree))
    }
