"""What can be said of an algorithm's steps before any run: which stability limits they break, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..algorithms import DBO, DBOGT, DSBO, Algorithm, DoubleLoop
from ..hypergradient import AID, HIGP, JHIP, Neumann
from ..steps import Step
from .stability import GOSSIP, LOCAL, TRACKED, Way

if TYPE_CHECKING:
    from .analysis import Analysis

DIVERGES = "diverges"
BEYOND = "beyond what the theorem covers"
FINE = "fine"
OUTRUN = 10.0
"""Growth within one outer iteration that no fall of the Hessians is expected to outrun."""
_CONSTANT = 1e-9
"""L_{g,2}/L_{g,1} up to which the Hessians count as constant."""
SURROGATE_MATTERS = 0.05
"""The relative error of the agents' own hypergradients that is worth a word."""


@dataclass(frozen=True)
class Finding:
    """One judgement."""

    level: str
    """"diverges", "beyond what the theorem covers" or "fine"."""
    about: str
    """The algorithm's field, dots going inside."""
    value: float
    """What it is."""
    limit: float
    """What it would have to stay below for a better level; for "fine", what it stays below."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.level}: {self.sentence}"


def foresee(analysis: Analysis, algorithm: Algorithm) -> list[Finding]:
    """Findings on the steps of DBO, DBOGT or DSBO; a step that is a function is judged by its value at 0."""
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"Got {algorithm!r}; expected an algorithm such as hg.DBOGT(...).")
    if not isinstance(algorithm, DoubleLoop):
        return []
    return [
        *_inner(analysis, algorithm),
        *_oracle(analysis, algorithm),
        *_carried(algorithm),
        *_outer(analysis, algorithm),
        *_similar(analysis, algorithm),
    ]


def way_of(algorithm: DoubleLoop) -> Way:
    """How the algorithm goes down on y."""
    if algorithm.homogeneous:
        return LOCAL
    return GOSSIP if algorithm.stochastic else TRACKED


def _inner(analysis: Analysis, algorithm: DoubleLoop) -> Iterator[Finding]:
    proven = analysis.guaranteed(way := way_of(algorithm))
    words = f"{way.formula()}, over all points"
    if algorithm.homogeneous:
        proven, words = 2 / (analysis.constants.mu + analysis.constants.L), "the theorem's 2/(mu + L)"
    step, iterations = algorithm.inner_step, algorithm.inner_iterations
    yield _judged(analysis, algorithm, "inner_step", step, iterations, way, proven, words)


def _oracle(analysis: Analysis, algorithm: DoubleLoop) -> Iterator[Finding]:
    oracle, about = algorithm.oracle, "hypergradient.step"
    if isinstance(oracle, (JHIP, HIGP)):
        proven, words = analysis.guaranteed(TRACKED), f"{TRACKED.formula()}, over all points"
        yield _judged(analysis, algorithm, about, oracle.step, oracle.iterations, TRACKED, proven, words)
    elif isinstance(oracle, Neumann):
        proven, words = 1 / analysis.constants.L, "the theorem's 1/L"
        yield _judged(analysis, algorithm, about, oracle.step, oracle.terms, LOCAL, proven, words)
    elif isinstance(oracle, AID) and not algorithm.homogeneous:
        yield _local_oracle(analysis)


def _judged(
    analysis: Analysis,
    algorithm: DoubleLoop,
    about: str,
    step: Step,
    iterations: int,
    way: Way,
    proven: float,
    words: str,
) -> Finding:
    """An inner step, against its limit at the solution (the last point), and that of mini-batches.

    Beyond the first errors grow. Where the Hessians change with (x, y), slow growth can be outrun, as
    they may fall along the way; more than tenfold within one outer iteration is taken not to be.
    """
    value, where = _value(step), analysis.points[-1]
    exact = analysis.limits[where][way.name].exact
    steeper = _steeper(analysis, algorithm)
    said = f"{about} = {value:.3g}{_at_zero(step)} is"
    if value > exact:
        growth = iterations * math.log(way.growth(value, exact, analysis.smallest))
        sure = growth > math.log(OUTRUN) or analysis.constants.L_g2 <= _CONSTANT * analysis.constants.L_g1
        hope = "" if sure else ", unless the Hessians fall as x and y move"
        text = (
            f"{said} {value / exact:.3g} times the limit {exact:.3g} of {way.name} at the {where} with this W: errors "
            f"grow {_fold(growth)} in every outer iteration{hope}. Choose at most {min(proven, exact):.3g} ({words})."
        )
        return Finding(DIVERGES if sure else BEYOND, about, value, exact, text)
    if value > exact / steeper:
        text = (
            f"{said} {value * steeper / exact:.3g} times {exact / steeper:.3g}, the limit of {way.name} at the {where} "
            f"where Hessians are {steeper:.3g} times as large, as those of mini-batches of "
            f"{analysis.similarity.batch_size} rows are. Choose at most {min(proven, exact) / steeper:.3g}."
        )
        return Finding(BEYOND, about, value, exact / steeper, text)
    if value > proven:
        text = (
            f"{said} {value / proven:.3g} times {proven:.3g} ({words}), though below the limit {exact:.3g} of "
            f"{way.name} at the {where}. Choose {proven:.3g} to be safe."
        )
        return Finding(BEYOND, about, value, proven, text)
    return Finding(FINE, about, value, proven, f"{said} below {proven:.3g} ({words}).")


def _steeper(analysis: Analysis, algorithm: DoubleLoop) -> float:
    """How many times larger the Hessians of the mini-batches are that the algorithm draws, if known; at least 1."""
    sampled, whole = analysis.similarity.sampled_high, analysis.constants.L_g1
    draws = isinstance(algorithm, DSBO) and algorithm.batch_size is not None
    return sampled / whole if draws and math.inf > sampled > whole > 0 else 1.0


def _carried(algorithm: DoubleLoop) -> Iterator[Finding]:
    """JHIP and HIGP go on from a state of other Hessians; without a tracker on y those lie far apart."""
    goes_on = isinstance(algorithm, DSBO) and algorithm.carry and not algorithm.homogeneous
    if goes_on and isinstance(algorithm.oracle, (JHIP, HIGP)):
        text = (
            f"carry=True with hg.{type(algorithm.oracle).__name__} in hg.DSBO: y has no tracker, so what the "
            "oracle carries on can diverge (on the synthetic preset it does, in iteration 3). Choose carry=False."
        )
        yield Finding(BEYOND, "carry", 1.0, 0.0, text)


def _fold(growth: float) -> str:
    """e^growth in words; as a power of ten where it is no float."""
    power = growth / math.log(10)
    return f"{math.exp(growth):.2g}-fold" if power < 300 else f"10^{power:.0f}-fold"


def _outer(analysis: Analysis, algorithm: DoubleLoop) -> Iterator[Finding]:
    outer, value = analysis.outer, _value(algorithm.outer_step)
    if np.isnan(outer.high):
        return
    said = f"outer_step = {value:.3g}{_at_zero(algorithm.outer_step)}"
    limit, practice = (2 / outer.high if outer.high > 0 else np.inf), outer_limit(analysis, type(algorithm))
    proven = proven_outer_step(analysis, algorithm)
    if value > limit:
        text = (
            f"{said} is {value / limit:.3g} times 2/lambda_max of Phi's Hessian = {limit:.3g}, beyond which even exact "
            f"gradient descent on Phi grows there; choose at most {practice:.3g}."
        )
        yield Finding(DIVERGES, "outer_step", value, limit, text)
    elif value > proven:
        place = "within" if value <= practice else f"{value / practice:.3g} times"
        text = (
            f"{said} is {value / proven:.3g} times the theorem's {proven:.3g}, and {place} the linearised iteration's "
            f"{practice:.3g}."
        )
        yield Finding(BEYOND, "outer_step", value, proven, text)
    else:
        yield Finding(FINE, "outer_step", value, proven, f"{said} is below the theorem's {proven:.3g}.")


def outer_limit(analysis: Analysis, kind: type[DoubleLoop]) -> float:
    """The guaranteed limit of gossip or tracked gossip on the agents' hypergradients, linearised, and that of ∇Φ."""
    way, outer = outer_way(kind), analysis.outer
    high = max(outer.own, outer.high)
    return min(way.guaranteed(analysis.smallest, high), 2 / high if high > 0 else np.inf)


def outer_way(kind: type[DoubleLoop]) -> Way:
    """How an algorithm goes down on x."""
    return TRACKED if issubclass(kind, DBOGT) else GOSSIP


def proven_outer_step(analysis: Analysis, algorithm: DoubleLoop) -> float:
    """The largest η_x that the algorithm's theorem covers."""
    theory, case = analysis.theory, (analysis.n, analysis.gap, algorithm.homogeneous)
    if isinstance(algorithm, DBOGT):
        return theory.dbogt_step(*case)
    return theory.dbo_step(*case) if isinstance(algorithm, DBO) else 1 / theory.L_phi


def _similar(analysis: Analysis, algorithm: DoubleLoop) -> Iterator[Finding]:
    if not algorithm.homogeneous:
        return
    error, ratio = analysis.outer.surrogate, analysis.similarity.ratio
    measured = f"the mean of the agents' own hypergradients misses the gradient of Phi by {100 * error:.3g}%"
    if analysis.plausibly_homogeneous is False or error > SURROGATE_MATTERS:
        apart = (
            ""
            if np.isnan(ratio)
            else f" and their lower gradients lie {ratio:.3g} times as far apart as sampling explains"
        )
        text = f"homogeneous=True, but {measured}{apart}; choose homogeneous=False with hg.JHIP or hg.HIGP."
        yield Finding(BEYOND, "homogeneous", error, SURROGATE_MATTERS, text)
    elif not np.isnan(error):
        yield Finding(FINE, "homogeneous", error, SURROGATE_MATTERS, f"homogeneous=True: {measured} only.")


def _local_oracle(analysis: Analysis) -> Finding:
    error = analysis.outer.surrogate
    text = (
        f"hg.AID solves each agent's own system; the mean of the agents' own hypergradients misses the gradient of Phi "
        f"by {100 * error:.3g}%. Choose hg.JHIP or hg.HIGP."
    )
    level = BEYOND if not error <= SURROGATE_MATTERS else FINE
    return Finding(level, "hypergradient", error, SURROGATE_MATTERS, text)


def _value(step: Step) -> float:
    value = step(0) if callable(step) else step
    return float(np.max(np.asarray(value)))


def _at_zero(step: Step) -> str:
    return " (its value at 0)" if callable(step) else ""
