"""The truncated Neumann series of agent i's own H_i⁻¹, by one random term."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ..local import Rq
from ..network import Agent, Draw
from ..parts import Upper
from ..steps import Step, at, check_count, check_step, whole
from .base import Estimate, Oracle


class Neumann(Oracle):
    """The truncated Neumann series by one random term, for homogeneous agents.

        v = ε M ∏_{m=1}^{M'} (I − ε ∇²_y g_i(·; φ^(m+1))) ∇_y f_i(·; φ^(0)),   M' uniform on {0, …, M−1},
        h = ∇_x f_i(·; φ^(0)) − ∇²_xy g_i(·; φ^(1)) v

    Every factor has a fresh sample, and h is unbiased for the series with M terms,
    ε Σ_{k<M} (I − ε H_i)^k. Departure from the paper: its Algorithm 2 draws M' from {1, …, M},
    while its Lemma needs, and we take, {0, …, M−1}; its estimate would lack the term k = 0 and
    have one k = M too many. Needs ε < 1/L.
    """

    step: Step
    """ε."""
    terms: int = eqx.field(static=True, default=10, converter=whole)
    """M."""

    def __check_init__(self):
        check_step("Neumann's step", self.step)
        check_count("Neumann's terms", self.terms)

    def init(self, x: Upper, y: Rq) -> None:
        return None

    def __call__(self, agent: Agent, draw: Draw, x: Upper, y: Rq, carried: Any) -> Estimate:
        upper = draw("upper")
        b = upper.fy(x, y)
        epsilon = at(self.step, agent.k, b)
        last = jax.random.randint(agent.random_key("terms"), (), 0, self.terms)

        def factor(m: Array, v: Array) -> Array:
            # A masked factor, not a loop of random length: agents run in step, so the longest decides anyway.
            return jnp.where(m < last, v - epsilon * draw("factor", m).gyy(x, y, v), v)

        v = epsilon * self.terms * lax.fori_loop(0, self.terms - 1, factor, b)
        unknown = jnp.full((), jnp.nan, b.dtype)  # one random term solves nothing; only its mean over draws does
        return Estimate(upper.fx(x, y) - draw("cross").gxy(x, y, v), None, unknown)
