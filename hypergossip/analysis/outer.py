"""The upper level as it is: ∇Φ and ∇²Φ at points, by exact solves over all agents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..exact import Solver
from ..parts import Rp
from . import derivatives as of
from .spectra import Blocks
from .view import Point, View


@dataclass(frozen=True)
class Outer:
    """Φ near a point; NaN where the exact solves failed, `failure` says why."""

    gradient: float
    """‖∇Φ(x)‖."""
    low: float
    """The smallest eigenvalue of ∇²Φ(x)."""
    high: float
    """The largest."""
    own: float
    """How strongly one agent's hypergradient depends on its own x: max_i ‖∇²_x f_i‖ + ‖∇²Φ − mean_i ∇²_x f_i‖.

    An estimate: what the agents' J_i do and their mean does not is not in it.
    """
    surrogate: float
    """‖mean_i [∇_x f_i − J_i H_i⁻¹ ∇_y f_i](x, y_i*(x)) − ∇Φ(x)‖ / ‖∇Φ(x)‖: what `homogeneous=True` gets wrong."""
    failure: str = ""
    converged: bool = True
    """Whether the Lanczos runs on ∇²Φ came to their end."""

    @property
    def L_phi(self) -> float:
        """The largest |eigenvalue| of ∇²Φ(x)."""
        return max(abs(self.low), abs(self.high))


def _unknown(why: str) -> Outer:
    nan = float("nan")
    return Outer(nan, nan, nan, nan, nan, failure=why)


def solution(view: View, start: Point) -> tuple[Point, str]:
    """(x̄_0, y*(x̄_0)), and why it is not that, if it is not."""
    answer = of.exact_at(view, Solver(), start.x, start.y).lower
    if bool(answer.converged):
        return Point("solution", start.x, answer.value), ""
    why = f"the exact solve for y* stopped at relative residual {float(answer.residual):.1e}"
    return Point("solution", start.x, answer.value), why


def outer_at(view: View, point: Point) -> Outer:
    """Φ at a point's x, the exact solves starting from its y."""
    solver = Solver()
    answer = of.exact_at(view, solver, point.x, point.y).gradient
    if not bool(answer.converged):
        why = f"the exact solves for the gradient of Phi stopped at relative residual {float(answer.residual):.1e}"
        return _unknown(why)
    gradient = float(jnp.linalg.norm(answer.value))
    mean, every = of.surrogate(view, solver, point.x, point.y)
    error = float(jnp.linalg.norm(mean - answer.value)) / gradient if bool(every) and gradient > 0 else float("nan")
    hessian, rest = _hessian(view, solver, point), of.mean_upper_curvature(view, point)
    ends, rest_ends = hessian.extremes(), _difference(hessian, rest).extremes()
    own = of.upper_curvatures(view, point).extremes()
    failure = "" if np.isfinite(ends.high) else "an exact solve beside the point failed"
    converged = ends.converged and own.largest_converged and rest_ends.largest_converged
    return Outer(gradient, ends.low, ends.high, own.largest + rest_ends.largest, error, failure, converged)


def _hessian(view: View, solver: Solver, point: Point) -> Blocks:
    """∇²Φ(x) v by central differences of ∇Φ; NaN where an exact solve fails."""
    return Blocks(partial(_differences, view, solver, point), 1, point.x.size, np.dtype(point.x.dtype))


def _differences(view: View, solver: Solver, point: Point, v: Float[Array, "1 p"]) -> Float[Array, "1 p"]:
    x, size = point.x, jnp.linalg.norm(v)
    # The third root of rounding balances the error of the formula with that of the solves.
    step = float(jnp.finfo(x.dtype).eps) ** (1 / 3) * jnp.maximum(_scale(x), 1e-3) / jnp.where(size > 0, size, 1)
    beside = of.exact_at_two(view, solver, jnp.stack([x + step * v[0], x - step * v[0]]), point.y).gradient
    change = (beside.value[0] - beside.value[1]) / (2 * step)
    return jnp.where(jnp.all(beside.converged), change, jnp.nan)[None]


def _scale(x: Rp) -> Array:
    """What x is measured in: its own norm, or 1."""
    norm = jnp.linalg.norm(x)
    return jnp.where(norm > 0, norm, 1)


def _difference(one: Blocks, other: Blocks) -> Blocks:
    return Blocks(lambda v: one.apply(v) - other.apply(v), one.count, one.size, one.dtype)
