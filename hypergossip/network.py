"""One agent's place in the network: its data, its random draws, and `mix`, the only door to the others.

An algorithm is handed an `Agent` and can reach nothing else. A metric is handed a `Witness`,
which can also average over all agents: evaluation, not part of any algorithm.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Scalar

from .local import Local
from .messages import noting
from .parts import Parts, Upper, on_shared, square
from .problem import Sample

AXIS = "agents"
MIX = "mix "

Draw = Callable[..., Local]
"""`draw(*purpose)`: the agent's losses on the rows drawn for this purpose; the exact `Local` is one too."""

Exchange = Callable[[Array], Array]
"""What a backend makes of a gossip step: v_i ↦ Σ_j w_ij v_j."""


class Agent(eqx.Module):
    """Agent i in outer iteration k: `exact`, `sample`, `mix`, and nothing else."""

    exact: Local
    """f_i and g_i on all of the agent's data."""
    k: Int[Array, ""]
    """The outer iteration, counted from 0."""
    seed: PRNGKeyArray
    """Addresses this agent's draws of this iteration; never part of a state."""
    draw_rows: Sample = eqx.field(static=True)
    exchange: Exchange = eqx.field(static=True)

    def sample(self, batch_size: int | None) -> Draw:
        """A fresh mini-batch for every purpose: `draw("inner", t)`.

        The same purpose in the same iteration gives the same rows, whoever asks and whenever.
        Without a batch size, all rows: the exact losses.
        """
        if batch_size is None:
            return self.exact
        return Batches(self, batch_size)

    def mix(self, v: PyTree[Array], name: str = "unnamed") -> PyTree[Array]:
        """Σ_j w_ij v_j: sends v to the neighbours, returns the weighted mean of theirs and one's own.

        `name` is the variable's, as it shows in `trace.communication`. Of an upper variable with
        own parts, only the shared one is sent.
        """
        return on_shared(_named(name, self.exchange), v)

    def random_key(self, *purpose: str | int | Array) -> PRNGKeyArray:
        """The key that belongs to a purpose in this iteration at this agent: addressed, not threaded."""
        key = self.seed
        for part in purpose:
            key = jax.random.fold_in(key, zlib.crc32(part.encode()) if isinstance(part, str) else part)
        return key


class Batches(eqx.Module):
    """Draws of `batch_size` rows, one for each purpose."""

    agent: Agent
    batch_size: int = eqx.field(static=True)

    def __call__(self, *purpose: str | int | Array) -> Local:
        upper_key, lower_key = jax.random.split(self.agent.random_key(*purpose))
        exact, rows = self.agent.exact, self.agent.draw_rows
        with noting("sample(key, data, batch_size)"):
            upper_batch = rows(upper_key, exact.upper_batch, self.batch_size)
            lower_batch = rows(lower_key, exact.lower_batch, self.batch_size)
        return Local(exact.losses, upper_batch, lower_batch)


@lru_cache(maxsize=256)
def _named(name: str, exchange: Exchange) -> Exchange:
    """The exchange as a call of its own in the traced program, under a name that `wire.py` finds there."""

    def mix(v: Array) -> Array:
        return exchange(v)

    mix.__name__ = mix.__qualname__ = f"{MIX}{name}"
    return jax.jit(mix)


class Witness(eqx.Module):
    """What a metric sees at agent i: its agent, its state, and means over all agents."""

    agent: Agent
    algorithm: Any
    """The algorithm that runs."""
    axes: tuple[str, ...] = eqx.field(static=True)
    """The named axes over which the agents lie."""
    state: Any
    """The algorithm's state at this agent after k outer iterations."""
    previous: Any = None
    """The same one iteration earlier, for the terms of running sums; None elsewhere."""

    @property
    def exact(self) -> Local:
        return self.agent.exact

    @property
    def x(self) -> PyTree:
        """x_i, as the problem's pytree."""
        return self.exact.losses.x.unravel(self.state.x)

    @property
    def y(self) -> PyTree:
        """y_i, as the problem's pytree."""
        return self.exact.losses.y.unravel(self.state.y)

    @property
    def mean_x(self) -> PyTree:
        """x̄ = mean_i x_i; where leaves are agent i's own, they are agent i's."""
        return self.exact.losses.x.unravel(self.mean(self.state.x))

    @property
    def mean_y(self) -> PyTree:
        """ȳ = mean_i y_i."""
        return self.exact.losses.y.unravel(self.mean(self.state.y))

    def mean(self, v: PyTree[Array]) -> PyTree[Array]:
        """mean_i v_i, known to every agent; own parts stay each agent's own."""
        return on_shared(lambda leaf: lax.pmean(leaf, self.axes), v)

    def norm(self, v: Upper) -> Scalar:
        """‖v‖ of a mean, the own parts of all agents in it."""
        if not isinstance(v, Parts):
            return jnp.sqrt(square(v))
        return jnp.sqrt(square(v.shared) + self.sum(square(v.own)))

    def sum(self, v: PyTree[Array]) -> PyTree[Array]:
        """Σ_i v_i, known to every agent."""
        return jax.tree.map(lambda leaf: lax.psum(leaf, self.axes), v)

    def max(self, v: PyTree[Array]) -> PyTree[Array]:
        """max_i v_i, known to every agent; NaN if any of them is."""

        def largest(leaf: Array) -> Array:  # between devices a maximum of NaN and a number can be either
            unknown = lax.psum(jnp.isnan(leaf).astype(jnp.int32), self.axes) > 0
            return jnp.where(unknown, jnp.nan, lax.pmax(jnp.where(jnp.isnan(leaf), -jnp.inf, leaf), self.axes))

        return jax.tree.map(largest, v)

    def min(self, v: PyTree[Int[Array, "..."]]) -> PyTree[Int[Array, "..."]]:
        """min_i v_i of whole numbers, known to every agent."""
        return jax.tree.map(lambda leaf: lax.pmin(leaf, self.axes), v)
