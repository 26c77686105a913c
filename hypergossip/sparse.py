"""Rows of which only the non-zeros are stored: bag-of-words documents, one-hot features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import sparse


class SparseRows(eqx.Module):
    """m rows of Rᵈ by their non-zeros, in the order of the rows; `hg.stack_ragged` makes it of SciPy's matrices.

    In a loss, `rows @ y` is the product with y of shape (d,) or (d, ...). It costs a gather over the
    non-zeros, and its derivative a scatter; nothing of size m × d is ever made. Padding, up to the
    agent with the most rows and non-zeros, has value 0.
    """

    value: Float[Array, "*agents nonzeros"]
    column: Int[Array, "*agents nonzeros"]
    row: Int[Array, "*agents nonzeros"]
    start: Int[Array, "*agents rows_and_end"]
    """Where each row's non-zeros begin, and where the last one's end."""
    columns: int = eqx.field(static=True)
    """d."""
    longest: tuple[int, ...] = eqx.field(static=True)
    """The most non-zeros that 1, 2, … m different rows of one agent can have."""

    @property
    def rows(self) -> int:
        """m."""
        return self.start.shape[-1] - 1

    def __matmul__(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """(m, ...): row by row, Σ value · y[column]."""
        products = self.value.reshape(-1, *[1] * (y.ndim - 1)) * y[self.column]
        return jax.ops.segment_sum(products, self.row, self.rows, indices_are_sorted=True)

    def of_different(self, chosen: Int[Array, " chosen"]) -> SparseRows:
        """The chosen rows, which must differ from each other: the room for their non-zeros is that of the longest."""
        room = self.longest[len(chosen) - 1]
        lengths = self.start[chosen + 1] - self.start[chosen]
        ends = jnp.concatenate([jnp.zeros(1, lengths.dtype), jnp.cumsum(lengths)])
        slot = jnp.arange(room, dtype=ends.dtype)
        row = jnp.minimum(jnp.searchsorted(ends, slot, side="right") - 1, len(chosen) - 1).astype(self.row.dtype)
        source = jnp.minimum(self.start[chosen[row]] + slot - ends[row], self.value.size - 1)
        value = jnp.where(slot < ends[-1], self.value[source], 0)
        return SparseRows(value, self.column[source], row, ends, self.columns, self.longest[: len(chosen)])

    def padded(self, rows: int, extents: Sequence[Sequence[Any]]) -> SparseRows:
        """All agents' rows, padded to more rows and to the furthest of several (non-zeros, longest)."""
        nonzeros = max(count for count, _ in extents)
        longest = np.max([[*one, *[one[-1]] * (rows - len(one))] for _, one in extents], axis=0)
        more = ((0, 0), (0, nonzeros - self.value.shape[1]))
        start = jnp.pad(self.start, ((0, 0), (0, rows - self.rows)), mode="edge")
        is_padding = jnp.arange(nonzeros, dtype=start.dtype)[None, :] >= start[:, -1:]
        row = jnp.where(is_padding, jnp.asarray(rows - 1, self.row.dtype), jnp.pad(self.row, more))
        return SparseRows(
            jnp.pad(self.value, more), jnp.pad(self.column, more), row, start, self.columns, tuple(longest.tolist())
        )


def stack_sparse(agents: Sequence[sparse.csr_array]) -> SparseRows:
    """One matrix per agent, padded to the most rows and the most non-zeros."""
    rows, nonzeros = max(a.shape[0] for a in agents), max(1, *(a.nnz for a in agents))
    value, column, row, start = (
        np.stack(arrays) for arrays in zip(*(_padded(a, rows, nonzeros) for a in agents), strict=True)
    )
    lengths = np.sort(np.diff(start, axis=1), axis=1)[:, ::-1]
    longest = np.cumsum(lengths, axis=1).max(axis=0)
    leaves = (jnp.asarray(array) for array in (value, column, row, start))
    return SparseRows(*leaves, columns=agents[0].shape[1], longest=tuple(np.maximum(longest, 1).tolist()))


def as_rows(matrix: sparse.sparray | sparse.spmatrix) -> sparse.csr_array:
    """In the form that is stacked: rows in order, no entry twice, floating-point values."""
    rows = sparse.csr_array(matrix, copy=True)
    rows.sum_duplicates()
    if not np.issubdtype(rows.dtype, np.floating):
        rows = rows.astype(np.dtype(jnp.result_type(float)))
    return rows


def _padded(matrix: sparse.csr_array, rows: int, nonzeros: int) -> tuple[np.ndarray, ...]:
    """(value, column, row, start); padding lies behind the last row, with value 0."""
    more = nonzeros - matrix.nnz
    of_row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    value = np.pad(matrix.data, (0, more))
    column = np.pad(matrix.indices, (0, more)).astype(np.int32)
    row = np.pad(of_row, (0, more), constant_values=rows - 1).astype(np.int32)
    start = np.pad(matrix.indptr, (0, rows - matrix.shape[0]), mode="edge").astype(np.int32)
    return value, column, row, start
