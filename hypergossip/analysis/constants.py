"""The constants of the paper's assumptions, estimated at points: each the worst over all agents and points."""

from __future__ import annotations

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np

from . import derivatives as of
from .view import Point, View

_STARTS = 4
_CLIMB = 15


@dataclass(frozen=True)
class Constants:
    """Estimates at finitely many points: μ from above, all others from below."""

    mu: float
    """μ: the smallest eigenvalue of any ∇²_y g_i."""
    L_g1: float
    """L_{g,1}: the largest eigenvalue of any ∇²_y g_i."""
    low: float
    """The smallest eigenvalue of H = mean_i ∇²_y g_i."""
    high: float
    """The largest eigenvalue of H."""
    L_f1: float
    """L_{f,1}: the largest |eigenvalue| of any ∇²f_i in (x, y)."""
    L_f0: float
    """L_{f,0}: the largest ‖∇f_i‖ in (x, y)."""
    J: float
    """The largest ‖∇²_xy g_i‖."""
    L_g2: float
    """L_{g,2}: the largest ‖D³g_i‖ that a power iteration from random directions found."""
    unconverged: tuple[str, ...] = ()
    """The fields that are not known at some point: Lanczos stopped short, an end is too near 0, or it is not finite."""

    @property
    def L(self) -> float:
        """L = max{L_{f,1}, L_{g,1}, ‖∇²_xy g‖}: the proofs use it for all three."""
        return max(self.L_f1, self.L_g1, self.J)

    @property
    def kappa(self) -> float:
        """κ = L/μ; infinite where μ ≤ 0."""
        return self.L / self.mu if self.mu > 0 else float("inf")


def constants_at(view: View, point: Point, seed: int) -> Constants:
    """The constants at one point."""
    each, mean = of.lower_hessians(view, point).extremes(), of.mean_hessian(view, point).extremes()
    upper, jacobian = of.upper_hessians(view, point).extremes(), of.squared_jacobians(view, point).extremes()
    gradient = float(of.largest_gradient(view, point.x, point.y))
    third = float(of.third_derivative(view, point.x, point.y, _directions(view, point, seed), _CLIMB))
    found: dict[str, tuple[float, bool]] = {
        "mu": (each.low, each.low_converged),
        "L_g1": (each.high, each.high_converged),
        "low": (mean.low, mean.low_converged),
        "high": (mean.high, mean.high_converged),
        "L_f1": (upper.largest, upper.largest_converged),
        "J": (float(np.sqrt(np.maximum(jacobian.high, 0.0))), jacobian.high_converged),
        "L_f0": (gradient, bool(np.isfinite(gradient))),
        "L_g2": (third, bool(np.isfinite(third))),
    }
    return Constants(
        **{name: value for name, (value, _) in found.items()},
        unconverged=tuple(name for name, (_, known) in found.items() if not known),
    )


def worst(every: list[Constants]) -> Constants:
    """The smallest μ and the largest of everything else, over the points where it is known; NaN where at none.

    What is not known at some point is among `unconverged`.
    """
    names = [field.name for field in fields(Constants) if field.name != "unconverged"]
    together = {name: [getattr(one, name) for one in every] for name in names}
    pick = {name: np.fmin if name in ("mu", "low") else np.fmax for name in names}
    values = {name: float(pick[name].reduce(found)) for name, found in together.items()}
    unconverged = {name: None for one in every for name in one.unconverged}
    return Constants(**values, unconverged=tuple(unconverged))


def _directions(view: View, point: Point, seed: int) -> jax.Array:
    width = view.each(point.x).shape[1] + point.y.size
    drawn = np.random.default_rng(seed).standard_normal((_STARTS, view.n, width))
    return jnp.asarray(drawn, point.y.dtype)
