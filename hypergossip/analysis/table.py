"""An analysis as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .stability import WAYS

if TYPE_CHECKING:
    from .analysis import Analysis


def as_text(analysis: Analysis) -> str:
    """A table of the numbers, one sentence per finding."""
    where = " and ".join(analysis.points)
    lines = [f"{analysis.n} agents, x in R^{analysis.p}, y in R^{analysis.q}; estimated at: {where}", ""]
    width = max(len(symbol) for symbol, _, _ in _rows(analysis))
    lines += [f"  {symbol:<{width}}  {value:>10.4g}  {what}" for symbol, value, what in _rows(analysis)]
    lines += ["", *_limits(analysis), "", *_sentences(analysis)]
    lines += [f"Note: {note}" for note in analysis.notes]
    lines += [str(finding) for finding in analysis.findings]
    return "\n".join(lines)


def _rows(analysis: Analysis) -> list[tuple[str, float, str]]:
    c, outer, theory = analysis.constants, analysis.outer, analysis.theory
    return [
        ("mu", c.mu, "smallest eigenvalue of any agent's lower Hessian"),
        ("L_g1", c.L_g1, "largest eigenvalue of any agent's lower Hessian"),
        ("mu, L of the mean", c.low, f"to {c.high:.4g}: eigenvalues of the mean lower Hessian"),
        ("L_f1", c.L_f1, "largest |eigenvalue| of any upper Hessian in (x, y)"),
        ("L_f0", c.L_f0, "largest upper gradient"),
        ("|J|", c.J, "largest norm of any cross derivative of g_i"),
        ("L_g2", c.L_g2, "third derivatives of g_i, from below"),
        ("kappa", c.kappa, "max(L_f1, L_g1, |J|) / mu"),
        ("L_phi, bound", theory.L_phi, "Lemma Phi_lip's formula with these constants"),
        ("L_f, bound", theory.L_f, "Lemma hyper_surrogate's formula"),
        (
            "L_phi",
            outer.L_phi,
            f"largest |eigenvalue| of the Hessian of Phi (from {outer.low:.3g} to {outer.high:.3g})",
        ),
        ("L_own", outer.own, "estimate of how an agent's hypergradient depends on its own x"),
        ("|grad Phi|", outer.gradient, "at the last point"),
        ("rho", analysis.rho, f"of W; gap {analysis.gap:.3g}, smallest eigenvalue {analysis.smallest:.3g}"),
    ]


def _limits(analysis: Analysis) -> list[str]:
    lines = [f"  {'limits of a step':<18}  {'for any agents':>14}  {'for these':>10}"]
    for point, ways in analysis.limits.items():
        lines += [
            f"  {way.name:<18}  {ways[way.name].guaranteed:>14.4g}  {ways[way.name].exact:>10.4g}  at the {point}"
            for way in WAYS
        ]
    return lines


def _sentences(analysis: Analysis) -> list[str]:
    similarity, error = analysis.similarity, analysis.outer.surrogate
    if math.isnan(similarity.ratio):
        first = (
            f"Whether the agents' lower data could be of one distribution cannot be judged: {similarity.why_unknown}."
        )
    else:
        judged = "plausible" if analysis.plausibly_homogeneous else "not plausible"
        first = (
            f"One distribution for all agents' lower data (Assumption 4) is {judged}: their gradients lie "
            f"{similarity.ratio:.3g} times as far apart as sampling explains (chance: up to {similarity.chance:.3g})."
        )
    if math.isnan(error):
        return [first, "What homogeneous=True would get wrong is unknown: exact solves failed, or the gradient is 0."]
    return [first, f"homogeneous=True would make a relative error of {error:.3g} in the gradient of Phi here."]
