"""Three ways down a strongly convex function: alone, by gossip, by gossip with gradient tracking.

The lower level's inner loop and the JHIP oracle are both instances of these. All are agent i's program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from .network import Agent
from .parts import Upper
from .steps import Step, at

Gradient = Callable[[Int[Array, ""] | int, Array], Array]
"""(t, y) ↦ agent i's gradient at y; t says which sample a stochastic gradient uses."""


class Tracker(NamedTuple):
    """v_i, an estimate of the network's mean gradient, and agent i's gradient that it last took in.

    The mean of v over the agents is always the mean of their last gradients.
    """

    v: Upper | Array
    last: Upper | Array

    @staticmethod
    def zeros(like: Upper | Array) -> Tracker:
        """Nothing tracked yet: the first `track` gives v = gradient."""
        zeros = jax.tree.map(jnp.zeros_like, like)
        return Tracker(zeros, zeros)

    def track(self, agent: Agent, gradient: Upper | Array, name: str) -> Tracker:
        """v ← mix(v) + gradient − last."""
        return Tracker(agent.mix(self.v, name) + gradient - self.last, gradient)


def local_descent(gradient: Gradient, y: Array, step: Step, iterations: int) -> Array:
    """`iterations` times  y ← y − η_t ∇_i(y): no communication."""
    return lax.fori_loop(0, iterations, lambda t, y: y - at(step, t, y) * gradient(t, y), y)


def gossip_descent(agent: Agent, name: str, gradient: Gradient, y: Array, step: Step, iterations: int) -> Array:
    """`iterations` times  y ← mix(y) − η_t ∇_i(y)."""
    return lax.fori_loop(0, iterations, lambda t, y: agent.mix(y, name) - at(step, t, y) * gradient(t, y), y)


def tracked_descent(
    agent: Agent,
    names: tuple[str, str],
    gradient: Gradient,
    y: Array,
    start: Tracker | None,
    step: Step,
    iterations: int,
    constant: Array | float = 0.0,
) -> tuple[Array, Tracker]:
    """`iterations` times  y ← mix(y) − η_t v,  v ← mix(v) + ∇_i(y⁺) − ∇_i(y),  where ∇_i = `gradient` − `constant`.

    `start` is the tracker that an earlier call returned: it goes on, its first increment being the
    gradient here minus the one it last took in. Without one, v starts as agent i's gradient. What
    is constant in y and t cancels in all increments but that first one, and is left out of the loop.
    """
    y_name, v_name = names
    g = gradient(0, y)
    tracker = Tracker(g - constant, g) if start is None else start.track(agent, g - constant, v_name)

    def iteration(t: Int[Array, ""], carry: tuple[Array, Tracker]) -> tuple[Array, Tracker]:
        y, tracker = carry
        y = agent.mix(y, y_name) - at(step, t, y) * tracker.v
        return y, tracker.track(agent, gradient(t + 1, y), v_name)

    y, (v, last) = lax.fori_loop(0, iterations, iteration, (y, Tracker(tracker.v, g)))
    return y, Tracker(v, last - constant)
