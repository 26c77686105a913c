"""The exact answers that metrics compare with: y*(x) by Newton's method, ∇Φ by the implicit function theorem.

Everything here averages over all agents, which no algorithm can; it serves evaluation alone. With
`mean` the identity it is one agent's own problem. Every answer says whether its solves converged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Scalar

from .local import Local, Rq
from .parts import Upper
from .steps import check_count, whole

Mean = Callable[..., Any]


class Answer(NamedTuple):
    """A solution, and how well its equations hold there."""

    value: Upper
    residual: Scalar
    """Relative to the size of the equations' terms."""
    converged: Bool[Array, ""]


class Solver(eqx.Module):
    """Tolerance and patience of the exact solves."""

    tolerance: float | None = None
    """Relative residual to reach; None takes 1,000 units of rounding."""
    newton_steps: int = eqx.field(static=True, default=50, converter=whole)
    cg_steps: int = eqx.field(static=True, default=1000, converter=whole)

    def __check_init__(self):
        check_count("newton_steps", self.newton_steps)
        check_count("cg_steps", self.cg_steps)
        tolerance = self.tolerance
        if tolerance is None:
            return
        if isinstance(tolerance, bool) or not isinstance(tolerance, Real):
            raise TypeError(f"tolerance is {tolerance!r}; expected a positive number, or None.")
        if not 0 < float(tolerance) < math.inf:
            raise ValueError(f"tolerance = {tolerance}; expected a positive, finite number, or None.")

    def lower(self, local: Local, mean: Mean, x: Upper, start: Rq) -> Answer:
        """argmin_y mean_i g_i(x_i, y): Newton's method with inexact steps, halved until the gradient shrinks."""
        tolerance = self._tolerance(start)

        def gradient(y: Array) -> Array:
            return mean(local.gy(x, y))

        def size(y: Array) -> Scalar:
            return mean(jnp.linalg.norm(local.gy(x, y)))

        # The terms that cancel in the mean gradient at the solution are as large as these.
        scale = jnp.maximum(size(start), size(jnp.zeros_like(start)))

        def unfinished(carry: _Newton) -> Bool[Array, ""]:
            left = jnp.linalg.norm(carry.gradient) > tolerance * scale
            return left & carry.moving & (carry.steps < self.newton_steps)

        def newton(carry: _Newton) -> _Newton:
            y, g, steps, _ = carry
            norm = jnp.linalg.norm(g)
            precision = jnp.minimum(0.1, jnp.sqrt(norm / scale))
            direction = self._solve(local, mean, x, y, -g, precision)

            def too_long(t: Scalar) -> Bool[Array, ""]:
                shrunk = jnp.linalg.norm(gradient(y + t * direction)) < (1 - 1e-4 * t) * norm
                return ~shrunk & (t > 1e-9)

            t = lax.while_loop(too_long, lambda t: t / 2, jnp.ones((), y.dtype))
            y = y + t * direction
            g_new = gradient(y)
            return _Newton(y, g_new, steps + 1, jnp.linalg.norm(g_new) < norm)

        first = _Newton(start, gradient(start), jnp.zeros((), jnp.int32), jnp.array(True))
        last = lax.while_loop(unfinished, newton, first)
        return self._answer(last.y, last.gradient, scale)

    def linear(self, local: Local, mean: Mean, x: Upper, y: Rq, b: Rq) -> Answer:
        """H⁻¹ b with H = mean_i ∇²_y g_i(x_i, y), by conjugate gradients."""
        z = self._solve(local, mean, x, y, b, self._tolerance(b) / 10)
        return self._answer(z, mean(local.gyy(x, y, z)) - b, jnp.linalg.norm(b))

    def hypergradient(self, local: Local, mean: Mean, x: Upper, start: Rq) -> Answer:
        """∇Φ(x) = mean_i ∇_x f_i − J H⁻¹ mean_i ∇_y f_i  at (x, y*(x)), from the guess `start` at y*(x)."""
        return self.hypergradient_at(local, mean, x, self.lower(local, mean, x, start))

    def hypergradient_at(self, local: Local, mean: Mean, x: Upper, lower: Answer) -> Answer:
        """∇Φ(x), given y*(x) as `lower` found it."""
        y, lower_residual, lower_converged = lower
        z, linear_residual, linear_converged = self.linear(local, mean, x, y, mean(local.fy(x, y)))
        gradient = mean(local.fx(x, y) - local.gxy(x, y, z))
        return Answer(gradient, jnp.maximum(lower_residual, linear_residual), lower_converged & linear_converged)

    def _solve(self, local: Local, mean: Mean, x: Upper, y: Array, b: Array, tolerance: Scalar | float) -> Array:
        H = local.curvature(x, y)
        z, _ = jax.scipy.sparse.linalg.cg(lambda v: mean(H(v)), b, tol=cast(float, tolerance), maxiter=self.cg_steps)
        return z

    def _answer(self, value: Array, residual: Array, scale: Scalar) -> Answer:
        size = jnp.linalg.norm(residual)
        relative = size / jnp.where(scale > 0, scale, 1)
        return Answer(value, relative, relative <= self._tolerance(value))

    def _tolerance(self, like: Array) -> float | Scalar:
        return (
            1000 * float(jnp.finfo(like.dtype).eps)
            if self.tolerance is None
            else jnp.asarray(self.tolerance, like.dtype)
        )


class _Newton(NamedTuple):
    y: Array
    gradient: Array
    steps: Int[Array, ""]
    moving: Bool[Array, ""]
