"""All agents on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from ..network import AXIS, Exchange
from ..topology import Topology
from .base import Backend

_DENSE_UP_TO = 8
_DENSE_ABOVE_DENSITY = 0.2
_SUMMED_UP_TO = 8


class Simulated(Backend):
    """All agents on one device: `vmap` over the agents' axis; `mix` is a product with W, dense or sparse."""

    def axes(self, n: int) -> dict[str, int]:
        return {AXIS: n}

    def exchange(self, topology: Topology) -> Exchange:
        return _gossip(topology)

    def parallel(self, program: Callable[..., PyTree]) -> Callable[..., PyTree]:
        return jax.vmap(program, in_axes=(0, None), out_axes=(0, None), axis_name=AXIS)

    def place(self, own: PyTree) -> PyTree:
        return own

    def here(self, own: PyTree) -> PyTree:
        return own

    def share(self, common: PyTree) -> PyTree:
        return common

    def agents(self, n: int) -> range:
        return range(n)

    def processes(self) -> tuple[int, ...]:
        return (jax.process_index(),)


@dataclass(frozen=True)
class _Dense:
    """v_i ↦ row i of W times the gathered block: one matrix product for all agents."""

    topology: Topology

    def __call__(self, v: Array) -> Array:
        row = jnp.asarray(self.topology.W, v.dtype)[lax.axis_index(AXIS)]
        return jnp.tensordot(row, lax.all_gather(v, AXIS), axes=1)


@dataclass(frozen=True)
class _Neighbours:
    """v_i ↦ a gather of the neighbours' rows, padded to the largest degree: for sparse, nearly regular graphs."""

    topology: Topology

    def __call__(self, v: Array) -> Array:
        columns, weights = _padded_rows(self.topology)
        i, block = lax.axis_index(AXIS), lax.all_gather(v, AXIS)
        columns, weights = jnp.asarray(columns)[i], jnp.asarray(weights, v.dtype)[i]
        if len(weights) > _SUMMED_UP_TO:
            return jnp.tensordot(weights, block[columns], axes=1)
        mixed = weights[0] * block[columns[0]]
        for c in range(1, len(weights)):  # written out, it fuses with what the algorithm does next
            mixed += weights[c] * block[columns[c]]
        return mixed


@dataclass(frozen=True)
class _Edges:
    """v_i ↦ a sum over edges: for sparse graphs with hubs, where padding would be as large as W."""

    topology: Topology

    def __call__(self, v: Array) -> Array:
        coo = self.topology.sparse.tocoo()
        block = lax.all_gather(v, AXIS)
        weights = jnp.asarray(coo.data, v.dtype).reshape(-1, *[1] * v.ndim)
        mixed = jax.ops.segment_sum(weights * block[coo.col], coo.row, self.topology.n, indices_are_sorted=True)
        return mixed[lax.axis_index(AXIS)]


def _gossip(topology: Topology) -> Exchange:
    n, entries, widest = topology.n, topology.sparse.nnz, topology.degree + 1
    if n <= _DENSE_UP_TO or entries > _DENSE_ABOVE_DENSITY * n * n:
        return _Dense(topology)
    return _Neighbours(topology) if widest * n <= 4 * entries else _Edges(topology)


def _padded_rows(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Columns and weights of every row of W, padded with weight 0 to the longest row."""
    w, widest = topology.sparse, topology.degree + 1
    columns = np.zeros((topology.n, widest), dtype=np.int32)
    weights = np.zeros((topology.n, widest))
    lengths = np.diff(w.indptr)
    filled = np.arange(widest)[None, :] < lengths[:, None]
    columns[filled], weights[filled] = w.indices, w.data
    return columns, weights
