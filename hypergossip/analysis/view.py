"""A problem as an analysis sees it: every agent's losses side by side, and their mean as one machine's losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

from ..local import Local, Loss, Losses, Rq
from ..parts import Layout, Rp, is_variable
from ..problem import Problem
from ..starts import of_one_agent


class Point(NamedTuple):
    """Where constants are estimated: x is the long vector that holds all agents' own parts, if there are any."""

    name: str
    x: Rp
    y: Rq


class _MeanOverAgents(eqx.Module):
    """mean_i loss(x, y, batch_i): a loss of the data of all agents, on the long x."""

    loss: Loss = eqx.field(static=True)
    own: tuple[bool, ...] = eqx.field(static=True)
    n: int = eqx.field(static=True)

    def __call__(self, x: PyTree, y: PyTree, data: PyTree) -> Scalar:
        return jnp.mean(_every_agent(lambda x, batch: self.loss(x, y, batch), x, self.own, self.n, data))


class View(eqx.Module):
    """The agents' `Local`s, stacked, and the `Local` of their mean."""

    agents: Local
    """Every agent's losses, an agents' axis in front of the data; x_i is one flat vector, own parts included."""
    pooled: Local
    """f = mean_i f_i and g = mean_i g_i on the long x, as one machine with all data would have them."""
    own: tuple[bool, ...] = eqx.field(static=True)
    """Of x's leaves: whether each agent has its own, with an agents' axis in front."""
    n: int = eqx.field(static=True)

    @staticmethod
    def of(problem: Problem) -> View:
        one_x, one_y = of_one_agent((problem.x0, problem.y0))
        of_one, of_y, of_long = map(_layout, (one_x, one_y, _long(problem, problem.x0)))
        data = problem.upper_data, problem.lower_data
        agents = Losses(problem.upper, problem.lower, of_one, of_y, problem.n)
        mean_upper, mean_lower = (
            _MeanOverAgents(loss, problem.own, problem.n) for loss in (problem.upper, problem.lower)
        )
        pooled = Losses(mean_upper, mean_lower, of_long, of_y, 1)
        return View(Local(agents, *data), Local(pooled, *data), problem.own, problem.n)

    def each(self, x: Rp) -> Float[Array, "n width"]:
        """The long x as every agent's own flat x_i. Its transpose gathers the agents' gradients again."""
        tree = self.pooled.losses.x.unravel(x)
        return _every_agent(self.agents.losses.x.ravel, tree, self.own, self.n)

    def mean_gradient(self, x: Rp, gradients: Float[Array, "n width"]) -> Rp:
        """The agents' ∇_{x_i} as the gradient of their mean on the long x."""
        (gathered,) = jax.linear_transpose(self.each, x)(gradients)
        return gathered / self.n

    def start(self, problem: Problem) -> Point:
        """(x̄_0, ȳ_0)."""
        _, y = problem.flat_start()
        return Point("start", self.pooled.losses.x.ravel(_long(problem, problem.x0)), jnp.mean(y, axis=0))

    def point(self, name: str, x: PyTree, y: PyTree) -> Point:
        return Point(name, self.pooled.losses.x.ravel(x), self.pooled.losses.y.ravel(y))


def _every_agent(function: Callable[..., Array], x: PyTree, own: tuple[bool, ...], n: int, *each: PyTree) -> Array:
    """`function` of every agent's own x_i out of the long x, and of what is each agent's."""
    leaves, structure = jax.tree.flatten(x)

    def of_one(mine: list[Array], *each: PyTree) -> Array:
        parts = iter(mine)
        together = [next(parts) if is_own else leaf for leaf, is_own in zip(leaves, own, strict=True)]
        return function(jax.tree.unflatten(structure, together), *each)

    mine = [leaf for leaf, is_own in zip(leaves, own, strict=True) if is_own]
    return jax.vmap(of_one, axis_size=n)(mine, *each)


def _long(problem: Problem, x: PyTree) -> PyTree:
    """The mean of what the agents share, and all of what they own."""
    leaves, structure = jax.tree.flatten(x)
    together = [
        leaf if own or not is_variable(leaf) else jnp.mean(leaf, axis=0)
        for leaf, own in zip(leaves, problem.own, strict=True)
    ]
    return jax.tree.unflatten(structure, together)


def _layout(tree: PyTree) -> Layout:
    """All leaves in one vector; the same object for trees alike, so that what is compiled for one serves the other."""
    leaves, structure = jax.tree.flatten(tree)
    return _layout_of(structure, tuple((leaf.shape, leaf.dtype) if is_variable(leaf) else leaf for leaf in leaves))


@lru_cache(maxsize=64)
def _layout_of(structure: Any, leaves: tuple[tuple[tuple[int, ...], Any] | Callable, ...]) -> Layout:
    tree = jax.tree.unflatten(structure, [leaf if callable(leaf) else jnp.zeros(*leaf) for leaf in leaves])
    return Layout.of(tree, (False,) * len(leaves))
