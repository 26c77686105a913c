"""Agents over devices: on the wire only what neighbours on different devices have to say to each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ..network import AXIS, Exchange
from ..topology import Topology
from ..topology.rounds import partial_permutations
from .base import Backend

_DEVICES = "devices"


class Distributed(Backend):
    """Agents over devices and processes: `shard_map` over the devices, `vmap` over the agents of each.

    Agents lie in blocks of equal size, in their order. `mix` is a product with the block's part of
    W, and one partial permutation of the devices for every round in which values cross from one to
    another. What an agent says to several neighbours on one device goes there once.

    In a run over several processes (`hypergossip launch`) every process has the agents of its own
    devices, `agents(n)`, gives their data to its `hg.Problem`, and gets their x and y.

    `devices`: all of this process, or of all processes that run together, if not given.
    """

    mesh: Mesh = eqx.field(static=True)

    def __init__(self, devices: Sequence[Any] | None = None):
        chosen = jax.devices() if devices is None else list(devices)
        if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
            raise TypeError(f"devices is {devices!r}; expected a list of JAX's devices, such as jax.devices()[:4].")
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"devices names a device twice: {devices!r}; expected different ones.")
        _check_processes([device.process_index for device in chosen])
        self.mesh = Mesh(np.array(chosen), (_DEVICES,))

    @property
    def devices(self) -> int:
        """How many."""
        return self.mesh.size

    def processes(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(device.process_index for device in self.mesh.devices))

    def agents(self, n: int) -> range:
        self.check(n)
        here = [device.process_index == jax.process_index() for device in self.mesh.devices]
        size, first = n // self.devices, here.index(True)
        return range(first * size, (first + sum(here)) * size)

    def check(self, n: int) -> None:
        if n % self.devices == 0:
            return
        processes = len(self.processes())
        each = self.devices // processes
        if processes > 1:
            fitting = [str(p) for p in range(1, n // each + 1) if n % (p * each) == 0]
            advice = f"They are those of {processes} processes; start one of {', '.join(fitting) or 'fewer devices'}."
        else:
            advice = (
                f"Choose devices: hg.Distributed(jax.devices()[:{max(d for d in range(1, each + 1) if n % d == 0)}])."
            )
        raise ValueError(
            f"There are {n} agents and {self.devices} devices; expected a multiple, as every device has as many "
            f"agents. {advice}"
        )

    def axes(self, n: int) -> dict[str, int]:
        return {AXIS: n // self.devices, _DEVICES: self.devices}

    def exchange(self, topology: Topology) -> Exchange:
        return _Crossing(topology, self.devices)

    def parallel(self, program: Callable[..., PyTree]) -> Callable[..., PyTree]:
        of_block = jax.vmap(program, in_axes=(0, None), out_axes=(0, None), axis_name=AXIS)
        specs = (PartitionSpec(_DEVICES), PartitionSpec())
        # Several agents on a device: the check of what varies over devices does not see through vmap.
        return jax.shard_map(of_block, mesh=self.mesh, in_specs=specs, out_specs=specs, check_vma=False)

    def place(self, own: PyTree) -> PyTree:
        def placed(leaf: Array) -> Array:
            n = len(leaf) // len(self.mesh.local_devices) * self.devices
            return jax.make_array_from_process_local_data(by_block, np.asarray(leaf), (n, *leaf.shape[1:]))

        by_block = NamedSharding(self.mesh, PartitionSpec(_DEVICES))
        return jax.tree.map(placed, own)

    def connect(self) -> None:
        # JAX's runtime on CPUs bears with processes that come late to an exchange, but not, by more than 30
        # seconds, to the first: that must not be the one behind the compilation of the run.
        if not self.mesh.is_multi_process:
            return
        ones, specs = self.place(jnp.ones(len(self.mesh.local_devices))), PartitionSpec(_DEVICES)
        total = jax.shard_map(
            lambda v: lax.psum(v, _DEVICES), mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec()
        )
        jax.block_until_ready(jax.jit(total)(ones))

    def here(self, own: PyTree) -> PyTree:
        def blocks(leaf: Array) -> Array:
            if not leaf.size:  # an empty array lies anywhere
                return leaf[: len(leaf) // self.devices * len(self.mesh.local_devices)]
            if leaf.is_fully_addressable:
                return leaf
            shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start)
            return jnp.asarray(np.concatenate([shard.data for shard in shards]))

        return jax.tree.map(blocks, own)

    def share(self, common: PyTree) -> PyTree:
        def shared(leaf: Array) -> Array:
            return jax.make_array_from_process_local_data(everywhere, np.asarray(leaf), leaf.shape)

        everywhere = NamedSharding(self.mesh, PartitionSpec())
        arrays, others = eqx.partition(common, eqx.is_array)
        return eqx.combine(jax.tree.map(shared, arrays), others)


def _check_processes(of_devices: list[int]) -> None:
    """Every process's devices stand next to each other, this one's among them."""
    if jax.process_index() not in of_devices:
        raise ValueError(
            f"None of the devices belongs to this process, {jax.process_index()}; expected some of every process."
        )
    changes = sum(one != other for one, other in pairwise(of_devices))
    if changes >= len(set(of_devices)):
        raise ValueError(
            f"The devices belong to the processes {of_devices}; expected those of one process next to each other."
        )


@dataclass(frozen=True)
class _Crossing:
    """v_i ↦ Σ_j w_ij v_j over a block's own agents, and then over what arrives, round by round."""

    topology: Topology
    devices: int

    def __call__(self, v: Array) -> Array:
        plan = _plan(self.topology, self.devices)
        block, device = lax.all_gather(v, AXIS), lax.axis_index(_DEVICES)
        i = device * len(block) + lax.axis_index(AXIS)
        mixed = jnp.tensordot(jnp.asarray(plan.inside, v.dtype)[i], block, axes=1)
        for r, pairs in enumerate(plan.pairs):
            spoken = block[jnp.asarray(plan.speaker)[r, device]]
            heard = lax.ppermute(spoken, _DEVICES, pairs)
            mixed += jnp.asarray(plan.weight, v.dtype)[r, i] * heard
        return mixed


class _Plan(NamedTuple):
    """A gossip step over blocks."""

    inside: np.ndarray
    """(n, agents per device): agent i's weights of its own block."""
    pairs: tuple[tuple[tuple[int, int], ...], ...]
    """For every round, (from, to) of the devices that talk."""
    speaker: np.ndarray
    """(rounds, devices): which agent of its block a device lets speak."""
    weight: np.ndarray
    """(rounds, n): agent i's weight of what its device hears; 0 where it is not a neighbour, or nothing is said."""


@lru_cache(maxsize=64)
def _plan(topology: Topology, devices: int) -> _Plan:
    n, w = topology.n, topology.sparse.tocsr()
    size = n // devices
    block = np.arange(n) // size
    inside = np.stack([w[[i], :][:, block == block[i]].toarray()[0] for i in range(n)])
    waiting: dict[tuple[int, int], deque[int]] = {}
    for j, to in sorted({(int(j), int(block[i])) for j, i in topology.edges if block[i] != block[j]}):
        waiting.setdefault((int(block[j]), to), deque()).append(j)
    crossings = np.array([pair for pair, speakers in waiting.items() for _ in speakers], int).reshape(-1, 2)
    pairs = partial_permutations(crossings, devices)
    speaker, weight = np.zeros((len(pairs), devices), np.int32), np.zeros((len(pairs), n))
    for r, talking in enumerate(pairs):
        for sender, receiver in talking:
            j, listeners = waiting[sender, receiver].popleft(), np.flatnonzero(block == receiver)
            speaker[r, sender] = j % size
            weight[r, listeners] = w[listeners, :][:, [j]].toarray()[:, 0]
    return _Plan(inside, pairs, speaker, weight)
