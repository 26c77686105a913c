"""What the direct estimates and the stability limits give, with margins: practice, measured on many problems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..algorithms import DBOGT, DoubleLoop
from .foresight import outer_limit, outer_way
from .settings import Choice, Settings, batch_size_for, carry_for, oracle_for
from .stability import GOSSIP, LOCAL, TRACKED, Way

if TYPE_CHECKING:
    from .analysis import Analysis

MARGIN = 0.8
"""Of a stability limit."""
LEFT_OVER = 0.5
"""What is left of an inner error after one outer iteration; the errors go on, so this much is enough."""
COLD = 0.2
"""The same of an oracle that starts anew every time: what it leaves is an error of every hypergradient."""
ACCURACY = 1e-6
"""The fall of ‖∇Φ‖ that the predicted number of outer iterations is for."""
DESCENT = 1e-3
"""What K iterations of DBO and DSBO, whose bias or noise grows with the step, leave of the slowest descent."""
_WITHIN = f"{MARGIN:g} of the stability limit, L_own its curvature"
_FASTEST = f"the fastest within {MARGIN:g} of the stability limit for these agents"
_RESERVE = 1.25
"""Of the predicted number: ∇Φ's modes mix with the network's."""
_MOST = 10_000
"""Inner iterations at most."""


def practical_settings(
    kind: type[DoubleLoop], analysis: Analysis, steps: int, homogeneous: bool
) -> tuple[Settings, float]:
    """Settings for K = `steps`; and after how many outer iterations DBOGT leaves 1e-6 of ‖∇Φ‖, NaN if unknown."""
    outer_step, rate = _outer(kind, analysis, steps)
    left = _left_over(rate)
    way = LOCAL if homogeneous else GOSSIP if kind.stochastic else TRACKED
    inner_step, inner_iterations = _inner(kind, analysis, way, left)
    oracle = oracle_for(kind, homogeneous, analysis.own_parts)
    oracle_step, oracle_iterations = _oracle(kind, analysis, homogeneous, left)
    settings = Settings(
        kind=kind,
        homogeneous=homogeneous,
        outer_step=outer_step,
        inner_step=inner_step,
        inner_iterations=inner_iterations,
        oracle=oracle,
        oracle_step=oracle_step,
        oracle_iterations=oracle_iterations,
        carry=carry_for(kind, homogeneous),
        batch_size=batch_size_for(kind, analysis.similarity.batch_size),
    )
    tracked = issubclass(kind, DBOGT) and 0 < rate < 1
    return settings, float(np.ceil(_RESERVE * math.log(ACCURACY) / math.log(rate))) if tracked else math.nan


def _left_over(rate: float) -> float:
    """What may be left of an inner error, so that it falls faster than the outer one, of which `rate` is left."""
    return LEFT_OVER if math.isnan(rate) else max(1e-3, min(LEFT_OVER, rate**2))


def _outer(kind: type[DoubleLoop], analysis: Analysis, steps: int) -> tuple[Choice, float]:
    """The step, and what one outer iteration leaves of the slowest mode: NaN where Φ is not convex."""
    outer, way = analysis.outer, outer_way(kind)
    if math.isnan(outer.high):
        raise ValueError(
            f"No practical outer step: {outer.failure}. Expected exact solves that converge at the start; scale the "
            "losses, or give points to hg.analyse."
        )
    limit = MARGIN * outer_limit(analysis, kind)
    if not math.isfinite(limit):
        raise ValueError("No practical outer step: Phi has no curvature at the points. Expected some; give others.")
    if outer.low <= 0:
        return Choice(limit / 2, f"half of {_WITHIN}, as Phi is not convex at the points"), math.nan
    step, rate = analysis.modes.best_step(way, limit, (outer.low, outer.high), (outer.low, max(outer.own, outer.high)))
    enough = math.log(1 / DESCENT) / (outer.low * steps)
    if not issubclass(kind, DBOGT) and enough < step:
        source = f"leaves {DESCENT:g} of Phi's flattest direction after K steps; bias and noise fall with the step"
        return Choice(enough, source), 1 - enough * outer.low
    return Choice(step, f"the fastest within {_WITHIN}"), rate


def _inner(kind: type[DoubleLoop], analysis: Analysis, way: Way, left: float) -> tuple[Choice, Choice]:
    step, rate = _descent(analysis, way, kind.stochastic)
    return Choice(step, _FASTEST), _count(rate, left, "y, which goes on")


def _oracle(kind: type[DoubleLoop], analysis: Analysis, homogeneous: bool, left: float) -> tuple[Choice, Choice]:
    c, what = analysis.constants, "the linear system"
    left = min(left, COLD) if kind.stochastic else left
    if not homogeneous:
        step, rate = _descent(analysis, TRACKED, kind.stochastic)
        return Choice(step, _FASTEST), _count(rate, left, what)
    if kind.stochastic:
        step = MARGIN / max(c.L_g1, analysis.similarity.sampled_high)
        return Choice(step, f"{MARGIN:g}/L of mini-batches"), _count(1 - step * c.mu, left, what)
    root = math.sqrt(c.L_g1 / c.mu)
    return Choice(None, "conjugate gradients have none"), _count((root - 1) / (root + 1), left, what)


def _descent(analysis: Analysis, way: Way, stochastic: bool) -> tuple[float, float]:
    """The step of fastest contraction within the margin, and its contraction."""
    c = analysis.constants
    larger = max(1.0, analysis.similarity.sampled_high / c.L_g1) if stochastic else 1.0
    limit = MARGIN * analysis.exact(way) / larger
    # The pairs of the model are those that the exact limit allows: the worst agent's curvature does
    # not meet the worst mode of W where that limit is above the one for any agents.
    high = min(c.L_g1, way.guaranteed(analysis.smallest, 1.0) / analysis.exact(way))
    return analysis.modes.best_step(way, limit, (c.low, c.high), (c.mu, high))


def _count(rate: float, left: float, what: str) -> Choice:
    """How many iterations leave `left` of an error."""
    number = 1 if rate <= 0 else math.log(left) / math.log(rate) if rate < 1 else math.inf
    if number > _MOST:
        return Choice(_MOST, f"{number:.3g} would leave {left:g} of the error in {what}: no practical problem")
    return Choice(max(1, math.ceil(number)), f"leaves {left:g} of the error in {what}")
