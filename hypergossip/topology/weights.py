"""A mixing matrix W as the agents' network needs it: sparse, checked, and nothing of size n × n unless asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from .rounds import partial_permutations
from .spectrum import second_eigenvalue, smallest_eigenvalue

_ROUNDING = 1e-12
"""What a row of W may miss 1 by, for each agent."""


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """n agents, who talks to whom, and with which weight: `mix(v)_i = Σ_j w_ij v_j`.

    Made by `hg.ring`, `hg.from_graph`, `hg.from_weights` and their like. W is symmetric, doubly
    stochastic and non-negative, its graph connected, and ρ = max(|λ₂|, |λₙ|) < 1 (the paper's
    Assumption on W); anything else is refused here, on the host.
    """

    sparse: sp.csr_array
    """W, with entries for edges and self-weights only."""
    name: str = "weights"
    nodes: tuple | None = None
    """The nodes of the graph that the topology was made of: agent i was `nodes[i]`. None where there was none."""

    def __post_init__(self):
        if not isinstance(self.sparse, sp.csr_array):
            raise TypeError(
                f"Topology got a {type(self.sparse).__name__}; expected a scipy csr_array. hg.from_weights takes a "
                "matrix of any kind, hg.from_graph a networkx graph."
            )
        check(self.sparse)

    @property
    def n(self) -> int:
        """The number of agents."""
        return self.sparse.shape[0]

    @property
    def W(self) -> Float[np.ndarray, "n n"]:
        """The mixing matrix as a dense array, made anew on every request."""
        return self.sparse.toarray()

    @cached_property
    def edges(self) -> np.ndarray:
        """All ordered pairs (receiver i, sender j), i ≠ j, of agents that talk: shape (2·edges, 2)."""
        coo = self.sparse.tocoo()
        off = coo.row != coo.col
        return np.stack([coo.row[off], coo.col[off]], axis=1)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """For every agent the agents it talks to, itself left out."""
        rows = np.split(self.sparse.indices, self.sparse.indptr[1:-1])
        return tuple(tuple(int(j) for j in row if j != i) for i, row in enumerate(rows))

    @cached_property
    def degree(self) -> int:
        """The largest number of neighbours that any agent has."""
        return int(np.bincount(self.edges[:, 0], minlength=self.n).max())

    @cached_property
    def rho(self) -> float:
        """ρ = max(|λ₂|, |λₙ|): what one gossip step leaves of a disagreement."""
        return second_eigenvalue(self.sparse)

    @cached_property
    def smallest(self) -> float:
        """λₙ, the smallest eigenvalue: it sets how long a step of gossip descent may be."""
        return smallest_eigenvalue(self.sparse)

    @property
    def gap(self) -> float:
        """The spectral gap 1 − ρ."""
        return 1.0 - self.rho

    @cached_property
    def rounds(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The edges, both directions, as the fewest partial permutations: (sender, receiver) pairs.

        Within a round every agent sends at most once and receives at most once.
        """
        return partial_permutations(self.edges[:, ::-1], self.n)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of W; equal exactly where W is."""
        parts = (self.sparse.indptr.astype(np.int64), self.sparse.indices.astype(np.int64), self.sparse.data)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Topology({self.name}: {self.n} agents, {len(self.edges) // 2} edges, rho = {self.rho:.4g})"


def from_sparse(weights, name: str, nodes: tuple | None = None) -> Topology:
    """A topology from any matrix, brought into one canonical form.

    Weights of rounding's size are zeros: 1 − Σ_j w_ij leaves them, of either sign, where an agent
    keeps nothing for itself.
    """
    csr = sp.csr_array(weights, dtype=np.float64)
    csr.sum_duplicates()
    csr.data[np.abs(csr.data) < _ROUNDING] = 0
    csr.eliminate_zeros()
    return Topology(csr, name, nodes)


def allowance(n: int) -> float:
    """What a row of n agents' weights may miss 1 by."""
    return _ROUNDING * n


def check(w: sp.csr_array) -> None:
    """Refuses a W that is no mixing matrix, and says which property it lacks and where."""
    if w.ndim != 2 or w.shape[0] != w.shape[1]:
        raise ValueError(f"W has shape {w.shape}; expected a square matrix, one row and one column per agent.")
    n = w.shape[0]
    if n == 0:
        raise ValueError("W has no rows; expected at least one agent.")
    entries = w.tocoo()
    if not np.isfinite(entries.data).all():
        i, j = _first(entries, ~np.isfinite(entries.data))
        raise ValueError(f"W[{i}, {j}] is {w[i, j]}; expected finite weights.")
    if (entries.data < 0).any():
        i, j = _first(entries, entries.data < 0)
        raise ValueError(f"W[{i}, {j}] = {w[i, j]:g} is negative; expected weights ≥ 0.")
    _check_symmetry_and_sums(w, allowance(n))
    _check_mixing(w)


def _check_symmetry_and_sums(w: sp.csr_array, tolerance: float) -> None:
    off = abs(w - w.T).tocoo()
    symmetric = off.nnz == 0 or off.data.max() <= tolerance
    for what, sums in (("row", w.sum(axis=1)), ("column", w.sum(axis=0))):
        worst = int(np.argmax(np.abs(sums - 1)))
        if abs(sums[worst] - 1) > tolerance:
            hint = "" if symmetric else " W is not symmetric either."
            raise ValueError(
                f"W is not doubly stochastic: {what} {worst} sums to {sums[worst]:.12g}; expected 1.{hint} "
                "Weights of 1/degree do not do this on an irregular graph; hg.from_graph(graph, "
                'weights="metropolis") makes weights that do.'
            )
    if not symmetric:
        i, j = _first(off, off.data == off.data.max())
        raise ValueError(f"W is not symmetric: W[{i}, {j}] = {w[i, j]:g} but W[{j}, {i}] = {w[j, i]:g}.")


def _check_mixing(w: sp.csr_array) -> None:
    """ρ < 1, by structure alone: λ₂ < 1 exactly on connected graphs, λₙ > −1 exactly on aperiodic ones."""
    if w.shape[0] == 1:
        return
    graph = nx.from_scipy_sparse_array(w)
    if not nx.is_connected(graph):
        parts = list(nx.connected_components(graph))
        raise ValueError(
            f"The graph is disconnected: it falls into {len(parts)} parts, the first of {len(parts[0])} agents "
            f"(agent {min(parts[0])} among them) of {w.shape[0]}. Expected a path between any two agents."
        )
    if nx.is_bipartite(graph):
        raise ValueError(
            "The graph is periodic: it is bipartite and no agent keeps a weight for itself, so that λₙ = −1, ρ = 1 "
            'and gossip swings for ever. Give agents a self-weight; weights="lazy_metropolis" does.'
        )


def _first(entries: sp.coo_array, where: np.ndarray) -> tuple[int, int]:
    k = int(np.flatnonzero(where)[0])
    return int(entries.row[k]), int(entries.col[k])
