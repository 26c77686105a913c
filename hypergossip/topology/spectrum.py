"""ρ and λₙ of a mixing matrix: dense for small networks, Lanczos for large ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

_DENSE_UP_TO = 512


def second_eigenvalue(w: sp.csr_array) -> float:
    """ρ = max(|λ₂|, |λₙ|) of a connected, aperiodic, doubly stochastic, symmetric W."""
    n = w.shape[0]
    if n == 1:
        return 0.0
    if n <= _DENSE_UP_TO:
        eigenvalues = np.linalg.eigvalsh(w.toarray())
        return float(max(abs(eigenvalues[0]), abs(eigenvalues[-2])))
    return float(np.sqrt(_second_largest_squared(w)))


def smallest_eigenvalue(w: sp.csr_array) -> float:
    """λₙ, which is above −1 for an aperiodic W."""
    if w.shape[0] <= _DENSE_UP_TO:
        return float(np.linalg.eigvalsh(w.toarray())[0])
    start = np.random.default_rng(0).standard_normal(w.shape[0])
    try:
        found = spla.eigsh(w, 1, which="SA", v0=start, ncv=64, tol=1e-10, return_eigenvectors=False)
    except spla.ArpackNoConvergence:  # W + I is positive definite: near λₙ its inverse is largest
        found = spla.eigsh(w.tocsc(), 1, sigma=-1 - 1e-9, v0=start, return_eigenvectors=False)
    return float(found[0])


def _second_largest_squared(w: sp.csr_array) -> float:
    """λ₂(W²) = ρ²: one end of one spectrum, where W itself has two ends to look at.

    Graphs that mix fast (a wide gap) yield to plain Lanczos; slow ones (rings, paths: eigenvalues
    crowd at 1) to shift-and-invert, whose sparse factors stay small exactly there.
    """
    squared = spla.LinearOperator(w.shape, matvec=lambda v: w @ (w @ v), dtype=w.dtype)
    start = np.random.default_rng(0).standard_normal(w.shape[0])  # a fixed start: the same ρ on every call
    try:
        pair = spla.eigsh(squared, 2, which="LA", v0=start, ncv=64, maxiter=10, tol=1e-13, return_eigenvectors=False)
    except spla.ArpackNoConvergence:
        pair = spla.eigsh((w @ w).tocsc(), 2, sigma=1 + 1e-9, v0=start, return_eigenvectors=False)
    return max(0.0, float(min(pair)))  # rounding can take ρ² = 0 below it
