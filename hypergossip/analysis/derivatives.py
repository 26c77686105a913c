"""Products with the second and third derivatives of all agents' losses, compiled once for every problem."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from ..exact import Answer, Solver
from ..local import Local, Rq
from ..parts import Rp
from .spectra import Blocks
from .view import Point, View

Product = Callable[[Local, Array, Array, Array], Array]


def lower_hessians(view: View, point: Point) -> Blocks:
    """∇²_y g_i of every agent."""
    return _blocks(_lower_hessian, view, point, point.y.size)


def upper_hessians(view: View, point: Point) -> Blocks:
    """∇² f_i in (x, y) of every agent."""
    return _blocks(_upper_hessian, view, point, _width(view, point) + point.y.size)


def upper_curvatures(view: View, point: Point) -> Blocks:
    """∇²_x f_i of every agent: how its hypergradient changes with its own x alone."""
    return _blocks(_upper_curvature, view, point, _width(view, point))


def squared_jacobians(view: View, point: Point) -> Blocks:
    """J_iᵀJ_i of every agent."""
    return _blocks(_squared_jacobian, view, point, point.y.size)


def mean_hessian(view: View, point: Point) -> Blocks:
    """H = mean_i ∇²_y g_i."""
    return Blocks(partial(_mean_hessian, view, point.x, point.y), 1, point.y.size, _dtype(point))


def mean_upper_curvature(view: View, point: Point) -> Blocks:
    """mean_i ∇²_x f_i, on the long x."""
    return Blocks(partial(_mean_upper_curvature, view, point.x, point.y), 1, point.x.size, _dtype(point))


@eqx.filter_jit
def largest_gradient(view: View, x: Rp, y: Rq) -> Scalar:
    """max_i ‖∇f_i‖, in (x, y) together."""

    def norm(local: Local, x: Array) -> Scalar:
        gradient = jax.grad(local.f, argnums=(0, 1))(x, y)
        return jnp.sqrt(sum(jnp.vdot(part, part) for part in gradient))

    return jnp.max(jax.vmap(norm)(view.agents, view.each(x)))


@eqx.filter_jit
def third_derivative(view: View, x: Rp, y: Rq, directions: Float[Array, "starts n m"], iterations: int) -> Scalar:
    """The largest ‖D³g_i[d, d, ·]‖ seen along  d ← ±D³g_i[d, d, ·] / ‖·‖, over all agents and starts: from below.

    D³g_i is symmetric, so that its norm is attained with all its arguments equal.
    """

    def one(local: Local, x: Array, d: Array) -> Scalar:
        z = jnp.concatenate([x, y])

        def along(z: Array, d: Array) -> Array:
            return jax.jvp(lambda z: jax.grad(_joint(local.g, x.size))(z), (z,), (d,))[1]

        def climb(_: Any, carry: tuple[Array, Scalar]) -> tuple[Array, Scalar]:
            d, best = carry
            t = jax.jvp(lambda z: along(z, d), (z,), (d,))[1]
            size = jnp.linalg.norm(t)
            shift = jnp.where(size > 0, t / jnp.where(size > 0, size, 1), 0)
            d = shift + 0.5 * jnp.where(jnp.vdot(t, d) < 0, -d, d)  # a shift keeps the iteration from alternating
            return d / jnp.linalg.norm(d), jnp.maximum(best, size)

        first = d / jnp.linalg.norm(d), jnp.zeros((), d.dtype)
        return jax.lax.fori_loop(0, iterations, climb, first)[1]

    per_agent = jax.vmap(one, in_axes=(0, 0, 0))
    return jnp.max(jax.vmap(lambda d: per_agent(view.agents, view.each(x), d))(directions))


class Exact(NamedTuple):
    """y*(x) and ∇Φ(x), by exact solves over all agents."""

    lower: Answer
    gradient: Answer


def exact_at(view: View, solver: Solver, x: Rp, start: Rq) -> Exact:
    """The exact answers at one x, from the guess `start` at y*(x)."""
    return jax.tree.map(lambda leaf: leaf[0], exact_at_two(view, solver, jnp.stack([x, x]), start))


@eqx.filter_jit
def exact_at_two(view: View, solver: Solver, xs: Float[Array, "2 p"], start: Rq) -> Exact:
    """The exact answers at two x, one after the other: a form for one point would be compiled beside it."""

    def solve(x: Rp) -> Exact:
        lower = solver.lower(view.pooled, _identity, x, start)
        return Exact(lower, solver.hypergradient_at(view.pooled, _identity, x, lower))

    return jax.lax.map(solve, xs)


@eqx.filter_jit
def surrogate(view: View, solver: Solver, x: Rp, start: Rq) -> tuple[Rp, Array]:
    """mean_i [∇_x f_i − J_i H_i⁻¹ ∇_y f_i] at (x, y_i*(x)), every agent for itself; whether all solves converged."""

    def alone(own: tuple[Local, Array]) -> Answer:
        return solver.hypergradient(own[0], _identity, own[1], start)

    answers = jax.lax.map(alone, (view.agents, view.each(x)))  # one by one: none waits for the slowest agent's solves
    return view.mean_gradient(x, answers.value), jnp.all(answers.converged)


def _identity(v: Array) -> Array:
    return v


def _joint(function: Callable[[Array, Array], Scalar], p: int) -> Callable[[Array], Scalar]:
    """A function of (x, y) as one of z = (x, y)."""
    return lambda z: function(z[:p], z[p:])


def _dtype(point: Point) -> np.dtype:
    return np.dtype(point.y.dtype)


def _width(view: View, point: Point) -> int:
    return jax.eval_shape(view.each, point.x).shape[1]


def _blocks(product: Product, view: View, point: Point, size: int) -> Blocks:
    return Blocks(partial(_at_every_agent, product, view, point.x, point.y), view.n, size, _dtype(point))


@eqx.filter_jit
def _at_every_agent(product: Product, view: View, x: Rp, y: Rq, v: Float[Array, "n m"]) -> Float[Array, "n m"]:
    return jax.vmap(product, in_axes=(0, 0, None, 0))(view.agents, view.each(x), y, v)


def _lower_hessian(local: Local, x: Array, y: Array, v: Array) -> Array:
    return local.gyy(x, y, v)


def _upper_hessian(local: Local, x: Array, y: Array, v: Array) -> Array:
    z = jnp.concatenate([x, y])
    return jax.jvp(jax.grad(_joint(local.f, x.size)), (z,), (v,))[1]


def _upper_curvature(local: Local, x: Array, y: Array, v: Array) -> Array:
    return jax.jvp(lambda x: jax.grad(local.f)(x, y), (x,), (v,))[1]


def _squared_jacobian(local: Local, x: Array, y: Array, v: Array) -> Array:
    return jax.jvp(lambda x: local.gy(x, y), (x,), (local.gxy(x, y, v),))[1]


@eqx.filter_jit
def _mean_hessian(view: View, x: Rp, y: Rq, v: Float[Array, "1 q"]) -> Float[Array, "1 q"]:
    return view.pooled.gyy(x, y, v[0])[None]


@eqx.filter_jit
def _mean_upper_curvature(view: View, x: Rp, y: Rq, v: Float[Array, "1 p"]) -> Float[Array, "1 p"]:
    return jax.jvp(lambda x: jax.grad(view.pooled.f)(x, y), (x,), (v[0],))[1][None]
