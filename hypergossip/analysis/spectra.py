"""Extreme eigenvalues of symmetric operators that are known by their products: exact where small, Lanczos elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla
from jaxtyping import Array, Float

from ..topology import Topology

_DENSE_BLOCK = 128
_DENSE_WHOLE = 1200
_FINE, _FINE_IN_SINGLE, _COARSE = 1e-5, 1e-4, 1e-2
"""Of residuals, relative to the eigenvalue."""
_FIGURES = 100.0
"""Times its error that an eigenvalue must be large to count as known."""
_RESTARTS = 60


class Extremes(NamedTuple):
    """The two ends of a spectrum."""

    low: float
    high: float
    low_converged: bool
    """False where Lanczos stopped short, or where the end is so near 0 that its relative error is unknown."""
    high_converged: bool

    @property
    def converged(self) -> bool:
        """Both ends."""
        return self.low_converged and self.high_converged

    @property
    def largest(self) -> float:
        """The largest |eigenvalue|."""
        return max(abs(self.low), abs(self.high))

    @property
    def largest_converged(self) -> bool:
        return self.high_converged if abs(self.high) >= abs(self.low) else self.low_converged


@dataclass(frozen=True)
class Blocks:
    """`count` symmetric matrices of one size, block-diagonal, given by their products with one vector each."""

    apply: Callable[[Float[Array, "n m"]], Float[Array, "n m"]]
    count: int
    size: int
    dtype: np.dtype

    @property
    def small(self) -> bool:
        return self.size <= _DENSE_BLOCK

    def matrices(self) -> Float[np.ndarray, "n m m"]:
        """All blocks, by `size` products."""
        columns = [
            self.apply(jnp.broadcast_to(e, (self.count, self.size))) for e in jnp.eye(self.size, dtype=self.dtype)
        ]
        blocks = np.stack([np.asarray(column, np.float64) for column in columns], axis=2)
        return (blocks + blocks.swapaxes(1, 2)) / 2

    def product(self, v: np.ndarray) -> np.ndarray:
        """The product with one long vector, in double precision outside."""
        block = jnp.asarray(v.reshape(self.count, self.size), self.dtype)
        return np.asarray(self.apply(block), np.float64).ravel()

    def extremes(self) -> Extremes:
        """The smallest and largest eigenvalue over all blocks."""
        if self.small:
            matrices = self.matrices()
            if not np.isfinite(matrices).all():
                return Extremes(np.nan, np.nan, False, False)
            found = np.linalg.eigvalsh(matrices)
            return Extremes(float(found.min()), float(found.max()), True, True)
        return self._extremes_by_products()

    def _extremes_by_products(self) -> Extremes:
        """The end that is largest in size first; then the other as an end of a shifted matrix that is large, too.

        Lanczos converges relative to what it looks for, and never to a 0. So the other end has an
        absolute error of about tolerance · size, and where it is no larger than some of these, no figure.
        """
        end, found = _lanczos(self)
        size, sign = abs(end), math.copysign(1.0, end)
        distance, found_beyond = _lanczos(self, lambda v: size * v - sign * self.product(v))
        other = sign * (size - distance)
        known = found_beyond and (size == 0 or abs(other) >= _FIGURES * _fine(self.dtype) * size)
        known = known and found
        return Extremes(other, end, known, found) if sign > 0 else Extremes(end, other, found, known)


def _fine(dtype: np.dtype) -> float:
    return _FINE if dtype == np.float64 else _FINE_IN_SINGLE


def largest_against_gossip(blocks: Blocks, topology: Topology, power: int) -> tuple[float, bool]:
    """λ_max of (I + W)^(−power) D, D the block-diagonal operator; and whether Lanczos converged.

    It is the largest λ of  D y = λ (I + W)^power y, with W acting on blocks.
    """
    if power == 0:
        ends = blocks.extremes()
        return ends.high, ends.high_converged
    length = blocks.count * blocks.size
    if blocks.small and length <= _DENSE_WHOLE:
        mixing = np.linalg.matrix_power(np.eye(blocks.count) + topology.W, power)
        weight = np.kron(mixing, np.eye(blocks.size))
        whole = scipy.linalg.block_diag(*blocks.matrices())
        top = scipy.linalg.eigh(whole, weight, eigvals_only=True, subset_by_index=[length - 1, length - 1])
        return float(top[0]), True
    return _lanczos(blocks, mixing=_mixing(blocks, topology, power))


def _mixing(blocks: Blocks, topology: Topology, power: int) -> dict[str, spla.LinearOperator]:
    """(I + W)^power and its inverse on long vectors, as Lanczos wants them."""
    together = (topology.sparse + scipy.sparse.eye_array(topology.n)).tocsc()
    factors = spla.splu(together)

    def on_blocks(step: Callable[[np.ndarray], np.ndarray]) -> spla.LinearOperator:
        def repeated(v: np.ndarray) -> np.ndarray:
            block = v.reshape(blocks.count, blocks.size)
            for _ in range(power):
                block = step(block)
            return block.ravel()

        length = blocks.count * blocks.size
        return spla.LinearOperator((length, length), matvec=repeated, dtype=np.float64)

    return {"M": on_blocks(lambda block: together @ block), "Minv": on_blocks(factors.solve)}


def _lanczos(
    blocks: Blocks,
    product: Callable[[np.ndarray], np.ndarray] | None = None,
    mixing: dict[str, spla.LinearOperator] | None = None,
) -> tuple[float, bool]:
    """The eigenvalue that is largest in size (with mixing: largest), and whether it is as fine as the type allows."""
    length = blocks.count * blocks.size
    product = product or blocks.product
    operator = spla.LinearOperator((length, length), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(length)
    image = product(start)
    if not np.isfinite(image).all():
        return float("nan"), False
    if not image.any():  # the zero matrix, as a derivative can be at a point: Lanczos has no direction to go
        return 0.0, True
    fine = _fine(blocks.dtype)
    for tolerance in (fine, _COARSE):
        try:
            found = spla.eigsh(
                operator,
                1,
                which="LA" if mixing else "LM",
                v0=start,
                tol=tolerance,
                maxiter=_RESTARTS,
                ncv=min(length, 64),
                return_eigenvectors=False,
                **(mixing or {}),
            )
            return float(found[0]), tolerance == fine
        except spla.ArpackNoConvergence:
            continue
        except spla.ArpackError:  # products that are not finite, say
            break
    return float("nan"), False
