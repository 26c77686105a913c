"""A run as compiled programs, which stay the same along it and serve every run that computes the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from . import fingerprint
from .backends import Backend, Simulated
from .loop import Common, Data, Loop, Own
from .parts import Parts
from .topology import Topology
from .wire import Communication, read


class Setup(eqx.Module):
    """Everything that stays the same along a run, as one argument of the compiled program."""

    loop: Loop
    data: Data
    backend: Backend
    functions: dict[str, Any]
    """Fingerprints of the user's functions. Being strings, they are static: where one has come to compute
    something else, the program is compiled again."""

    @staticmethod
    def of(algorithm, problem, topology, metrics, seed, backend, growth_limit) -> Setup:
        x, y = problem.flat_start()
        limit = jnp.asarray(growth_limit, x.dtype) * _largest((x, y))
        simulated = Simulated()
        loop = Loop(
            jax.tree.map(_number_as_array, algorithm),
            metrics,
            problem.losses(),
            jax.random.key(seed),
            limit,
            problem.sample,
            simulated.exchange(topology),
            tuple(simulated.axes(topology.n)),
        )
        data = Data(problem.upper_data, problem.lower_data)
        functions = fingerprint.of_functions(loop, data, (x, y))  # the same on every backend
        return Setup(_over(loop, backend, topology), backend.place(data), backend, functions)

    def of_each_agent(self, **changing: Any) -> dict[str, Any]:
        """What each agent has of its own, with an agents' axis in front."""
        n = jax.tree.leaves(self.data)[0].shape[0]
        return {"index": jnp.arange(n), "data": self.data, **changing}

    def at_every_agent(self, method: Callable[..., tuple[Any, Any]], own: dict[str, Any], **common: Any) -> Any:
        """`method(loop, **own, **common) -> (own, common)`, one agent's program, made n of by the backend."""
        arrays, static = eqx.partition(self.loop, eqx.is_array)

        def program(own: dict[str, Any], shared: tuple[Loop, dict[str, Any]]) -> tuple[Any, Any]:
            return method(eqx.combine(shared[0], static), **own, **shared[1])

        return self.backend.parallel(program)(own, (arrays, common))


def _over(loop: Loop, backend: Backend, topology: Topology) -> Loop:
    """The loop with a backend's gossip step and axes."""
    return dataclasses.replace(loop, exchange=backend.exchange(topology), axes=tuple(backend.axes(topology.n)))


@eqx.filter_jit
def start(setup: Setup, x: jax.Array | Parts, y: jax.Array) -> tuple[Own, Common]:
    """Every agent before the first outer iteration."""
    return setup.at_every_agent(Loop.start, setup.of_each_agent(x=x, y=y))


@eqx.filter_jit
def advance(setup: Setup, own: Own, **common: Any) -> tuple[Own, tuple[Common, dict[str, jax.Array]]]:
    """Every agent through a chunk."""
    return setup.at_every_agent(Loop.advance, setup.of_each_agent(own=own), **common)


def read_wire(setup: Setup, own: Own, topology: Topology) -> Communication:
    """One agent's outer iteration, traced on one agent's shapes, and what it sends."""
    first = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), setup.of_each_agent(state=own.state)
    )
    arrays, static = eqx.partition(_over(setup.loop, Simulated(), topology), eqx.is_array)

    def outer_iteration(arrays: Loop, index: jax.Array, data: Data, state: Any) -> Any:
        loop = eqx.combine(arrays, static)
        return loop.algorithm.step(loop.agent(index, data, index), state)

    return read(outer_iteration, (arrays, first["index"], first["data"], first["state"]), topology)


def _largest(tree: Any) -> jax.Array:
    """The largest size of any number, or 1."""
    sizes = [jnp.abs(leaf).max() for leaf in jax.tree.leaves(tree) if leaf.size]
    return jnp.maximum(1, jnp.stack(sizes).max())


def _number_as_array(leaf: Any) -> Any:
    return jnp.asarray(float(leaf)) if isinstance(leaf, (int, float)) else leaf
