"""Hypergradient oracles: agent i's estimate of ∇Φ at (x, y) (the paper's Algorithms 1 and 2).

    ∇Φ(x) = mean_i [ ∇_x f_i − J H⁻¹ ∇_y f_i ]   at (x, y*(x)),   H = mean_i ∇²_y g_i,  J = mean_i ∇²_xy g_i

An oracle is called as `oracle(agent, draw, x, y, carried)` and returns an `Estimate`. `draw` gives
the losses for a purpose: the exact ones in deterministic algorithms, a fresh mini-batch in
stochastic ones. What an oracle carries from one outer iteration to the next starts as `init(x, y)`;
called with None for it, the oracle starts cold.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Scalar

from .descent import Gradient, Tracker, tracked_descent
from .local import Local, Rp, Rq
from .network import Agent, Draw
from .steps import Step, at, check_count, check_step


class Estimate(NamedTuple):
    """What an oracle returns."""

    h: Rp
    """Agent i's hypergradient estimate."""
    carried: Any
    """What the next outer iteration may start from."""
    residual: Scalar
    """How far the oracle is from having solved its linear system, relative to its right-hand side.

    AID's is the true residual of agent i's system. JHIP's is ‖Y_i‖ / ‖J_i‖: Y_i tracks the network's
    mean residual, which no agent knows. NaN where nothing of the kind is known.
    """


class Oracle(eqx.Module):
    """A way to estimate the hypergradient at agent i."""

    @abstractmethod
    def init(self, x: Rp, y: Rq) -> Any:
        """What the first outer iteration starts from."""

    @abstractmethod
    def __call__(self, agent: Agent, draw: Draw, x: Rp, y: Rq, carried: Any) -> Estimate:
        """Agent i's estimate at (x, y)."""


class AID(Oracle):
    """Approximate implicit differentiation, for homogeneous agents: H_i and J_i in place of H and J.

        v ← N steps of conjugate gradients on  H_i v = ∇_y f_i  from the v carried,
        h = ∇_x f_i − J_i v

    Sends nothing, and needs products with vectors only. Where agents differ, h is not an estimate
    of ∇Φ: the local H_i⁻¹ is not the mean's inverse, and the error does not shrink.
    """

    iterations: int = eqx.field(static=True, default=20)
    """N."""

    def __check_init__(self):
        check_count("AID's iterations", self.iterations)

    def init(self, x: Rp, y: Rq) -> Rq:
        return jnp.zeros_like(y)

    def __call__(self, agent: Agent, draw: Draw, x: Rp, y: Rq, carried: Any) -> Estimate:
        local = draw("hypergradient")
        b, H = local.fy(x, y), local.curvature(x, y)
        tolerance = float(jnp.finfo(b.dtype).eps)  # N steps, fewer only where rounding is all that is left
        start = jnp.zeros_like(y) if carried is None else carried
        v, _ = jax.scipy.sparse.linalg.cg(H, b, x0=start, tol=tolerance, maxiter=self.iterations)
        return Estimate(local.fx(x, y) - local.gxy(x, y, v), v, relative(H(v) - b, b))


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
    terms: int = eqx.field(static=True, default=10)
    """M."""

    def __check_init__(self):
        check_step("Neumann's step", self.step)
        check_count("Neumann's terms", self.terms)

    def init(self, x: Rp, y: Rq) -> None:
        return None

    def __call__(self, agent: Agent, draw: Draw, x: Rp, y: Rq, carried: Any) -> Estimate:
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
    iterations: int = eqx.field(static=True, default=20)
    """N."""

    def __check_init__(self):
        check_step("JHIP's step", self.step)
        check_count("JHIP's iterations", self.iterations)

    def init(self, x: Rp, y: Rq) -> tuple[Array, Tracker]:
        zeros = jnp.zeros((y.size, x.size), x.dtype)
        return zeros, Tracker.zeros(zeros)

    def __call__(self, agent: Agent, draw: Draw, x: Rp, y: Rq, carried: Any) -> Estimate:
        Z, tracker = (jnp.zeros((y.size, x.size), x.dtype), None) if carried is None else carried
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


def relative(residual: Array, right_hand_side: Array) -> Scalar:
    """‖residual‖ / ‖right-hand side‖, and 0 where both vanish."""
    scale = jnp.linalg.norm(right_hand_side)
    return jnp.linalg.norm(residual) / jnp.where(scale > 0, scale, 1)
