"""Agents with different amounts of data, and how rows are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree


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
    """Stacks one pytree per agent, leaves (examples_i, ...), into leaves (agents, most examples, ...)."""
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
    data = jax.tree.map(lambda *leaves: jnp.asarray(np.stack([_pad(leaf, most) for leaf in leaves])), *trees)
    count = np.array(counts)
    weight = (np.arange(most)[None, :] < count[:, None]).astype(_float_of(data))
    return Ragged(data, jnp.asarray(weight), jnp.asarray(count))


def sample_rows(key: PRNGKeyArray, data: PyTree, batch_size: int) -> PyTree:
    """`batch_size` rows of one agent's data, uniformly with replacement; padding is never drawn."""
    if isinstance(data, Ragged):
        rows = jax.random.randint(key, (batch_size,), 0, data.count)
        weight = jnp.full((batch_size,), 1 / batch_size, data.weight.dtype) * data.count.astype(data.weight.dtype)
        return Ragged(jax.tree.map(lambda leaf: leaf[rows], data.data), weight, data.count)
    leaves = jax.tree.leaves(data)
    rows = jax.random.randint(key, (batch_size,), 0, leaves[0].shape[0])
    return jax.tree.map(lambda leaf: leaf[rows], data)


def _arrays(agent: int, tree: PyTree) -> PyTree[np.ndarray]:
    arrays = jax.tree.map(np.asarray, tree)
    for leaf in jax.tree.leaves(arrays):
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool):
            raise TypeError(f"Agent {agent} has a leaf of type {leaf.dtype}; expected numbers.")
    return arrays


def _float_of(data: PyTree[Array]) -> np.dtype:
    """The floating-point type of the data, for the weights to go along with; JAX's own where there is none."""
    floats = [leaf.dtype for leaf in jax.tree.leaves(data) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return np.result_type(*floats) if floats else jnp.result_type(float)


def _examples(agent: int, tree: PyTree[np.ndarray]) -> int:
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    if len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
        raise ValueError(
            f"Agent {agent}'s leaves have shapes {shapes}; expected one number of examples in front of all."
        )
    if shapes[0][0] == 0:
        raise ValueError(f"Agent {agent} has no examples; expected at least one.")
    return shapes[0][0]


def _row_shapes(tree: PyTree[np.ndarray]) -> list[tuple[int, ...]]:
    return [leaf.shape[1:] for leaf in jax.tree.leaves(tree)]


def _pad(leaf: np.ndarray, length: int) -> np.ndarray:
    return np.pad(leaf, [(0, length - len(leaf))] + [(0, 0)] * (leaf.ndim - 1))


def _length(agents: object) -> str:
    return f"length {len(agents)}" if isinstance(agents, (list, tuple)) else "unknown length"
