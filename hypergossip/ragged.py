"""Agents with different amounts of data, dense or sparse, and how rows are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from scipy import sparse

from .sparse import SparseRows, as_rows, stack_sparse


class Ragged(eqx.Module):
    """Padded data of agents with different numbers of examples; made by `hg.stack_ragged`.

    In a loss, `batch.data` holds the rows, `batch.weight` one weight per row, and `batch.count`
    the agent's own number of examples m_i. With all data, weights are 1 for examples and 0 for
    padding; for b drawn rows they are m_i / b. So `sum(weight * row_loss)` is the agent's sum, and
    `sum(weight * row_loss) / count` its mean; drawn rows give an unbiased estimate of either.
    """

    data: PyTree[Array]
    weight: Float[Array, ...]
    count: Int[Array, ...]


def stack_ragged(agents: Sequence[PyTree]) -> Ragged:
    """Stacks one pytree per agent, leaves (examples_i, ...), into leaves (agents, most examples, ...).

    A sparse matrix of SciPy, (examples_i, d), becomes an `hg.SparseRows`: `batch.data["feature"] @ y` in a loss.
    """
    if not isinstance(agents, (list, tuple)) or not agents:
        raise ValueError(
            f"stack_ragged got {type(agents).__name__} of {_length(agents)}; expected a list, one pytree per agent."
        )
    trees = [_arrays(i, agent) for i, agent in enumerate(agents)]
    counts = [_examples(i, tree) for i, tree in enumerate(trees)]
    first = trees[0]
    for i, tree in enumerate(trees):
        if jax.tree.structure(tree) != jax.tree.structure(first):
            raise ValueError(
                f"Agent {i}'s pytree is {jax.tree.structure(tree)}, agent 0's {jax.tree.structure(first)}; "
                "expected the same structure at every agent."
            )
        if (shapes := _row_shapes(tree)) != _row_shapes(first):
            raise ValueError(
                f"Agent {i}'s rows have shapes {shapes}, agent 0's {_row_shapes(first)}; expected the same."
            )
    most = max(counts)
    data = jax.tree.map(lambda *leaves: _stacked(leaves, most), *trees)
    count = np.array(counts)
    weight = (np.arange(most)[None, :] < count[:, None]).astype(_float_of(data))
    return Ragged(data, jnp.asarray(weight), jnp.asarray(count))


def extent(data: PyTree) -> dict[str, Any]:
    """How far agents with different amounts of data were padded; of other data nothing."""
    if not isinstance(data, Ragged):
        return {}
    sparse_rows = [leaf for leaf in _leaves(data.data) if _is_sparse(leaf)]
    return {"rows": data.weight.shape[1], "sparse": [[leaf.value.shape[1], leaf.longest] for leaf in sparse_rows]}


def padded_alike(data: PyTree, extents: Sequence[dict[str, Any]]) -> PyTree:
    """The data padded as far as the furthest `extent` of all processes, as if they were stacked in one."""
    alike = [one for one in extents if len(one.get("sparse", ())) == len(extent(data).get("sparse", ()))]
    same = all(one == extents[0] for one in extents)
    if not isinstance(data, Ragged) or len(alike) < len(extents) or same:
        return data
    rows = max(one["rows"] for one in alike)
    of_sparse = iter(zip(*(one["sparse"] for one in alike), strict=True))

    def padded(leaf: Array | SparseRows) -> Array | SparseRows:
        return leaf.padded(rows, next(of_sparse)) if isinstance(leaf, SparseRows) else _with_rows(leaf, rows)

    grown = jax.tree.map(padded, data.data, is_leaf=_is_sparse)
    return Ragged(grown, _with_rows(data.weight, rows), data.count)


def _with_rows(leaf: Array, rows: int) -> Array:
    """Rows of zeros behind every agent's."""
    return jnp.pad(leaf, [(0, 0), (0, rows - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))


def sample_rows(key: PRNGKeyArray, data: PyTree, batch_size: int) -> PyTree:
    """`batch_size` rows of one agent's data, uniformly; padding is never drawn.

    With replacement; where rows are sparse without, so that the room which a batch needs is that
    of its longest rows (an agent with fewer rows than the batch size gives all of them).
    """
    if not isinstance(data, Ragged):
        rows = jax.random.randint(key, (batch_size,), 0, jax.tree.leaves(data)[0].shape[0])
        return jax.tree.map(lambda leaf: leaf[rows], data)
    count = data.count.astype(data.weight.dtype)
    if not drawn_without_replacement(data):
        rows = jax.random.randint(key, (batch_size,), 0, data.count)
        weight = jnp.full((batch_size,), 1 / batch_size, data.weight.dtype) * count
    else:
        order = jnp.where(data.weight > 0, jax.random.uniform(key, data.weight.shape), jnp.inf)
        rows = jnp.argsort(order)[:batch_size]
        weight = data.weight[rows] * count / jnp.minimum(count, jnp.asarray(len(rows), count.dtype))
    taken = [leaf.of_different(rows) if _is_sparse(leaf) else leaf[rows] for leaf in _leaves(data.data)]
    structure = jax.tree.structure(data.data, is_leaf=_is_sparse)
    return Ragged(jax.tree.unflatten(structure, taken), weight, data.count)


def drawn_without_replacement(data: PyTree) -> bool:
    """Whether `sample_rows` draws different rows of such data."""
    return any(map(_is_sparse, _leaves(data)))


def _is_sparse(leaf: object) -> bool:
    return isinstance(leaf, SparseRows)


def _leaves(tree: PyTree) -> list:
    return jax.tree.leaves(tree, is_leaf=_is_sparse)


def _arrays(agent: int, tree: PyTree) -> PyTree:
    arrays = jax.tree.map(lambda leaf: as_rows(leaf) if sparse.issparse(leaf) else np.asarray(leaf), tree)
    for leaf in jax.tree.leaves(arrays):
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool):
            raise TypeError(f"Agent {agent} has a leaf of type {leaf.dtype}; expected numbers.")
    return arrays


def _float_of(data: PyTree[Array]) -> np.dtype:
    """The floating-point type of the data, for the weights to go along with; JAX's own where there is none."""
    floats = [leaf.dtype for leaf in jax.tree.leaves(data) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return np.result_type(*floats) if floats else jnp.result_type(float)


def _examples(agent: int, tree: PyTree) -> int:
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    if len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
        raise ValueError(
            f"Agent {agent}'s leaves have shapes {shapes}; expected one number of examples in front of all."
        )
    if shapes[0][0] == 0:
        raise ValueError(f"Agent {agent} has no examples; expected at least one.")
    return shapes[0][0]


def _row_shapes(tree: PyTree) -> list[tuple]:
    return [(*leaf.shape[1:], "sparse") if sparse.issparse(leaf) else leaf.shape[1:] for leaf in jax.tree.leaves(tree)]


def _stacked(leaves: Sequence[np.ndarray | sparse.csr_array], length: int) -> Array | SparseRows:
    """All agents' leaves, padded to the same number of rows."""
    if sparse.issparse(leaves[0]):
        return stack_sparse(leaves)
    padded = [np.pad(leaf, [(0, length - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)) for leaf in leaves]
    return jnp.asarray(np.stack(padded))


def _length(agents: object) -> str:
    return f"length {len(agents)}" if isinstance(agents, (list, tuple)) else "unknown length"
