"""The paper's Algorithm 1: the network's H⁻¹Jᵀ by gossip."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..descent import Gradient, Tracker, tracked_descent
from ..local import Local, Rq
from ..network import Agent, Draw
from ..parts import Parts, Upper
from ..steps import Step, check_count, check_step, whole
from .base import Estimate, Oracle, relative


class JHIP(Oracle):
    """Jacobian-Hessian-inverse product by gossip: Z_i → H⁻¹Jᵀ (q × p) of the whole network.

        N times   Z ← mix(Z) − γ_t Y,   Y ← mix(Y) + G⁺ − G,   G⁺ = H_i Z − J_iᵀ,
        h = ∇_x f_i − Zᵀ ∇_y f_i

    Right where agents differ, at the price of two q × p matrices per iteration to every neighbour.
    Stochastic: H_i, J_i from a fresh sample in each iteration, γ_t = O(1/t). Carried on, Z and its
    tracker (Y, G) start the next outer iteration with Y ← mix(Y) + G(new H_i, J_i) − G, and the
    truncation error vanishes with the outer one; the paper does not say how Z starts, and Z = 0 in
    every outer iteration leaves a floor.
    """

    step: Step
    """γ, or γ_t as a function of t."""
    iterations: int = eqx.field(static=True, default=20, converter=whole)
    """N."""

    refuses_own: ClassVar[str | None] = (
        "hg.JHIP makes H⁻¹Jᵀ with a column for every coordinate of x at every agent; parts of x are agents' own "
        "here, which no other agent knows of. Expected an oracle for products with vectors, such as hg.HIGP."
    )

    def __check_init__(self):
        check_step("JHIP's step", self.step)
        check_count("JHIP's iterations", self.iterations)

    def init(self, x: Upper, y: Rq) -> tuple[Array, Tracker]:
        zeros = _no_product_yet(x, y)
        return zeros, Tracker.zeros(zeros)

    def __call__(self, agent: Agent, draw: Draw, x: Upper, y: Rq, carried: Any) -> Estimate:
        Z, tracker = (_no_product_yet(x, y), None) if carried is None else carried
        G, constant, Jt = self._system(draw, x, y)
        Z, tracker = tracked_descent(agent, ("Z", "Y"), G, Z, tracker, self.step, self.iterations, constant)
        upper = draw("upper")
        return Estimate(upper.fx(x, y) - Z.T @ upper.fy(x, y), (Z, tracker), relative(tracker.v, Jt))

    def _system(self, draw: Draw, x: Array, y: Array) -> tuple[Gradient, Array | float, Array]:
        """H_i Z − J_iᵀ, the gradient of ½ tr(Zᵀ H_i Z) − tr(J_i Z), in two parts; and J_iᵀ, of the last sample.

        The parts are what changes with (t, Z), and what to subtract from it that does not.
        """

        def products(local: Local, Z: Array) -> Array:
            return jax.vmap(local.curvature(x, y), in_axes=1, out_axes=1)(Z)

        if not isinstance(draw, Local):

            def sampled(t: int | Array, Z: Array) -> Array:
                local = draw("system", t)
                return products(local, Z) - local.jacobian(x, y).T

            return sampled, 0.0, draw("system", self.iterations).jacobian(x, y).T
        Jt = draw.jacobian(x, y).T
        if y.size > self.iterations * x.size:  # the matrix H_i costs q products, all of H_i Z cost N·p
            return lambda t, Z: products(draw, Z), Jt, Jt
        H = draw.hessian(x, y)
        return lambda t, Z: H @ Z, Jt, Jt


def _no_product_yet(x: Upper, y: Array) -> Array:
    """Z = 0, a column for every coordinate of x."""
    if isinstance(x, Parts):
        raise ValueError(JHIP.refuses_own)
    return jnp.zeros((y.size, x.size), x.dtype)
