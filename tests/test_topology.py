"""Who talks to whom: mixing matrices, their spectrum, their rounds, and the three ways to gossip with them."""

import tracemalloc

import jax
import jax.numpy as jnp
import jaxtyping
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergossip as hg
from hypergossip.backends import simulated

RULES = ("metropolis", "max_degree", "lazy_metropolis")

TOPOLOGIES = {
    **{f"ring({n})": hg.ring(n) for n in (1, 2, 3, 4, 9)},
    "ring(8, 0.05)": hg.ring(8, self_weight=0.05),
    "ring(8, 0.95)": hg.ring(8, self_weight=0.95),
    **{f"path({n})": hg.path(n) for n in (1, 2, 7)},
    **{f"complete({n})": hg.complete(n) for n in (1, 2, 7)},
    **{f"star({n})": hg.star(n) for n in (1, 2, 8)},
    **{f"torus({n})": hg.torus(n) for n in (1, 2, 7, 20)},
    **{f"torus({a}, {b})": hg.torus(a, b) for a, b in ((2, 2), (1, 5), (3, 4))},
    **{f"hypercube({n})": hg.hypercube(n) for n in (1, 2, 16)},
    **{f"exponential({n})": hg.exponential(n) for n in (1, 2, 3, 8, 12)},
    "erdos_renyi(12, 0.3)": hg.erdos_renyi(12, 0.3),
    "erdos_renyi(5, 1.0)": hg.erdos_renyi(5, 1.0),
    **{f"wheel, {rule}": hg.from_graph(nx.wheel_graph(7), weights=rule) for rule in RULES},
    "from a nested list": hg.from_weights([[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]]),
    "from a sparse matrix": hg.from_weights(sp.coo_array(hg.ring(6).W)),
}
every_topology = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES.keys())


@st.composite
def connected_graphs(draw, most=14):
    """A random tree, and any further edges."""
    n = draw(st.integers(1, most))
    graph = nx.empty_graph(n)
    graph.add_edges_from((draw(st.integers(0, i - 1)), i) for i in range(1, n))
    agents = st.integers(0, n - 1)
    graph.add_edges_from(draw(st.lists(st.tuples(agents, agents), max_size=2 * n)))  # self-loops among them
    return graph


def assert_mixing_matrix(W):
    n = len(W)
    np.testing.assert_allclose(W, W.T, rtol=0, atol=1e-12 * n)
    np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=1e-12 * n)
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=0, atol=1e-12 * n)
    assert W.min() >= 0


def dense_rho(W):
    sizes = np.sort(np.abs(np.linalg.eigvalsh(W)))
    return sizes[-2] if len(W) > 1 else 0.0


def assert_partial_permutations_of_all_edges(topology):
    for messages in topology.rounds:
        senders, receivers = zip(*messages, strict=True)
        assert len(set(senders)) == len(senders)
        assert len(set(receivers)) == len(receivers)
    sent = [(receiver, sender) for messages in topology.rounds for sender, receiver in messages]
    assert sorted(sent) == sorted(map(tuple, topology.edges.tolist()))
    assert len(topology.rounds) == topology.degree


# Matrices


@every_topology
def test_every_constructor_gives_a_symmetric_doubly_stochastic_matrix(topology):
    assert_mixing_matrix(topology.W)


@every_topology
def test_rho_is_the_second_largest_absolute_eigenvalue(topology):
    assert topology.rho == pytest.approx(dense_rho(topology.W), abs=1e-13)
    assert topology.gap == 1 - topology.rho
    assert topology.rho < 1


@every_topology
def test_rounds_are_the_fewest_partial_permutations_that_carry_every_message(topology):
    assert_partial_permutations_of_all_edges(topology)


@given(connected_graphs(), st.sampled_from(RULES))
@settings(max_examples=60, deadline=None)
def test_every_rule_makes_a_mixing_matrix_of_any_connected_graph(graph, rule):
    topology = hg.from_graph(graph, weights=rule)
    W, degree = topology.W, np.array([len(set(graph[i]) - {i}) for i in graph])
    assert_mixing_matrix(W)
    assert topology.rho == pytest.approx(dense_rho(W), abs=1e-13)
    share = {"metropolis": 1, "max_degree": 1, "lazy_metropolis": 0.5}[rule]
    for i, j in graph.edges:
        if i != j:
            d = degree.max() if rule == "max_degree" else max(degree[i], degree[j])
            assert W[i, j] == pytest.approx(share / (1 + d), rel=1e-15)


@given(connected_graphs())
@settings(max_examples=60, deadline=None)
def test_neighbours_edges_and_degree_are_those_of_the_graph(graph):
    topology = hg.from_graph(graph)
    neighbours = [sorted(set(graph[i]) - {i}) for i in graph]
    assert [list(found) for found in topology.neighbours] == neighbours
    assert sorted(map(tuple, topology.edges.tolist())) == [(i, j) for i in graph for j in neighbours[i]]
    assert topology.degree == max(map(len, neighbours))


@given(connected_graphs())
@settings(max_examples=100, deadline=None)
def test_rounds_of_any_graph_are_as_few_as_its_largest_degree(graph):
    assert_partial_permutations_of_all_edges(hg.from_graph(graph))


def test_nodes_of_any_name_become_agents_in_the_graphs_order():
    graph = nx.Graph([("c", "a"), ("a", "b")])
    assert hg.from_graph(graph).neighbours == ((1,), (0, 2), (1,))


def test_the_self_weight_of_a_ring_is_what_was_asked_for():
    W = hg.ring(5, self_weight=0.4).W
    np.testing.assert_array_equal(np.diag(W), 0.4)
    np.testing.assert_array_equal(W[0, [1, 4]], 0.3)
    np.testing.assert_allclose(np.diag(hg.ring(5).W), 1 / 3, rtol=1e-15)


@pytest.mark.parametrize(
    ("topology", "graph"),
    [
        (hg.path(6), nx.path_graph(6)),
        (hg.star(6), nx.star_graph(5)),
        (hg.complete(6), nx.complete_graph(6)),
        (hg.ring(6), nx.cycle_graph(6)),
        (hg.torus(12), nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4, periodic=True))),
        (hg.torus(2, 5), nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 5, periodic=True))),
        (hg.hypercube(8), nx.hypercube_graph(3)),
        (hg.exponential(12), nx.circulant_graph(12, [1, 2, 4, 8])),
    ],
)
def test_constructors_make_the_graphs_that_networkx_knows_by_the_same_names(topology, graph):
    made = nx.Graph(topology.edges.tolist())
    assert nx.is_isomorphic(made, graph)


def test_a_random_graph_is_connected_and_the_same_for_the_same_seed():
    topology = hg.erdos_renyi(20, 0.15, seed=3)  # so sparse that most draws are disconnected
    assert topology == hg.erdos_renyi(20, 0.15, seed=3)
    assert hash(topology) == hash(hg.erdos_renyi(20, 0.15, seed=3))
    assert topology != hg.erdos_renyi(20, 0.15, seed=4)


def test_an_edge_attribute_serves_as_weight():
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, 0.25), (1, 2, 0.5)], weight="trust")
    np.testing.assert_array_equal(
        hg.from_graph(graph, weights="trust").W, [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    )


@pytest.mark.parametrize("degree", [6, 20])  # 1 − the sum of d weights 1/d is 1e-16 for one, −2e-16 for the other
def test_what_rounding_leaves_on_the_diagonal_is_no_self_weight(degree):
    complete = nx.complete_graph(degree + 1)
    nx.set_edge_attributes(complete, 1 / degree, "weight")
    np.testing.assert_array_equal(np.diag(hg.from_graph(complete, weights="weight").W), 0)
    bipartite = nx.complete_bipartite_graph(degree, degree)
    nx.set_edge_attributes(bipartite, 1 / degree, "weight")
    with pytest.raises(ValueError, match="periodic"):
        hg.from_graph(bipartite, weights="weight")


@pytest.mark.parametrize("make", [hg.ring, hg.path, hg.star, hg.complete, hg.torus, hg.hypercube, hg.exponential])
def test_numpy_integers_count_as_integers(make, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # which takes the annotation `int` to the letter
    assert make(np.int64(8)) == make(8)


# Large networks


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (hg.ring(10_000), 1 / 3 + 2 / 3 * np.cos(2 * np.pi / 10_000)),
        (hg.ring(10_000, self_weight=0.9), 0.9 + 0.1 * np.cos(2 * np.pi / 10_000)),
        (hg.star(1000), 1 - 1 / 1000),
        (hg.hypercube(1024), 1 - 2 / 11),
        (hg.torus(30, 40), (1 + 2 + 2 * np.cos(2 * np.pi / 40)) / 5),
        (hg.path(600), 1 / 3 + 2 / 3 * np.cos(np.pi / 600)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_rho_of_large_networks_is_the_closed_form(topology, expected):
    assert topology.rho == pytest.approx(expected, abs=1e-12)


def test_rho_of_a_large_complete_graph_is_zero_up_to_rounding():
    assert hg.complete(600).rho == pytest.approx(0, abs=1e-7)  # the root of a rounding error


def test_rho_is_right_where_the_most_negative_eigenvalue_decides():
    half = 300
    one = np.ones((half, half)) / half
    W = np.block([[0.01 * np.eye(half), 0.99 * one], [0.99 * one, 0.01 * np.eye(half)]])
    assert hg.from_weights(W).rho == pytest.approx(0.98, abs=1e-12)


def test_rho_of_a_large_random_graph_agrees_with_dense_eigenvalues():
    topology = hg.erdos_renyi(600, 0.02, seed=1)
    assert topology.rho == pytest.approx(dense_rho(topology.W), abs=1e-10)


def test_a_ring_of_10_000_is_built_and_gossips_without_a_matrix_of_agents_by_agents(monkeypatch):
    def refuse(topology):
        raise AssertionError("The dense W was asked for.")

    monkeypatch.setattr(hg.Topology, "W", property(refuse))
    tracemalloc.start()
    try:
        topology = hg.ring(10_000)
        assert topology.rho < 1
        assert len(topology.rounds) == 2
        mix = jax.jit(gossip_with(hg.Simulated().exchange(topology)))
        v = np.random.default_rng(0).standard_normal((10_000, 4))
        compiled = mix.lower(jnp.asarray(v)).compile()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6  # W would take 800 MB
    assert compiled.memory_analysis().temp_size_in_bytes < 50e6
    expected = (v + np.roll(v, 1, axis=0) + np.roll(v, -1, axis=0)) / 3
    np.testing.assert_allclose(compiled(jnp.asarray(v)), expected, rtol=0, atol=1e-14)


# Gossip


def gossip_with(exchange):
    """One gossip step of all agents."""
    parallel = hg.Simulated().parallel(lambda v, common: (exchange(v), None))
    return lambda v: parallel(v, None)[0]


@pytest.mark.parametrize("form", [simulated._Dense, simulated._Neighbours, simulated._Edges])
@pytest.mark.parametrize(
    "topology",
    [hg.ring(9, 0.4), hg.star(12), hg.erdos_renyi(12, 0.3), hg.ring(1)],
    ids=["ring", "star", "random", "one agent"],
)
def test_every_form_of_gossip_is_the_product_with_w(form, topology):
    rng = np.random.default_rng(0)
    shapes = [(), (3,), (2, 3)]
    sent = [rng.standard_normal((topology.n, *shape)).astype(t) for shape in shapes for t in (np.float64, np.float32)]
    mix = gossip_with(form(topology))
    received = jax.jit(lambda sent: [mix(v) for v in sent])(sent)
    for v, mixed in zip(sent, received, strict=True):
        assert mixed.dtype == v.dtype
        expected = np.tensordot(topology.W, v.astype(np.float64), axes=1)
        np.testing.assert_allclose(mixed, expected, rtol=0, atol=8 * np.finfo(v.dtype).eps)


@pytest.mark.parametrize(
    ("topology", "form"),
    [
        (hg.ring(6), simulated._Dense),
        (hg.complete(100), simulated._Dense),
        (hg.erdos_renyi(100, 0.5), simulated._Dense),
        (hg.ring(100), simulated._Neighbours),
        (hg.torus(10, 12), simulated._Neighbours),
        (hg.star(300), simulated._Edges),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_form_of_gossip_suits_the_graph(topology, form):
    exchange = hg.Simulated().exchange(topology)
    assert isinstance(exchange, form)
    v = np.random.default_rng(0).standard_normal((topology.n, 2))
    mixed = jax.jit(gossip_with(exchange))(v)
    np.testing.assert_allclose(mixed, topology.W @ v, rtol=0, atol=1e-14)


def test_nodes_that_are_numbers_of_agents_keep_them_and_others_come_in_their_order():
    graph = nx.Graph([(2, 0), (0, 3), (3, 1)])
    topology = hg.from_graph(graph)
    assert topology.nodes == (0, 1, 2, 3)
    assert topology.neighbours == ((2, 3), (3,), (0,), (0, 1))
    named = hg.from_graph(nx.relabel_nodes(graph, {0: "a", 1: "b", 2: "c", 3: "d"}))
    assert named.nodes == ("c", "a", "d", "b")
    assert named.neighbours == ((1,), (0, 2), (1, 3), (2,))
    assert hg.ring(3).nodes is None
