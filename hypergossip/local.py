"""One agent's f_i and g_i: their derivatives as the papers use them, on flat vectors x ∈ Rᵖ and y ∈ R^q."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

from .parts import Layout, Parts, Rp, Upper

Loss = Callable[[PyTree, PyTree, PyTree], Scalar]
"""`loss(x, y, batch)`: a user's f_i or g_i, on pytrees."""

Rq = Float[Array, " q"]
"""y ∈ R^q and what lives beside it, as a flat vector."""


class Losses(eqx.Module):
    """The two loss functions on flat vectors: the user's pytrees are ravelled once, here."""

    upper: Loss = eqx.field(static=True)
    lower: Loss = eqx.field(static=True)
    x: Layout
    y: Layout
    n: int = eqx.field(static=True)
    """The number of agents."""

    def f(self, x: Upper, y: Rq, batch: PyTree) -> Scalar:
        return self.upper(self.x.unravel(x), self.y.unravel(y), batch)

    def g(self, x: Upper, y: Rq, batch: PyTree) -> Scalar:
        return self.lower(self.x.unravel(x), self.y.unravel(y), batch)

    def of_mean(self, gradient: Upper) -> Upper:
        """Agent i's ∇_x as its share in the gradient of the mean over the agents, which its own part enters once."""
        return Parts(gradient.shared, gradient.own / self.n) if isinstance(gradient, Parts) else gradient


class Local(eqx.Module):
    """f_i and g_i seen through one batch: all of agent i's data (`agent.exact`), or rows drawn from them.

    Second derivatives are products with vectors; a matrix is made only where an oracle asks for
    one by name (`hessian`, `jacobian`).
    """

    losses: Losses
    upper_batch: PyTree
    lower_batch: PyTree

    def __call__(self, *purpose: object) -> Local:
        """A draw that always gives the same: what stochastic code sees when the data are exact."""
        return self

    def f(self, x: Upper, y: Rq) -> Scalar:
        """f_i(x, y)."""
        return self.losses.f(x, y, self.upper_batch)

    def g(self, x: Upper, y: Rq) -> Scalar:
        """g_i(x, y)."""
        return self.losses.g(x, y, self.lower_batch)

    def fx(self, x: Upper, y: Rq) -> Upper:
        """∇_x f_i."""
        return self.losses.of_mean(jax.grad(self.f, argnums=0)(x, y))

    def fy(self, x: Upper, y: Rq) -> Rq:
        """∇_y f_i."""
        return jax.grad(self.f, argnums=1)(x, y)

    def gy(self, x: Upper, y: Rq) -> Rq:
        """∇_y g_i."""
        return jax.grad(self.g, argnums=1)(x, y)

    def gyy(self, x: Upper, y: Rq, v: Rq) -> Rq:
        """∇²_y g_i · v, the Hessian H_i times a vector."""
        return jax.jvp(lambda y: self.gy(x, y), (y,), (v,))[1]

    def gxy(self, x: Upper, y: Rq, v: Rq) -> Upper:
        """∇²_xy g_i · v, the Jacobian J_i ∈ Rᵖˣ^q times a vector."""
        return self.losses.of_mean(jax.grad(lambda x: jnp.vdot(self.gy(x, y), v))(x))

    def curvature(self, x: Upper, y: Rq) -> Callable[[Array], Array]:
        """v ↦ H_i v, linearised once at (x, y): for many products at one point."""
        return jax.linearize(lambda y: self.gy(x, y), y)[1]

    def hessian(self, x: Upper, y: Rq) -> Float[Array, "q q"]:
        """H_i as a matrix, by q products."""
        return jax.jacfwd(self.gy, argnums=1)(x, y)

    def jacobian(self, x: Rp, y: Rq) -> Float[Array, "p q"]:
        """J_i as a matrix, by min(p, q) products."""
        derivative = jax.jacfwd if x.size <= y.size else jax.jacrev
        return derivative(self.gy, argnums=0)(x, y).T
