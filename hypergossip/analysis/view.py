"""A problem as an analysis sees it: every agent's losses side by side, and their mean as one machine's losses."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

from ..local import Local, Loss, Losses, Rq
from ..parts import Layout, Rp
from ..problem import Problem


class Point(NamedTuple):
    """Where constants are estimated: x is the long vector that holds all agents' own parts, if there are any."""

    name: str
    x: Rp
    y: Rq


class _MeanOverAgents(eqx.Module):
    """mean_i loss(x, y, batch_i): a loss of the data of all agents, on the long x."""

    loss: Loss = eqx.field(static=True)
    axes: Any = eqx.field(static=True)
    """Of x's leaves: 0 where each agent has its own, None where all share one."""

    def __call__(self, x: PyTree, y: PyTree, data: PyTree) -> Scalar:
        return jnp.mean(jax.vmap(self.loss, in_axes=(self.axes, None, 0))(x, y, data))


class View(eqx.Module):
    """The agents' `Local`s, stacked, and the `Local` of their mean."""

    agents: Local
    """Every agent's losses, an agents' axis in front of the data; x_i is one flat vector, own parts included."""
    pooled: Local
    """f = mean_i f_i and g = mean_i g_i on the long x, as one machine with all data would have them."""
    axes: Any = eqx.field(static=True)
    n: int = eqx.field(static=True)

    @staticmethod
    def of(problem: Problem) -> View:
        one_x, one_y = jax.tree.map(lambda leaf: leaf[0], (problem.x0, problem.y0))
        of_one, of_y, of_long = map(_layout, (one_x, one_y, _long(problem, problem.x0)))
        axes = jax.tree.unflatten(of_one.structure, [0 if own else None for own in problem.own])
        data = problem.upper_data, problem.lower_data
        agents = Losses(problem.upper, problem.lower, of_one, of_y, problem.n)
        mean_upper, mean_lower = (_MeanOverAgents(loss, axes) for loss in (problem.upper, problem.lower))
        pooled = Losses(mean_upper, mean_lower, of_long, of_y, 1)
        return View(Local(agents, *data), Local(pooled, *data), axes, problem.n)

    def each(self, x: Rp) -> Float[Array, "n width"]:
        """The long x as every agent's own flat x_i. Its transpose gathers the agents' gradients again."""
        tree = self.pooled.losses.x.unravel(x)
        return jax.vmap(self.agents.losses.x.ravel, in_axes=(self.axes,), axis_size=self.n)(tree)

    def mean_gradient(self, x: Rp, gradients: Float[Array, "n width"]) -> Rp:
        """The agents' ∇_{x_i} as the gradient of their mean on the long x."""
        (gathered,) = jax.linear_transpose(self.each, x)(gradients)
        return gathered / self.n

    def start(self, problem: Problem) -> Point:
        """(x̄_0, ȳ_0)."""
        y = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), problem.y0)
        return self.point("start", _long(problem, problem.x0), y)

    def point(self, name: str, x: PyTree, y: PyTree) -> Point:
        return Point(name, self.pooled.losses.x.ravel(x), self.pooled.losses.y.ravel(y))


def _long(problem: Problem, x: PyTree) -> PyTree:
    """The mean of what the agents share, and all of what they own."""
    leaves, structure = jax.tree.flatten(x)
    together = [leaf if own else jnp.mean(leaf, axis=0) for leaf, own in zip(leaves, problem.own, strict=True)]
    return jax.tree.unflatten(structure, together)


def _layout(tree: PyTree) -> Layout:
    """All leaves in one vector; the same object for trees alike, so that what is compiled for one serves the other."""
    leaves, structure = jax.tree.flatten(tree)
    return _layout_of(structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))


@lru_cache(maxsize=64)
def _layout_of(structure: Any, leaves: tuple[tuple[tuple[int, ...], Any], ...]) -> Layout:
    tree = jax.tree.unflatten(structure, [jnp.zeros(shape, dtype) for shape, dtype in leaves])
    return Layout.of(tree, (False,) * len(leaves))
