"""What the theorems' explicit constants give. Where a theorem leaves one open, the label says what was taken."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..algorithms import DBO, DBOGT, DoubleLoop
from .settings import Choice, Decaying, Settings, batch_size_for, carry_for, oracle_for
from .stability import GOSSIP, TRACKED
from .theorems import least_power

if TYPE_CHECKING:
    from .analysis import Analysis

_BELOW = 0.99
"""Of a bound that is strict."""
_OPEN_RATE = "C and alpha are open in the theorem: C = 1, alpha from the modes of W and the Hessians' extremes"


def safe_settings(kind: type[DoubleLoop], analysis: Analysis, steps: int, homogeneous: bool) -> Settings:
    """Settings that the theorem of `kind` covers for K = `steps`."""
    if homogeneous:
        inner = _alike(kind, analysis, steps)
    else:
        inner = _decaying(analysis, steps) if kind.stochastic else _tracked(analysis, steps)
    return Settings(
        kind=kind,
        homogeneous=homogeneous,
        outer_step=_outer_step(kind, analysis, steps, homogeneous),
        oracle=oracle_for(kind, homogeneous, analysis.own_parts),
        carry=carry_for(kind, homogeneous),
        batch_size=batch_size_for(kind, analysis.similarity.batch_size),
        **inner,
    )


def _outer_step(kind: type[DoubleLoop], analysis: Analysis, steps: int, homogeneous: bool) -> Choice:
    theory, case = analysis.theory, (analysis.n, analysis.gap, homogeneous)
    if issubclass(kind, DBOGT):
        bound = "(1-rho)^2/(4 sqrt(2n) L_phi)" if homogeneous else "(1-rho)^2/(4 sqrt(6n) kappa L_f)"
        return Choice(_BELOW * theory.dbogt_step(*case), f"theorem DBOGT: {bound}")
    if not issubclass(kind, DBO):
        return Choice(1 / (theory.L_phi * math.sqrt(steps)), "theorem DSBO: Theta(K^-1/2), its constant open: 1/L_phi")
    bound, (drop_factor, bias_factor) = theory.dbo_step(*case), theory.dbo_bias(*case)
    name = "(1-rho)/(130 sqrt(n) L_phi)" if homogeneous else "1/L_phi"
    drop = _drop(analysis)
    if math.isnan(drop) or not bias_factor > 0:
        return Choice(bound, f"theorem DBO: {name}; the balance with K is unknown, as exact solves failed")
    balance = (drop_factor * drop / (2 * bias_factor * steps)) ** (1 / 3)
    source = (
        f"theorem DBO: the least of {name} and what balances its two terms, Phi_0 - inf Phi = |grad Phi|^2/(2 L_phi)"
    )
    return Choice(min(bound, balance), source)


def _drop(analysis: Analysis) -> float:
    """An estimate of Φ(x̄_0) − inf Φ, which the theorems leave open."""
    outer = analysis.outer
    return outer.gradient**2 / (2 * outer.L_phi) if outer.L_phi > 0 else float("nan")


def _alike(kind: type[DoubleLoop], analysis: Analysis, steps: int) -> dict[str, Choice]:
    """Agents alike: local descent, with AID or the Neumann series."""
    theory, constants = analysis.theory, analysis.constants
    step = 2 / (constants.mu + constants.L)
    if not kind.stochastic:
        inner, solve = theory.accuracies(issubclass(kind, DBOGT))
        return {
            "inner_step": Choice(step, "theorem: 2/(mu + L)"),
            "inner_iterations": Choice(theory.inner_iterations(step, inner), "theorem: its bound on delta_y^T"),
            "oracle_step": Choice(None, "conjugate gradients have none"),
            "oracle_iterations": Choice(theory.cg_iterations(solve), "theorem: its bound on delta_kappa^N"),
        }
    step, epsilon = step / math.sqrt(steps), _BELOW / constants.L
    terms = math.log(max(2.0, constants.kappa**2 * steps)) / (-2 * math.log1p(-epsilon * constants.mu))
    accuracy = min(1 / 3, constants.kappa**-8)
    return {
        "inner_step": Choice(step, "theorem: Theta(K^-1/2), its constant open: 2/(mu + L)"),
        "inner_iterations": Choice(theory.inner_iterations(step, accuracy), "proof: delta_y^T below kappa^-8 and 1/3"),
        "oracle_step": Choice(epsilon, "theorem: below 1/L"),
        "oracle_iterations": Choice(math.ceil(terms), "proof: kappa^2 (1 - eps mu)^2M below 1/K"),
    }


def _tracked(analysis: Analysis, steps: int) -> dict[str, Choice]:
    """Agents that differ, full data: tracked gossip for y and for the oracle."""
    c = analysis.constants
    step, rate = analysis.modes.best_step(
        TRACKED, _BELOW * analysis.guaranteed(TRACKED), (c.low, c.high), (c.mu, c.L_g1)
    )
    number = least_power(rate, 1 / max(steps, 2) ** 2)
    source = f"below {TRACKED.formula()}, the limit for any agents; the theorem's constant is open"
    count = Choice(number, f"theorem: Theta(log K), alpha^T = 1/K^2. {_OPEN_RATE}")
    return {
        "inner_step": Choice(step, source),
        "inner_iterations": count,
        "oracle_step": Choice(step, source),
        "oracle_iterations": count,
    }


def _decaying(analysis: Analysis, steps: int) -> dict[str, Choice]:
    """Agents that differ, mini-batches: steps (2/μ)/t, begun where gossip is stable."""
    inner, oracle = (
        Choice(
            Decaying(first := 0.5 * analysis.guaranteed(way), max(1.0, 2 / (analysis.constants.mu * first))),
            f"theorem: O(1/t), its constant open: (2/mu)/t, from half of {way.formula()} on",
        )
        for way in (GOSSIP, TRACKED)
    )
    return {
        "inner_step": inner,
        "inner_iterations": Choice(math.ceil(math.sqrt(steps)), "theorem: Theta(K^1/2), its constant open: 1"),
        "oracle_step": oracle,
        "oracle_iterations": _tracked(analysis, steps)["oracle_iterations"],
    }
