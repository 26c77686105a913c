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
from .loop import Data, End, Loop, Own
from .parts import Parts
from .topology import Topology
from .wire import Communication, read


class Setup(eqx.Module):
    """Everything that stays the same along a run, as one argument of the compiled program."""

    loop: Loop
    index: jax.Array
    """Every agent's number i."""
    data: Data
    backend: Backend
    functions: dict[str, Any]
    """Fingerprints of the user's functions. Being strings, they are static: where one has come to compute
    something else, the program is compiled again."""

    @staticmethod
    def of(algorithm, problem, topology, metrics, seed, backend, limit) -> Setup:
        n, (x, y) = topology.n, problem.flat_start()
        simulated = Simulated()
        loop = Loop(
            jax.tree.map(_number_as_array, algorithm),
            metrics,
            problem.losses(n),
            jnp.asarray(seed, jnp.uint32),
            jnp.asarray(limit, x.dtype),
            problem.sample,
            simulated.exchange(topology),
            tuple(simulated.axes(n)),
        )
        data = Data(problem.upper_data, problem.lower_data)
        functions = fingerprint.of_functions(loop, n, data, (x, y))  # the same on every backend
        index, data = backend.place((jnp.array(backend.agents(n)), data))
        return Setup(backend.share(_over(loop, backend, topology)), index, data, backend, functions)

    def of_each_agent(self, **changing: Any) -> dict[str, Any]:
        """What each agent has of its own, with an agents' axis in front."""
        return {"index": self.index, "data": self.data, **changing}

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
def start(setup: Setup, x: jax.Array | Parts, y: jax.Array) -> Own:
    """Every agent before the first outer iteration."""

    def begin(loop: Loop, **own: Any) -> tuple[Own, None]:
        return loop.start(**own), None

    return setup.at_every_agent(begin, setup.of_each_agent(x=x, y=y))[0]


@eqx.filter_jit
def advance(setup: Setup, own: Own, **common: Any) -> tuple[Own, tuple[dict[str, jax.Array], End]]:
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


def _number_as_array(leaf: Any) -> Any:
    return jnp.asarray(float(leaf)) if isinstance(leaf, (int, float)) else leaf
