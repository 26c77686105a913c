"""Is Assumption 4 plausible: could all agents' lower data come from one distribution?"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Scalar

from ..local import Local
from ..problem import Problem
from ..ragged import Ragged
from . import derivatives as of
from .view import Point, View

ROWS = 32
"""Rows in a mini-batch, here and in `hg.DSBO` unless told otherwise."""
_DRAWS = 16
PLAUSIBLE_UP_TO = 3.0
"""A ratio that agents of one distribution hardly exceed."""


@dataclass(frozen=True)
class Similarity:
    """How far the agents' g_i lie apart, and how far mini-batches do."""

    ratio: float
    """The spread of ∇_y g_i between agents over the one that sampling alone would give; NaN if unknown."""
    why_unknown: str
    sampled_high: float
    """The largest eigenvalue of ∇²_y g_i seen in mini-batches of 32 drawn rows."""


def similarity(problem: Problem, view: View, points: list[Point], seed: int) -> Similarity:
    """The largest ratio and curvature over the points.

    At a solution that suits all agents their gradients agree even where their data do not, so that
    one point can show agents alike that another tells apart.
    """
    found = [_at(problem, view, point, seed) for point in points]
    known = [one.ratio for one in found if not one.why_unknown]
    return Similarity(
        max(known, default=float("nan")),
        "" if known else found[0].why_unknown,
        max(one.sampled_high for one in found),
    )


def _at(problem: Problem, view: View, point: Point, seed: int) -> Similarity:
    """The agents at one point, and mini-batches drawn there with `problem.sample`."""
    keys = jax.random.split(jax.random.key(seed), (_DRAWS, problem.n))
    sampled = of.lower_hessians(_drawn(problem, view, keys[0]), point).extremes().high
    rows = _rows(problem)
    if int(jnp.min(rows)) < 2:
        return Similarity(float("nan"), "an agent has one row only, which says nothing of their spread", sampled)
    between, within = _spreads(problem, view, point, keys, rows)
    if problem.n < 2 or not float(within) > 0:
        why = "there is one agent only" if problem.n < 2 else "the rows of an agent do not differ"
        return Similarity(float("nan"), why, sampled)
    return Similarity(float(between / within), "", sampled)


def _rows(problem: Problem) -> Array:
    """m_i, the number of rows in every agent's lower data."""
    data = problem.lower_data
    return data.count if isinstance(data, Ragged) else jnp.full(problem.n, jax.tree.leaves(data)[0].shape[1])


@eqx.filter_jit
def _drawn(problem: Problem, view: View, keys: PRNGKeyArray) -> View:
    """The view through one mini-batch at every agent."""
    agents = view.agents

    def draw(key: PRNGKeyArray, local: Local) -> Local:
        return Local(local.losses, local.upper_batch, problem.sample(key, local.lower_batch, ROWS))

    return eqx.tree_at(lambda v: v.agents, view, jax.vmap(draw)(keys, agents))


@eqx.filter_jit
def _spreads(problem: Problem, view: View, point: Point, keys: PRNGKeyArray, rows: Array) -> tuple[Scalar, Scalar]:
    """The variance of ∇_y g_i between agents; and what m_i rows of one distribution would give: Var_b · b / m_i."""
    each = view.each(point.x)

    def gradients(agents: Local) -> Array:
        return jax.vmap(lambda local, x: local.gy(x, point.y))(agents, each)

    exact = gradients(view.agents)
    between = jnp.sum((exact - jnp.mean(exact, axis=0, keepdims=True)) ** 2) / max(problem.n - 1, 1)
    drawn = jax.lax.map(lambda keys: gradients(_drawn(problem, view, keys).agents), keys)
    deviation = drawn - jnp.mean(drawn, axis=0, keepdims=True)
    variance = jnp.sum(deviation**2, axis=(0, 2)) / (len(keys) - 1)
    return between, jnp.mean(variance * ROWS / rows.astype(variance.dtype))
