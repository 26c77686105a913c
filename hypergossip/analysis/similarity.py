"""Is Assumption 4 plausible: could all agents' lower data come from one distribution?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Scalar

from ..local import Local, Rq
from ..parts import Rp
from ..problem import Problem
from ..ragged import Ragged, drawn_without_replacement, sample_rows
from . import derivatives as of
from .view import Point, View

_DRAWS = 16
_DEVIATIONS = 4.0
"""Of chance, that a ratio must be above 1 to speak against one distribution."""


@dataclass(frozen=True)
class Similarity:
    """How far the agents' g_i lie apart, and how far mini-batches do."""

    ratio: float
    """The spread of ∇_y g_i between agents over the one that sampling alone would give; NaN if unknown."""
    chance: float
    """What agents of one distribution hardly exceed: 1 and four standard deviations of the ratio."""
    why_unknown: str
    sampled_high: float
    """The largest eigenvalue of ∇²_y g_i seen in mini-batches of `batch_size` drawn rows."""
    batch_size: int | None
    """None for all rows."""


def similarity(problem: Problem, view: View, points: list[Point], batch_size: int | None, seed: int) -> Similarity:
    """The agents at the point that tells them apart most, and the largest curvature over all points.

    At a solution that suits all agents their gradients agree even where their data do not.
    """
    keys = jax.random.split(jax.random.key(seed), (_DRAWS, problem.n))
    rows = _rows(problem)
    half = max(1, int(jnp.min(rows)) // 2)  # without replacement, all rows have no spread
    if error := _refused(problem, view, points[0], keys, batch_size or half):
        return Similarity(
            math.nan, math.nan, f"the lower loss does not take drawn rows ({error})", math.nan, batch_size
        )
    drawn = view if batch_size is None else _drawn(problem, view, keys[0], batch_size)
    high = float(np.fmax.reduce([of.lower_hessians(drawn, point).extremes().high for point in points]))
    if problem.n < 2:
        return Similarity(math.nan, math.nan, "there is one agent only", high, batch_size)
    if int(jnp.min(rows)) < 2:
        why = "an agent has one row only, which says nothing of their spread"
        return Similarity(math.nan, math.nan, why, high, batch_size)
    few = min(batch_size or half, half)
    ratio, chance = _most_apart([_ratio(problem, view, point, keys, few) for point in points])
    why = "the rows of an agent do not differ" if math.isnan(ratio) else ""
    return Similarity(ratio, chance, why, high, batch_size)


def _most_apart(found: list[tuple[float, float]]) -> tuple[float, float]:
    """The pair (ratio, chance) that speaks most against one distribution, of those that are known."""
    known = [pair for pair in found if not math.isnan(pair[0])]
    return max(known, key=lambda pair: pair[0] / pair[1]) if known else (math.nan, math.nan)


def _ratio(problem: Problem, view: View, point: Point, keys: Array, batch_size: int) -> tuple[float, float]:
    """The ratio at one point and what chance allows; NaN where an agent's rows do not differ.

    Under one distribution the ratio is that of a χ² of (n − 1) d over its mean, with
    d = (tr S)² / tr S², S the covariance of a drawn gradient.
    """
    between, within, directions = map(float, _spreads(problem, view, point.x, point.y, keys, batch_size))
    if not within > 0:
        return math.nan, math.nan
    return between / within, 1 + _DEVIATIONS * math.sqrt(2 / ((problem.n - 1) * directions))


def _refused(problem: Problem, view: View, point: Point, keys: Array, batch_size: int) -> str:
    """The kind of error that drawn rows end in: a loss may look up its variables by a row's place."""
    try:
        jax.eval_shape(lambda: _spreads(problem, view, point.x, point.y, keys, batch_size))
    except Exception as error:  # whatever a user's function raises
        return type(error).__name__
    return ""


def _rows(problem: Problem) -> Array:
    """m_i, the number of rows in every agent's lower data."""
    data = problem.lower_data
    return data.count if isinstance(data, Ragged) else jnp.full(problem.n, jax.tree.leaves(data)[0].shape[1])


@eqx.filter_jit
def _drawn(problem: Problem, view: View, keys: Array, batch_size: int) -> View:
    """The view through one mini-batch at every agent."""

    def draw(key: PRNGKeyArray, local: Local) -> Local:
        return Local(local.losses, local.upper_batch, problem.sample(key, local.lower_batch, batch_size))

    return eqx.tree_at(lambda v: v.agents, view, jax.vmap(draw)(keys, view.agents))


@eqx.filter_jit
def _spreads(problem: Problem, view: View, x: Rp, y: Rq, keys: Array, batch_size: int) -> tuple[Scalar, Scalar, Scalar]:
    """The variance of ∇_y g_i between agents; what m_i rows of one distribution would give; and d."""
    each = view.each(x)

    def gradients(agents: Local) -> Array:
        return jax.vmap(lambda local, x: local.gy(x, y))(agents, each)

    exact = gradients(view.agents)
    between = jnp.sum((exact - jnp.mean(exact, axis=0, keepdims=True)) ** 2) / (problem.n - 1)
    drawn = jax.lax.map(lambda keys: gradients(_drawn(problem, view, keys, batch_size).agents), keys)
    deviation = drawn - jnp.mean(drawn, axis=0, keepdims=True)
    variance = jnp.sum(deviation**2, axis=(0, 2)) / (len(keys) - 1)
    rows = _rows(problem).astype(variance.dtype)
    # Of b different rows out of m, the mean varies by (m − b)/(m − 1) less than of b drawn again and again.
    without = problem.sample is sample_rows and drawn_without_replacement(problem.lower_data)
    finite = (rows - batch_size) / jnp.maximum(rows - 1, 1) if without else jnp.ones_like(rows)
    return between, jnp.mean(variance / finite * batch_size / rows), _directions(deviation)


def _directions(deviation: Array) -> Scalar:
    """(tr S)² / tr S² of deviations (draws, agents, q), the bias of few draws taken off tr S²; from 1 to q."""
    flat = deviation.reshape(-1, deviation.shape[-1])
    free = flat.shape[0] - deviation.shape[1]
    products = flat @ flat.T if flat.shape[0] < flat.shape[1] else flat.T @ flat
    trace, square = jnp.trace(products) / free, jnp.sum(products**2) / free**2
    unbiased = jnp.maximum(square - trace**2 / free, trace**2 / flat.shape[1])
    return jnp.maximum(trace**2 / jnp.where(unbiased > 0, unbiased, 1), 1)
