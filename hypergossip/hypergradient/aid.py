"""Approximate implicit differentiation: conjugate gradients on agent i's own system."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..local import Rq
from ..network import Agent, Draw
from ..parts import Upper
from ..steps import check_count, whole
from .base import Estimate, Oracle, relative


class AID(Oracle):
    """Approximate implicit differentiation, for homogeneous agents: H_i and J_i in place of H and J.

        v ← N steps of conjugate gradients on  H_i v = ∇_y f_i  from the v carried,
        h = ∇_x f_i − J_i v

    Sends nothing, and needs products with vectors only. Where agents differ, h is not an estimate
    of ∇Φ: the local H_i⁻¹ is not the mean's inverse, and the error does not shrink.
    """

    iterations: int = eqx.field(static=True, default=20, converter=whole)
    """N."""

    def __check_init__(self):
        check_count("AID's iterations", self.iterations)

    def init(self, x: Upper, y: Rq) -> Rq:
        return jnp.zeros_like(y)

    def __call__(self, agent: Agent, draw: Draw, x: Upper, y: Rq, carried: Any) -> Estimate:
        local = draw("hypergradient")
        b, H = local.fy(x, y), local.curvature(x, y)
        tolerance = float(jnp.finfo(b.dtype).eps)  # N steps, fewer only where rounding is all that is left
        start = jnp.zeros_like(y) if carried is None else carried
        v, _ = jax.scipy.sparse.linalg.cg(H, b, x0=start, tol=tolerance, maxiter=self.iterations)
        return Estimate(local.fx(x, y) - local.gxy(x, y, v), v, relative(H(v) - b, b))
