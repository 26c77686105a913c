"""`hg.recommend`: settings that the theorems cover, and settings for practice, side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..algorithms import DBO, DBOGT, DSBO, DoubleLoop
from ..steps import check_count
from .analysis import Analysis
from .practical import practical_settings
from .safe import safe_settings
from .settings import Settings

_KINDS: dict[str, type[DoubleLoop]] = {kind.__name__: kind for kind in (DBO, DBOGT, DSBO)}


@dataclass(frozen=True)
class Recommendation:
    """Two settings for one algorithm."""

    steps: int
    """K."""
    safe: Settings
    """From the theorems' explicit constants; they are upper bounds on upper bounds, and slow."""
    practical: Settings
    """From the direct estimates and the stability limits; not proven, measured."""
    needed: float
    """After how many outer iterations practical DBOGT leaves 1e-6 of ‖∇Φ‖, if Φ's curvature stays what it is at the
    points; NaN where Φ is not convex there, and for DBO and DSBO, of which bias or noise stays."""

    def algorithm(self, **others: Any) -> DoubleLoop:
        """The practical algorithm; `safe.algorithm()` is the other one."""
        return self.practical.algorithm(**others)

    def __str__(self) -> str:
        safe, practical = self.safe.choices(), self.practical.choices()
        kind = self.practical.kind.__name__
        lines = [f"hg.{kind} for {self.steps} outer iterations, homogeneous={self.practical.homogeneous}", ""]
        lines += [f"  {'':<18}  {'safe':>20}  {'practical':>20}"]
        lines += [f"  {name:<18}  {safe[name]!s:>20}  {practical[name]!s:>20}" for name in safe]
        for title, choices in (("safe", safe), ("practical", practical)):
            lines += ["", f"{title}:", *(f"  {name:<18}  {choice.source}" for name, choice in choices.items())]
        if not math.isnan(self.needed):
            lines += ["", f"practical: 1e-6 of the gradient of Phi is left after {self.needed:.0f} outer iterations"]
        return "\n".join(lines)


def recommend(
    algorithm: type[DoubleLoop] | str, analysis: Analysis, steps: int, *, homogeneous: bool = False
) -> Recommendation:
    """Settings of `algorithm` (hg.DBO, hg.DBOGT, hg.DSBO or its name) for `steps` outer iterations.

    `analysis` is what `hg.analyse(problem, topology)` returned. The number of inner iterations of
    both settings goes with the conditioning, so a badly conditioned lower level makes them many.
    """
    kind = _kind(algorithm)
    if not isinstance(analysis, Analysis):
        raise TypeError(f"Got {analysis!r}; expected what hg.analyse(problem, topology) returns.")
    check_count("steps", steps)
    if not isinstance(homogeneous, bool):
        raise TypeError(f"homogeneous is {homogeneous!r}; expected True or False.")
    if not analysis.constants.mu > 0:
        raise ValueError(
            f"The analysis found mu = {analysis.constants.mu:.3g}: some agent's g_i is not strongly convex in y at "
            f"{' or '.join(analysis.points)}; expected mu > 0, without which no theorem applies. Regularise g."
        )
    practical, needed = practical_settings(kind, analysis, steps, homogeneous)
    return Recommendation(steps, safe_settings(kind, analysis, steps, homogeneous), practical, needed)


def _kind(algorithm: Any) -> type[DoubleLoop]:
    if isinstance(algorithm, type) and issubclass(algorithm, tuple(_KINDS.values())):
        return algorithm
    if isinstance(algorithm, str):
        if algorithm in _KINDS:
            return _KINDS[algorithm]
        raise ValueError(f"Unknown algorithm {algorithm!r}; possible are {', '.join(_KINDS)}.")
    raise TypeError(f"Got {algorithm!r}; expected hg.DBO, hg.DBOGT, hg.DSBO or one of their names.")
