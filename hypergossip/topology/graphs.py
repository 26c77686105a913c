"""The usual networks, and those that a user brings: networkx graphs and weight matrices."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import scipy.sparse as sp

from .weights import Topology, allowance, from_sparse


def ring(n: int, self_weight: float | None = None) -> Topology:
    """n agents in a circle: w_ii = `self_weight` (1/3 if not given), the rest to the two neighbours in halves."""
    n = _count(n)
    if self_weight is None:
        self_weight = 1 / 3
    elif not 0 < _number("self_weight", self_weight) < 1:
        raise ValueError(f"self_weight = {self_weight:g}; expected a number strictly between 0 and 1.")
    if n == 1:
        return from_sparse(np.eye(1), "ring")
    i = np.arange(n)
    side = np.full(n, (1 - self_weight) / 2)
    values = np.concatenate([np.full(n, self_weight), side, side])
    columns = np.concatenate([i, (i + 1) % n, (i - 1) % n])
    return from_sparse(sp.coo_array((values, (np.tile(i, 3), columns)), shape=(n, n)), "ring")


def path(n: int) -> Topology:
    """n agents in a line, Metropolis weights."""
    return from_graph(nx.path_graph(_count(n)), name="path")


def complete(n: int) -> Topology:
    """Everyone talks to everyone: w_ij = 1/n, ρ = 0."""
    n = _count(n)
    return from_sparse(np.full((n, n), 1 / n), "complete")


def star(n: int) -> Topology:
    """Agent 0 talks to all others, they to agent 0 alone; Metropolis weights."""
    return from_graph(nx.star_graph(_count(n) - 1), name="star")


def torus(rows: int, columns: int | None = None) -> Topology:
    """A grid of agents, closed in both directions; Metropolis weights.

    `torus(4, 5)` has 4 rows of 5; `torus(20)` is 20 agents on the grid nearest to a square.
    """
    if columns is None:
        n = _count(rows)
        rows = max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0)
        columns = n // rows
    grid = nx.grid_2d_graph(_count(rows, "The number of rows"), _count(columns, "The number of columns"), periodic=True)
    grid.remove_edges_from(list(nx.selfloop_edges(grid)))
    return from_graph(grid, name="torus")


def hypercube(n: int) -> Topology:
    """n = 2^d agents; i and j talk where their binary digits differ in one place. Metropolis weights."""
    n = _count(n)
    if n & (n - 1):
        raise ValueError(f"A hypercube of {n} agents does not exist; expected a power of two: 1, 2, 4, 8, …")
    return _from_offsets(n, [(i, i ^ (1 << bit)) for i in range(n) for bit in range(n.bit_length() - 1)], "hypercube")


def exponential(n: int) -> Topology:
    """Agent i talks to i ± 1, i ± 2, i ± 4, … around the circle; Metropolis weights."""
    n = _count(n)
    hops = [1 << bit for bit in range((n - 1).bit_length())]
    return _from_offsets(n, [(i, (i + hop) % n) for i in range(n) for hop in hops], "exponential")


def erdos_renyi(n: int, p: float, seed: int = 0) -> Topology:
    """Every pair talks with probability p; Metropolis weights.

    Disconnected draws are drawn again from the same stream: the result is a connected graph, and
    the same one for the same n, p and seed.
    """
    n = _count(n)
    _count(seed, "seed", least=0)
    if not 0 < _number("p", p) <= 1:
        raise ValueError(f"p = {p:g}; expected a probability in (0, 1].")
    stream = np.random.default_rng(seed)
    for _ in range(100):
        graph = nx.fast_gnp_random_graph(n, p, seed=int(stream.integers(2**31)))
        if nx.is_connected(graph):
            return from_graph(graph, name="erdos_renyi")
    raise ValueError(
        f"100 draws of an Erdős–Rényi graph with {n} agents and p = {p:g} were all disconnected; "
        f"use p well above ln(n)/n = {math.log(n) / n:.3g}."
    )


def from_graph(graph: nx.Graph, weights: str = "metropolis", name: str = "graph") -> Topology:
    """A topology from an undirected networkx graph.

    Where the nodes are 0 … n−1, node i becomes agent i; else they become agents in the order in which the
    graph lists them. `topology.nodes` tells.

    `weights` is a rule, with d_i the degree of agent i,

    - ``"metropolis"``       w_ij = 1 / (1 + max(d_i, d_j)),
    - ``"max_degree"``       w_ij = 1 / (1 + max_k d_k),
    - ``"lazy_metropolis"``  (I + W_metropolis) / 2,

    or the name of an attribute that every edge carries. What a row lacks to 1 is the self-weight.
    """
    if not isinstance(graph, nx.Graph):
        raise TypeError(f"Got a {type(graph).__name__}; expected a networkx Graph. hg.from_weights takes a matrix.")
    if graph.is_directed() or graph.is_multigraph():
        raise ValueError("Got a directed graph or a multigraph; expected an undirected networkx.Graph.")
    nodes = tuple(range(len(graph)) if set(graph) == set(range(len(graph))) else graph)
    index = {node: i for i, node in enumerate(nodes)}
    pairs = [(index[a], index[b]) for a, b in graph.edges if a != b]
    i, j = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    values = _edge_weights(graph, weights, i, j)
    return _symmetric(nodes, i, j, values, name)


def from_weights(W) -> Topology:
    """A topology from a mixing matrix: a nested list, an array, or a scipy sparse matrix."""
    try:
        matrix = sp.csr_array(W) if sp.issparse(W) else np.asarray(W)
    except ValueError as error:
        raise ValueError(
            f"W is no matrix: {error} Expected rows of one length, row i the weights of agent i."
        ) from None
    if not np.issubdtype(matrix.dtype, np.number) or np.issubdtype(matrix.dtype, np.complexfloating):
        raise TypeError(f"W has entries of type {matrix.dtype}; expected real numbers, row i the weights of agent i.")
    if matrix.ndim != 2:
        raise ValueError(f"W has {matrix.ndim} axes; expected a square matrix, one row and one column per agent.")
    _check_precision(matrix)
    return from_sparse(matrix, "weights")


def _check_precision(W: np.ndarray | sp.csr_array) -> None:
    """Refuses rows that miss 1 by no more than the rounding of their type, which is not the one in use here."""
    if W.shape[0] != W.shape[1] or W.dtype not in (np.float16, np.float32):
        return
    missing = np.abs(W.astype(np.float64).sum(axis=1) - 1).max(initial=0)
    if allowance(W.shape[0]) < missing <= W.shape[0] * float(np.finfo(W.dtype).eps):
        raise ValueError(
            f"W has dtype {W.dtype}, in whose rounding its rows miss 1 by up to {missing:.1e}; expected sums of 1 to "
            "within the rounding of float64. Compute the weights in float64."
        )


def _edge_weights(graph: nx.Graph, rule: str, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    if not isinstance(rule, str):
        raise TypeError(f"weights is {rule!r}; expected the name of a rule or of an edge attribute.")
    degree = np.bincount(np.concatenate([i, j]), minlength=len(graph))
    if rule == "metropolis":
        return 1 / (1.0 + np.maximum(degree[i], degree[j]))
    if rule == "lazy_metropolis":
        return 0.5 / (1.0 + np.maximum(degree[i], degree[j]))
    if rule == "max_degree":
        return np.full(len(i), 1 / (1.0 + degree.max(initial=0)))
    given = [data.get(rule) for a, b, data in graph.edges(data=True) if a != b]
    if not given or any(value is None for value in given):
        raise ValueError(
            f"Unknown weight rule {rule!r}; possible are 'metropolis', 'max_degree', 'lazy_metropolis', "
            f"or the name of an attribute that every edge carries ({sum(v is not None for v in given)} of {len(given)} "
            f"edges carry {rule!r})."
        )
    try:
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"The edges' attribute {rule!r} is no weight: {error}; expected a number on every edge."
        ) from None


def _symmetric(nodes: tuple, i: np.ndarray, j: np.ndarray, values: np.ndarray, name: str) -> Topology:
    """W from one weight per undirected edge; the diagonal takes what the rows lack to 1."""
    n = len(nodes)
    off = sp.coo_array((np.tile(values, 2), (np.concatenate([i, j]), np.concatenate([j, i]))), shape=(n, n)).tocsr()
    return from_sparse(off + sp.diags_array(1 - off.sum(axis=1)), name, nodes)


def _from_offsets(n: int, pairs: list[tuple[int, int]], name: str) -> Topology:
    graph = nx.empty_graph(n)
    graph.add_edges_from((i, j) for i, j in pairs if i != j)
    return from_graph(graph, name=name)


def _count(n: int | np.integer, what: str = "The number of agents", least: int = 1) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"{what} is {n!r}; expected an integer.")
    if n < least:
        raise ValueError(f"{what} is {n}; expected at least {least}.")
    return int(n)


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} is {value!r}; expected a number.")
    return float(value)
