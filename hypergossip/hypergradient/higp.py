"""The network's H⁻¹∇_y f by gossip: vectors where JHIP sends matrices (Chen, Huang, Ma, Balasubramanian 2023)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..descent import Tracker, tracked_descent
from ..local import Local, Rq
from ..network import Agent, Draw
from ..parts import Upper
from ..steps import Step, check_count, check_step, whole
from .base import Estimate, Oracle, relative


class HIGP(Oracle):
    """Hessian-inverse-gradient product by gossip: z_i → H⁻¹ mean_j ∇_y f_j of the whole network.

        N times   z ← mix(z) − γ_t d,   d ← mix(d) + s⁺ − s,   s⁺ = H_i z − ∇_y f_i,
        h = ∇_x f_i − J_i z

    Right where agents differ, like JHIP, with two vectors of q numbers per iteration to every
    neighbour instead of two q × p matrices, and with products with vectors only. It also serves
    where parts of x are agents' own. Stochastic: H_i and ∇_y f_i from a fresh sample in each
    iteration, γ_t = O(1/t). Carried on, z and its tracker (d, s) go on in the next outer iteration
    as JHIP's do; the source starts z = 0 in every outer iteration.
    """

    step: Step
    """γ, or γ_t as a function of t."""
    iterations: int = eqx.field(static=True, default=20, converter=whole)
    """N."""

    def __check_init__(self):
        check_step("HIGP's step", self.step)
        check_count("HIGP's iterations", self.iterations)

    def init(self, x: Upper, y: Rq) -> tuple[Array, Tracker]:
        zeros = jnp.zeros_like(y)
        return zeros, Tracker.zeros(zeros)

    def __call__(self, agent: Agent, draw: Draw, x: Upper, y: Rq, carried: Any) -> Estimate:
        z, tracker = (jnp.zeros_like(y), None) if carried is None else carried
        if isinstance(draw, Local):
            H, b = draw.curvature(x, y), draw.fy(x, y)
            z, tracker = tracked_descent(
                agent, ("z", "d"), lambda t, z: H(z), z, tracker, self.step, self.iterations, constant=b
            )
        else:

            def sampled(t: int | Array, z: Array) -> Array:
                local = draw("system", t)
                return local.gyy(x, y, z) - local.fy(x, y)

            z, tracker = tracked_descent(agent, ("z", "d"), sampled, z, tracker, self.step, self.iterations)
            b = draw("system", self.iterations).fy(x, y)
        return Estimate(draw("upper").fx(x, y) - draw("cross").gxy(x, y, z), (z, tracker), relative(tracker.v, b))
