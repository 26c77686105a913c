"""What the direct estimates and the stability limits give, with margins: practice, measured on many problems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..algorithms import DBOGT, DoubleLoop
from .foresight import outer_limit, outer_way
from .settings import Choice, Settings, oracle_for
from .stability import GOSSIP, LOCAL, TRACKED, Way

if TYPE_CHECKING:
    from .analysis import Analysis

MARGIN = 0.8
"""Of a stability limit."""
LEFT_OVER = 0.1
"""What is left of an inner error after one outer iteration; the errors go on, so this much is enough."""
ACCURACY = 1e-6
"""The fall of ‖∇Φ‖ that the predicted number of outer iterations is for."""
_RESERVE = 1.5
"""Of the predicted number: ∇Φ's modes mix with the network's."""
_MOST = 10_000
"""Inner iterations at most."""


def practical_settings(
    kind: type[DoubleLoop], analysis: Analysis, steps: int, homogeneous: bool
) -> tuple[Settings, float]:
    """Settings for K = `steps`, and after how many outer iterations ‖∇Φ‖ is 1e-6 of its start (NaN if unknown)."""
    outer_step, needed = _outer(kind, analysis, steps)
    way = LOCAL if homogeneous else GOSSIP if kind.stochastic else TRACKED
    inner_step, inner_iterations = _inner(kind, analysis, way)
    oracle = oracle_for(kind, homogeneous, analysis.own_parts)
    oracle_step, oracle_iterations = _oracle(kind, analysis, homogeneous)
    settings = Settings(
        kind=kind,
        homogeneous=homogeneous,
        outer_step=outer_step,
        inner_step=inner_step,
        inner_iterations=inner_iterations,
        oracle=oracle,
        oracle_step=oracle_step,
        oracle_iterations=oracle_iterations,
        carry=_carry(kind, homogeneous),
    )
    return settings, needed


def _carry(kind: type[DoubleLoop], homogeneous: bool) -> Choice:
    if kind.stochastic and not homogeneous:
        return Choice(False, "JHIP is fragile carried on in DSBO, where y has no tracker")
    return Choice(True, "trackers that go on leave no floor")


def _outer(kind: type[DoubleLoop], analysis: Analysis, steps: int) -> tuple[Choice, float]:
    """The step of least contraction within the margin, or that of which K steps suffice; and the K for 1e-6."""
    outer, way = analysis.outer, outer_way(kind)
    if math.isnan(outer.high):
        raise ValueError(
            f"No practical outer step: {outer.failure}. Expected exact solves that converge at the start; scale the "
            "losses, give points to hg.analyse, or take the safe settings from hg.recommend's theorems by hand."
        )
    limit = MARGIN * outer_limit(analysis, kind)
    if not math.isfinite(limit):
        raise ValueError(
            "No practical outer step: Phi has no curvature at the points. Expected some; give other points."
        )
    if outer.low <= 0:
        return Choice(
            limit / 2, "half of the stability limit with L_own, within a margin; Phi is not convex here"
        ), math.nan
    mean, each = (outer.low, outer.high), (outer.low, max(outer.own, outer.high))
    step, rate = analysis.modes.best_step(way, limit, mean, each)
    source = f"the fastest within {MARGIN:g} of the stability limit with L_own"
    if not issubclass(kind, DBOGT):
        enough = math.log(1 / ACCURACY) / (outer.low * steps)
        if enough < step:
            step, source = enough, "K steps suffice at Phi's least curvature, and the bias falls with the step"
            rate = analysis.modes.contraction(way, step, mean, each)
    return Choice(step, source), math.ceil(_RESERVE * _iterations(rate, ACCURACY))


def _inner(kind: type[DoubleLoop], analysis: Analysis, way: Way) -> tuple[Choice, Choice]:
    step, count = _descent(analysis, way, kind.stochastic)
    source = f"the fastest within {MARGIN:g} of {way.formula()}"
    return Choice(step, source), Choice(count, f"leaves {LEFT_OVER:g} of the error in y")


def _oracle(kind: type[DoubleLoop], analysis: Analysis, homogeneous: bool) -> tuple[Choice, Choice]:
    if not homogeneous:
        step, count = _descent(analysis, TRACKED, kind.stochastic)
        source = f"the fastest within {MARGIN:g} of {TRACKED.formula()}"
        return Choice(step, source), Choice(count, f"leaves {LEFT_OVER:g} of the error in Z or z")
    c = analysis.constants
    if kind.stochastic:
        step = MARGIN / max(c.L_g1, analysis.similarity.sampled_high)
        return Choice(step, f"{MARGIN:g}/L of mini-batches"), Choice(
            _iterations(1 - step * c.mu, LEFT_OVER), "leaves 0.1"
        )
    root = math.sqrt(c.L_g1 / c.mu)
    count = _iterations((root - 1) / (root + 1), LEFT_OVER)
    return Choice(None, "conjugate gradients have none"), Choice(count, f"leaves {LEFT_OVER:g} of the error in v")


def _descent(analysis: Analysis, way: Way, stochastic: bool) -> tuple[float, int]:
    """A step of fast contraction within the margin, and how often."""
    c = analysis.constants
    high = max(c.L_g1, analysis.similarity.sampled_high) if stochastic else c.L_g1
    limit = MARGIN * way.guaranteed(analysis.smallest, high)
    step, rate = analysis.modes.best_step(way, limit, (c.mean_mu, c.mean_L), (c.mu, high))
    return step, _iterations(rate, LEFT_OVER)


def _iterations(rate: float, left: float) -> int:
    if rate >= 1:
        return _MOST
    return 1 if rate <= 0 else min(_MOST, max(1, math.ceil(math.log(left) / math.log(rate))))
