"""Bad input is refused on the host, with a message that says what was given and what was expected."""

import math

import jax
import jax.numpy as jnp
import jaxtyping
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import hypergossip as hg

N, P, Q = 4, 2, 3


@pytest.fixture(autouse=True)
def as_users_see_it(monkeypatch):
    """Without beartype, which stands in these tests in front of the library's own messages."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def upper(x, y, batch):
    return 0.5 * jnp.sum((y - batch["b"][0]) ** 2) + 0.5 * jnp.sum(x**2)


def lower(x, y, batch):
    return 0.5 * jnp.sum(y**2) - x @ batch["J"][0] @ y


def elementwise(x, y, batch):
    return jnp.sum((y - x) ** 2)


def make(**changed):
    given = {
        "upper": upper,
        "lower": lower,
        "upper_data": {"b": np.arange(N * Q, dtype=float).reshape(N, 1, Q)},
        "lower_data": {"J": np.ones((N, 1, P, Q))},
        "x0": jnp.ones(P),
        "y0": jnp.ones(Q),
    }
    given |= changed
    return hg.Problem(given.pop("upper"), given.pop("lower"), **given)


@pytest.fixture
def broadcasting():
    """As users have it: losses take what can be broadcast."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def problem():
    return make()


def descent(**changed):
    return hg.DBO(**({"outer_step": 0.1, "inner_step": 0.1} | changed))


# Mixing matrices


HALF = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("W", "error", "message"),
    [
        ([[0.5, 0.4], [0.4, 0.5]], ValueError, r"not doubly stochastic: row 0 sums to 0\.9; expected 1\."),
        ([[0.5, 0.5], [0.4, 0.5]], ValueError, r"row 1 sums to 0\.9; expected 1\. W is not symmetric either"),
        ([[0.6, 0.4], [0.5, 0.5]], ValueError, r"column 0 sums to 1\.1; expected 1\. W is not symmetric either"),
        (
            [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]],
            ValueError,
            r"not symmetric: W\[0, 1\] = 0\.3 but W\[1, 0\] = 0\.2",
        ),
        ([[1.5, -0.5], [-0.5, 1.5]], ValueError, r"W\[0, 1\] = -0\.5 is negative; expected weights ≥ 0"),
        ([[0.5, np.nan], [np.nan, 0.5]], ValueError, r"W\[0, 1\] is nan; expected finite weights"),
        ([[0.5, np.inf], [np.inf, 0.5]], ValueError, r"W\[0, 1\] is inf; expected finite weights"),
        (np.ones((2, 3)) / 3, ValueError, r"shape \(2, 3\); expected a square matrix"),
        (np.ones(3), ValueError, r"W has 1 axes; expected a square matrix"),
        (np.zeros((0, 0)), ValueError, r"no rows; expected at least one agent"),
        ([[0.5, 0.5], [1.0]], ValueError, r"no matrix: .*Expected rows of one length"),
        ([["a", "b"], ["c", "d"]], TypeError, r"entries of type <U1; expected real numbers"),
        (HALF + 0j, TypeError, r"entries of type complex128; expected real numbers"),
        (None, TypeError, r"entries of type object; expected real numbers"),
        (np.eye(3), ValueError, r"disconnected: it falls into 3 parts, the first of 1 agents .* of 3\. Expected"),
        (
            sp.block_diag([sp.coo_array(HALF), sp.coo_array(HALF)]),
            ValueError,
            r"disconnected: it falls into 2 parts, the first of 2 agents",
        ),
        ([[0, 1], [1, 0]], ValueError, r"periodic: it is bipartite .* ρ = 1 .*lazy_metropolis"),
        ([[1e-13, 1 - 1e-13], [1 - 1e-13, 1e-13]], ValueError, "periodic: .* no agent keeps a weight for itself"),
    ],
)
def test_a_matrix_that_does_not_mix_is_refused_by_what_it_lacks(W, error, message):
    with pytest.raises(error, match=message):
        hg.from_weights(W)


def test_weights_of_one_over_the_degree_are_refused_on_an_irregular_graph_with_what_to_use_instead():
    graph = nx.star_graph(3)
    W = nx.to_numpy_array(graph)
    W /= W.sum(axis=1)[:, None]
    with pytest.raises(ValueError, match=r'column 0 sums to 3; expected 1.*1/degree.*weights="metropolis"'):
        hg.from_weights(W)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: hg.ring(0), ValueError, "number of agents is 0; expected at least 1"),
        (lambda: hg.erdos_renyi(5, 0.9, seed="a"), TypeError, "seed is 'a'; expected an integer"),
        (lambda: hg.ring(-3), ValueError, "number of agents is -3; expected at least 1"),
        (lambda: hg.star(2.0), TypeError, r"number of agents is 2\.0; expected an integer"),
        (lambda: hg.path(True), TypeError, "number of agents is True; expected an integer"),
        (lambda: hg.complete("4"), TypeError, "number of agents is '4'; expected an integer"),
        (lambda: hg.torus("4"), TypeError, "number of agents is '4'; expected an integer"),
        (lambda: hg.torus("4", 5), TypeError, "number of rows is '4'; expected an integer"),
        (lambda: hg.torus(4, 0), ValueError, "number of columns is 0; expected at least 1"),
        (lambda: hg.hypercube(6), ValueError, "hypercube of 6 agents does not exist; expected a power of two: 1, 2, 4"),
        (lambda: hg.exponential(None), TypeError, "number of agents is None; expected an integer"),
        (lambda: hg.ring(5, self_weight=0), ValueError, "self_weight = 0; expected a number strictly between 0 and 1"),
        (lambda: hg.ring(5, self_weight=1.0), ValueError, "self_weight = 1; expected a number strictly between"),
        (lambda: hg.ring(5, self_weight=-0.5), ValueError, r"self_weight = -0\.5; expected a number strictly between"),
        (lambda: hg.ring(5, self_weight=np.nan), ValueError, "self_weight = nan; expected a number strictly between"),
        (lambda: hg.ring(5, self_weight="big"), TypeError, "self_weight is 'big'; expected a number"),
        (lambda: hg.erdos_renyi(5, 0.0), ValueError, r"p = 0; expected a probability in \(0, 1\]"),
        (lambda: hg.erdos_renyi(5, 1.5), ValueError, r"p = 1\.5; expected a probability"),
        (lambda: hg.erdos_renyi(5, "0.5"), TypeError, r"p is '0\.5'; expected a number"),
        (
            lambda: hg.erdos_renyi(30, 1e-3),
            ValueError,
            r"100 draws .* 30 agents and p = 0\.001 were all disconnected; use p well above ln\(n\)/n = 0\.113",
        ),
        (lambda: hg.Topology(np.eye(2)), TypeError, "got a ndarray; expected a scipy csr_array. hg.from_weights"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused(ask, error, message):
    with pytest.raises(error, match=message):
        ask()


def weighted(value):
    graph = nx.cycle_graph(5)
    nx.set_edge_attributes(graph, value, "trust")
    return graph


def half_weighted():
    graph = nx.cycle_graph(5)
    graph.edges[0, 1]["trust"] = 0.1
    return graph


@pytest.mark.parametrize(
    ("graph", "rule", "error", "message"),
    [
        (
            nx.cycle_graph(5),
            "metropolys",
            ValueError,
            "Unknown weight rule 'metropolys'; possible are 'metropolis', 'max_degree', 'lazy_metropolis'",
        ),
        (half_weighted(), "trust", ValueError, "Unknown weight rule 'trust'; .*1 of 5 edges carry 'trust'"),
        (nx.cycle_graph(5), 3, TypeError, "weights is 3; expected the name of a rule"),
        (weighted("heavy"), "trust", TypeError, "attribute 'trust' is no weight: .*expected a number on every edge"),
        (weighted(0.6), "trust", ValueError, r"W\[0, 0\] = -0\.2 is negative"),
        (weighted(-0.1), "trust", ValueError, r"W\[0, 1\] = -0\.1 is negative"),
        (weighted(np.nan), "trust", ValueError, r"W\[0, .\] is nan; expected finite"),
        (nx.DiGraph([(0, 1)]), "metropolis", ValueError, "directed graph or a multigraph; expected an undirected"),
        (nx.MultiGraph([(0, 1)]), "metropolis", ValueError, "directed graph or a multigraph; expected an undirected"),
        (nx.Graph(), "metropolis", ValueError, "no rows; expected at least one agent"),
        (nx.empty_graph(3), "metropolis", ValueError, "disconnected: it falls into 3 parts"),
        (np.eye(3), "metropolis", TypeError, r"Got a ndarray; expected a networkx Graph\. hg\.from_weights"),
    ],
)
def test_a_graph_without_a_mixing_matrix_is_refused(graph, rule, error, message):
    with pytest.raises(error, match=message):
        hg.from_graph(graph, weights=rule)


# Data


ONES = np.ones((N, 1, Q))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"b": np.ones((5, 1, Q))}, ValueError, "upper_data has 5 agents, lower_data has 4 agents; expected the same"),
        (
            {"b": ONES, "c": ONES[:3]},
            ValueError,
            r"ragged: upper_data\['b'\] has 4 agents, upper_data\['c'\] has 3 agents; expected the same",
        ),
        (
            {"b": ONES, "c": np.ones((N, 2, Q))},
            ValueError,
            r"ragged: upper_data\['b'\] has 1 example, upper_data\['c'\] has 2 examples; .*stack_ragged",
        ),
        (
            {"b": [np.ones((5, Q)), np.ones((4, Q))]},
            ValueError,
            r"\['b'\]\[0\] has 5 agents, upper_data\['b'\]\[1\] has 4 agents; .*A list is a pytree.*stack_ragged",
        ),
        ([[1.0, 2.0], [3.0]], ValueError, r"upper_data\[0\]\[0\] has shape \(\).*A list is a pytree.*stack_ragged"),
        ({"b": np.array([[1, 2], [3]], dtype=object)}, ValueError, r"upper_data\['b'\] is ragged .*stack_ragged"),
        ({"b": np.ones(N)}, ValueError, r"upper_data\['b'\] has shape \(4,\); expected at least two axes"),
        ({"b": "text"}, TypeError, r"upper_data\['b'\] has entries of type <U4; expected numbers"),
        ({"b": jax.random.split(jax.random.key(0), (N, 1))}, TypeError, r"upper_data\['b'\] has entries of type key"),
        (None, ValueError, r"upper_data has no leaves; expected a pytree of arrays \(agents, examples"),
        ({}, ValueError, "upper_data has no leaves; expected a pytree of arrays"),
        ({"b": np.ones((0, 1, Q))}, ValueError, r"empty: shape \(0, 1, 3\); expected at least one agent and one ex"),
        ({"b": np.ones((N, 0, Q))}, ValueError, r"empty: shape \(4, 0, 3\); expected at least one agent and one ex"),
        ({"b": np.where(ONES > 0, np.nan, 0)}, ValueError, r"upper_data\['b'\] is not finite: 12 of 12 entries, .*0\)"),
        ({"b": ONES * [1, 1, np.inf]}, ValueError, r"upper_data\['b'\] is not finite: 4 of 12 entries, .*\(0, 0, 2\)"),
    ],
)
def test_data_that_are_not_agents_by_examples_are_refused(data, error, message):
    with pytest.raises(error, match=message):
        make(upper_data=data)


def test_the_lower_data_are_checked_as_the_upper_ones_are():
    with pytest.raises(ValueError, match=r"lower_data\['J'\] is not finite: 24 of 24 entries"):
        make(lower_data={"J": np.full((N, 1, P, Q), np.inf)})


@pytest.mark.parametrize(
    ("agents", "error", "message"),
    [
        ([], ValueError, "got list of length 0; expected a list, one pytree per agent"),
        ({"a": np.ones((2, 3))}, ValueError, "got dict of unknown length; expected a list, one pytree per agent"),
        ([np.ones((2, 3)), np.ones((2, 4))], ValueError, r"Agent 1's rows have shapes \[\(4,\)\], agent 0's \[\(3,"),
        ([{"a": np.ones(2)}, {"b": np.ones(2)}], ValueError, r"Agent 1's pytree is .*'b'.*, agent 0's .*'a'.*the same"),
        ([(np.ones(2), np.ones(3))], ValueError, r"Agent 0's leaves have shapes \[\(2,\), \(3,\)\]; expected one"),
        ([np.ones(2), np.float64(1)], ValueError, r"Agent 1's leaves have shapes \[\(\)\]; expected one number"),
        ([{}], ValueError, r"Agent 0's leaves have shapes \[\]; expected one number"),
        ([np.ones((2, 3)), np.ones((0, 3))], ValueError, "Agent 1 has no examples; expected at least one"),
        ([np.array(["a", "b"])], TypeError, "Agent 0 has a leaf of type <U1; expected numbers"),
        ([np.array([{}, {}])], TypeError, "Agent 0 has a leaf of type object; expected numbers"),
    ],
)
def test_agents_that_cannot_be_stacked_are_refused_by_number(agents, error, message):
    with pytest.raises(error, match=message):
        hg.stack_ragged(agents)


# Losses


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (
            lambda x, y, batch: y,
            ValueError,
            r"upper\(x, y, batch\) returned shape \(3,\) for x \(2,\), y \(3,\), .*expected a scalar.*mean or a sum",
        ),
        (lambda x, y, batch: (jnp.sum(y), 1), ValueError, r"returned a tuple for x \(2,\).*expected a scalar"),
        (lambda x, y, batch: None, ValueError, "returned a NoneType .*expected a scalar"),
        (lambda x, y, batch: 3, TypeError, "returned int64; expected a floating-point scalar"),
        (lambda x, y, batch: jnp.sum(y > 0), TypeError, "returned int64; expected a floating-point scalar"),
        (3, TypeError, "upper is 3; expected a function"),
    ],
)
def test_a_loss_that_returns_no_scalar_is_refused(loss, error, message):
    with pytest.raises(error, match=message):
        make(upper=loss)


def test_what_a_loss_raises_is_told_with_the_shapes_it_was_called_with():
    with pytest.raises(TypeError) as caught:
        make(lower=lambda x, y, batch: x @ y)
    expected = "Raised by lower(x, y, batch) with x (2,), y (3,), batch {'J': (1, 2, 3)}."
    assert expected in caught.value.__notes__


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lower": lambda x, y, batch: jnp.sum(jnp.log(-y))}, "lower loss is not finite at the start, for 4 of 4"),
        (
            {"lower": lambda x, y, batch: jnp.sqrt(jnp.sum((y - 1) ** 2))},
            "lower loss's gradient is not finite at the start, for 4 of 4 agents",
        ),
        (
            {"upper": lambda x, y, batch: jnp.sum(y) / (batch["b"][0, 0] - 6)},
            r"upper loss is not finite at the start, for 1 of 4 agents \(agent 2 first\); expected finite values",
        ),
    ],
)
def test_a_loss_that_is_not_finite_at_the_start_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        make(**changed)


def test_a_way_to_draw_rows_must_be_a_function():
    with pytest.raises(TypeError, match="sample is None; expected a function"):
        make(sample=None)


# Starts


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ({"x0": jnp.ones(P, int)}, TypeError, "x0 has dtype int64; expected floating-point numbers"),
        ({"y0": {"w": [1, 2, 3]}}, TypeError, r"y0\['w'\]\[0\] has dtype int64; expected floating-point numbers"),
        ({"x0": jnp.ones(P, bool)}, TypeError, "x0 has dtype bool; expected floating-point numbers"),
        ({"x0": "zeros"}, TypeError, "x0 has entries of type <U5; expected numbers"),
        ({"x0": jnp.ones(P, jnp.float32)}, TypeError, "x0 has float32, y0 has float64; expected one floating-point"),
        ({"x0": None}, ValueError, "x0 has no leaves; expected a pytree of arrays"),
        ({"y0": jnp.ones(0)}, ValueError, r"y0 is empty: shape \(0,\); expected at least one number"),
        ({"x0": jnp.array([1, jnp.nan])}, ValueError, r"x0 is not finite: 1 of 2 entries, the first at \(1,\)"),
        (
            {"x0": jnp.ones((5, P)), "y0": jnp.ones((5, Q))},
            ValueError,
            "x0 has 5 agents, y0 has 5 agents, the data has 4 agents; expected the same number",
        ),
        ({"x0": jnp.ones((N, P)), "y0": jnp.ones((5, Q))}, ValueError, "x0 has 4 agents, y0 has 5 agents"),
        (
            {"x0": jnp.ones((N, P))},
            ValueError,
            r"x0 has an agents' axis in front and y0 has none: shapes \(4, 2\) and \(3,\); expected one on both",
        ),
        ({"y0": jnp.ones((N, Q))}, ValueError, "y0 has an agents' axis in front and x0 has none"),
        (
            {"y0": jnp.ones((N, Q)), "lower": lambda x, y, batch: jnp.sum(jnp.max(x) * y @ jnp.ones(Q))},
            ValueError,
            "y0 has an agents' axis in front and x0 has none",
        ),
    ],
)
def test_a_start_that_cannot_be_used_is_refused(start, error, message):
    with pytest.raises(error, match=message):
        make(**start)


def test_a_start_for_all_and_the_same_start_for_each_give_the_same_run(problem):
    each = make(x0=jnp.ones((N, P)), y0=jnp.ones((N, Q)))
    topology = hg.ring(N)
    for_all, for_each = (hg.run(descent(homogeneous=True), p, topology, 5) for p in (problem, each))
    assert for_all.x.shape == (N, P)
    np.testing.assert_array_equal(for_all.x, for_each.x)
    np.testing.assert_array_equal(for_all.y, for_each.y)


@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 3)])
def test_a_start_that_can_be_read_in_two_ways_is_refused_and_both_ways_can_be_said(shape):
    start = jnp.arange(float(np.prod(shape))).reshape(shape)
    given = {"upper": elementwise, "lower": elementwise, "x0": start, "y0": start}
    with pytest.raises(
        ValueError, match=r"as one start for all agents, or as one start for each agent.*each=True .*each=F"
    ):
        make(**given)
    x, _ = make(**given, each=True).flat_start()
    np.testing.assert_array_equal(x, start.reshape(N, -1))
    x, _ = make(**given, each=False).flat_start()
    np.testing.assert_array_equal(x, np.broadcast_to(start.reshape(-1), (N, start.size)))


@pytest.mark.parametrize("stacked", ["x0", "y0"])
def test_a_start_that_has_an_agents_axis_on_one_variable_only_does_not_pass_by_broadcasting(stacked, broadcasting):
    start = {"x0": jnp.zeros(3), "y0": jnp.zeros(3)} | {stacked: jnp.zeros((N, 3))}
    given = {"upper": elementwise, "lower": elementwise} | start
    reading = {"x0": "an x0 for each agent and one y0 for all", "y0": "one x0 for all agents and a y0 for each"}[
        stacked
    ]
    with pytest.raises(ValueError, match=f"4 agents: .* one start for all agents, or as {reading}"):
        make(**given)
    assert make(**given, each=False).flat_start()[0].shape == (N, start["x0"].size)


def test_a_vector_as_long_as_there_are_agents_is_a_vector_where_the_other_start_is_for_all(broadcasting):
    penalty = lambda x, y, batch: jnp.sum(y**2 * jnp.exp(x)) + y @ jnp.ones(N)  # noqa: E731
    x, _ = make(upper=penalty, lower=penalty, x0=jnp.zeros(N), y0=jnp.zeros(N)).flat_start()
    assert x.shape == (N, N)


def test_what_is_no_axis_of_agents_is_an_axis_like_any_other(broadcasting):
    x, y = make(upper=elementwise, lower=elementwise, x0=jnp.zeros((5, 3)), y0=jnp.zeros(3)).flat_start()
    assert (x.shape, y.shape) == ((N, 15), (N, 3))


def test_each_says_that_there_is_an_axis_of_agents_and_there_must_be_one():
    with pytest.raises(ValueError, match=r"each=True, and .* shapes \(2,\) and \(3,\); expected an axis of 4 agents"):
        make(each=True)
    with pytest.raises(TypeError, match="each is 'yes'; expected True"):
        make(each="yes")


def test_own_leaves_for_each_agent_beside_a_y0_for_all_are_told_apart(broadcasting):
    given = {"upper": elementwise, "lower": elementwise, "own": True, "x0": jnp.zeros((N, 3)), "y0": jnp.zeros(3)}
    with pytest.raises(ValueError, match="as one start for all agents, or as an x0 for each agent and one y0 for all"):
        make(**given)
    strict = lambda x, y, batch: x @ y  # noqa: E731
    with pytest.raises(ValueError, match="x0 has an agents' axis in front and y0 has none"):
        make(**given | {"upper": strict, "lower": strict})


@pytest.mark.parametrize("kind", [jnp.float16, jnp.bfloat16])
def test_numbers_too_short_for_exact_answers_are_refused(kind):
    for given in ({"x0": jnp.ones(P, kind), "y0": jnp.ones(Q, kind)}, {"upper_data": {"b": jnp.ones((N, 1, Q), kind)}}):
        with pytest.raises(TypeError, match=f"has dtype {jnp.dtype(kind)}; expected float32 or float64"):
            make(**given)


def test_a_start_of_as_many_numbers_as_agents_is_one_for_all_where_the_losses_take_nothing_else():
    x, y = make(
        lower=lambda x, y, batch: lower(x[:P], y, batch) + jnp.sum(jnp.cumsum(x)), x0=jnp.arange(N, dtype=float)
    ).flat_start()
    np.testing.assert_array_equal(x, np.broadcast_to(np.arange(N), (N, N)))
    assert y.shape == (N, Q)


# Algorithms


@pytest.mark.parametrize(
    ("step", "error", "got"),
    [
        (0, ValueError, "= 0; expected a positive, finite number"),
        (0.0, ValueError, "= 0; expected a positive, finite number"),
        (-0.1, ValueError, r"= -0\.1; expected a positive, finite number"),
        (np.nan, ValueError, "= nan; expected a positive, finite number"),
        (np.inf, ValueError, "= inf; expected a positive, finite number"),
        (lambda t: -0.1, ValueError, r"\(0\) = -0\.1; expected a positive, finite number"),
        (lambda t: "0.1", TypeError, r"\(0\) is '0\.1'; expected a positive number or a function of the iteration"),
        ("0.1", TypeError, r"is '0\.1'; expected a positive number or a function of the iteration"),
        ("a", TypeError, "is 'a'; expected a positive number or a function of the iteration"),
        (None, TypeError, "is None; expected a positive number or a function of the iteration"),
        (True, TypeError, "is True; expected a positive number or a function of the iteration"),
        ([0.1], TypeError, r"is \[0\.1\]; expected a positive number or a function of the iteration"),
        (1j, TypeError, "is 1j; expected a positive number or a function of the iteration"),
    ],
)
@pytest.mark.parametrize(
    ("name", "construct"),
    [
        ("outer_step", lambda step: descent(outer_step=step)),
        ("inner_step", lambda step: descent(inner_step=step)),
        ("JHIP's step", lambda step: hg.JHIP(step=step)),
        ("Neumann's step", lambda step: hg.Neumann(step=step)),
    ],
)
def test_steps_that_are_no_positive_numbers_are_refused(step, error, got, name, construct):
    with pytest.raises(error, match=f"^{name} ?{got}"):
        construct(step)


@pytest.mark.parametrize(
    ("count", "error", "got"),
    [
        (0, ValueError, "= 0; expected at least 1"),
        (-2, ValueError, "= -2; expected at least 1"),
        (2.0, TypeError, r"is 2\.0; expected a whole number"),
        (np.float64(2), TypeError, r"is np\.float64\(2\.0\); expected a whole number"),
        (np.int64(0), ValueError, "= 0; expected at least 1"),
        ("2", TypeError, "is '2'; expected a whole number"),
        (True, TypeError, "is True; expected a whole number"),
    ],
)
@pytest.mark.parametrize(
    ("name", "construct"),
    [
        ("inner_iterations", lambda problem, count: descent(inner_iterations=count)),
        ("AID's iterations", lambda problem, count: hg.AID(iterations=count)),
        ("JHIP's iterations", lambda problem, count: hg.JHIP(step=0.1, iterations=count)),
        ("Neumann's terms", lambda problem, count: hg.Neumann(step=0.1, terms=count)),
        ("batch_size", lambda problem, count: hg.DSBO(outer_step=0.1, inner_step=0.1, batch_size=count)),
        ("steps", lambda problem, count: hg.run(descent(), problem, hg.ring(N), count)),
        ("record_every", lambda problem, count: hg.run(descent(), problem, hg.ring(N), 1, record_every=count)),
    ],
)
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")  # equinox about np.float64, before we look
def test_counts_that_are_no_positive_whole_numbers_are_refused(count, error, got, name, construct, problem):
    with pytest.raises(error, match=f"{name} {got}"):
        construct(problem, count)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"homogeneous": "yes"}, "homogeneous is 'yes'; expected True or False"),
        ({"carry": 1}, "carry is 1; expected True or False"),
        ({"hypergradient": 3}, r"hypergradient is 3; expected an oracle: hg\.AID, hg\.Neumann, hg\.JHIP"),
        ({"hypergradient": hg.JHIP}, r"hypergradient is .*JHIP.*; expected an oracle"),
    ],
)
def test_settings_of_another_kind_are_refused(changed, message):
    with pytest.raises(TypeError, match=message):
        descent(**changed)


# Runs


def run(problem, **changed):
    given = {"algorithm": descent(homogeneous=True), "topology": hg.ring(N), "steps": 2}
    return hg.run(problem=problem, **(given | changed))


def spread(witness):
    return jnp.max(witness.state.x)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"topology": hg.ring(5)}, ValueError, "data of 4 agents, the topology has 5; expected the same"),
        ({"topology": hg.ring(N).W}, TypeError, r"expected a topology such as hg\.ring\(n\)\. The order is run\("),
        ({"algorithm": hg.DBO}, TypeError, r"expected an algorithm such as hg\.DBOGT\(\.\.\.\)\. The order is run\("),
        ({"seed": -1}, ValueError, "seed = -1; expected at least 0"),
        ({"seed": 0.5}, TypeError, r"seed is 0\.5; expected a whole number"),
        ({"growth_limit": 1.0}, ValueError, r"growth_limit = 1\.0; expected a number above 1"),
        ({"growth_limit": np.nan}, ValueError, "growth_limit = nan; expected a number above 1"),
        ({"metrics": [3]}, TypeError, "The metric 3 is no function of a Witness"),
        ({"metrics": [spread, spread]}, ValueError, "Two metrics are named 'spread'; expected different names"),
        (
            {"metrics": [hg.inner_error(True), hg.inner_error(False)]},
            ValueError,
            "Two metrics are named 'A_K'; expected different names",
        ),
        ({"metrics": spread}, TypeError, r"metrics is .*spread.*; expected"),
        ({"metrics": [hg.hypergradient_norm]}, TypeError, r"hypergradient_norm.*expected"),
        ({"metrics": [lambda witness: witness.x]}, ValueError, r"<lambda>.*\(2,\).*expected a scalar"),
        ({"backend": "gpu"}, TypeError, r"backend is 'gpu'; expected"),
        ({"callback": 3}, TypeError, "callback is 3; expected a function"),
        (
            {"algorithm": descent(outer_step=jnp.array([0.1, 0.2]), homogeneous=True)},
            ValueError,
            r"outer_step .*\(2,\).*expected",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused(changed, error, message, problem):
    with pytest.raises(error, match=message):
        run(problem, **changed)


def test_arguments_in_the_wrong_order_are_refused_with_the_right_one(problem):
    with pytest.raises(TypeError, match=r"The order is run\(algorithm, problem, topology, steps\)"):
        hg.run(problem, descent(), hg.ring(N), 2)
    with pytest.raises(TypeError, match=r"expected an hg\.Problem\. The order is"):
        hg.run(descent(), hg.ring(N), problem, 2)


def test_a_file_is_no_folder_for_checkpoints(problem, tmp_path):
    file = tmp_path / "first"
    file.write_text("notes")
    with pytest.raises(ValueError, match="first' is a file; expected a folder"):
        run(problem, checkpoint=file)
    assert file.read_text() == "notes"


# What users' functions are and return


def cannot_be_called(witness, other):
    return 0.0


class Named:
    """A metric whose name is no string."""

    name = 3

    def __call__(self, witness):
        return 0.0


@pytest.mark.parametrize(
    ("metric", "error", "message"),
    [
        *(
            (factory, TypeError, rf"no function of a Witness.* Did you mean {factory.__name__}\(\)\?")
            for factory in (hg.upper_loss, hg.lower_residual, hg.hypergradient_norm, hg.disagreement, hg.inner_error)
        ),
        (Named, TypeError, r"no function of a Witness.* Did you mean Named\(\)\?"),
        (cannot_be_called, TypeError, r"cannot_be_called.* is no function of a Witness; expected one that"),
        (Named(), TypeError, "has the name 3; expected a string"),
        (lambda witness: {3: 0.0}, TypeError, r"returned a value named 3; expected a string as its name"),
        (lambda witness: {"a": {"b": 0.0}}, TypeError, r"returned for 'a' a dict; expected a scalar, or .* not nested"),
        (lambda witness: {"a": 1j}, TypeError, r"returned for 'a' a number of type complex128; expected a real one"),
        (lambda witness: (0.0, 1.0), TypeError, r"returned a tuple; expected a scalar"),
        (lambda witness: None, TypeError, r"returned a NoneType; expected a scalar"),
        (lambda witness: {"a": witness.x}, ValueError, r"returned for 'a' shape \(2,\); expected a scalar, for one"),
    ],
)
def test_metrics_that_record_no_numbers_by_name_are_refused(metric, error, message, problem):
    with pytest.raises(error, match=message):
        run(problem, metrics=[metric])


def test_what_a_metric_raises_is_told_with_its_name(problem):
    def broken(witness):
        raise KeyError("accuracy")

    with pytest.raises(KeyError) as caught:
        run(problem, metrics=[broken])
    assert "Raised by the metric broken." in caught.value.__notes__


def half(key, data, batch_size):
    return {"b": data["b"][:batch_size, :2]} if "b" in data else data


def broken_draw(key, data, batch_size):
    raise KeyError("feature")


def test_rows_that_the_losses_do_not_take_are_refused_before_any_run():
    with pytest.raises(
        ValueError, match=r"sample\(key, data, batch_size\) draws from upper_data .* no batch for upper"
    ):
        make(sample=half)
    with pytest.raises(KeyError) as caught:
        make(sample=broken_draw)
    expected = "Raised by sample(key, data, batch_size) with data {'b': (1, 3)} and batch_size 1."
    assert expected in caught.value.__notes__


def test_what_differentiating_a_loss_raises_is_told_with_the_losss_name():
    @jax.custom_jvp
    def square(x):
        return jnp.sum(x**2)

    @square.defjvp
    def slope(primals, tangents):
        raise KeyError("slope")

    with pytest.raises(KeyError) as caught:
        make(upper=lambda x, y, batch: square(y))
    assert "Raised by the upper loss or its gradient, at the start." in caught.value.__notes__


def math_schedule(k):
    return math.sqrt(k + 1)


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (lambda k: 0.1 if k < 2 else 0.01, TypeError, r"cannot be traced; expected .*jnp\.where instead of if"),
        (math_schedule, TypeError, r"cannot be traced; expected .*jnp\.sqrt instead of math\.sqrt"),
        (lambda k: jnp.full(2, 0.1), ValueError, r"\(0\) has shape \(2,\); expected one number"),
        (lambda k: jnp.asarray(0.1 + 1j), TypeError, r"\(0\) is .*; expected a positive number"),
    ],
)
@pytest.mark.parametrize(
    ("name", "construct"),
    [("outer_step", lambda step: descent(outer_step=step)), ("HIGP's step", lambda step: hg.HIGP(step=step))],
)
def test_schedules_that_cannot_be_traced_are_refused_by_the_fields_name(step, error, message, name, construct):
    with pytest.raises(error, match=f"^{name}.*{message}") as caught:
        construct(step)
    assert ("cannot be traced" in message) == (caught.value.__cause__ is not None)


def test_a_warm_up_from_zero_is_a_schedule():
    optax = pytest.importorskip("optax")
    with jax.numpy_dtype_promotion("standard"):
        assert descent(outer_step=optax.linear_schedule(0.0, 0.1, 5)).outer_step(5) == 0.1


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ({"newton_steps": 0}, ValueError, "newton_steps = 0; expected at least 1"),
        ({"cg_steps": 1.5}, TypeError, r"cg_steps is 1\.5; expected a whole number"),
        ({"tolerance": -1.0}, ValueError, r"tolerance = -1\.0; expected a positive, finite number, or None"),
        ({"tolerance": np.inf}, ValueError, "tolerance = inf; expected a positive, finite number"),
        ({"tolerance": "small"}, TypeError, "tolerance is 'small'; expected a positive number, or None"),
    ],
)
def test_the_exact_solves_patience_is_checked(setting, error, message):
    with pytest.raises(error, match=message):
        hg.hypergradient_norm(**setting)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"seed": 2**32}, ValueError, "seed = 4294967296; expected a number below 4294967296"),
        ({"checkpoint": ""}, ValueError, "checkpoint is an empty string; expected the path of a folder, or None"),
        ({"checkpoint": 123}, TypeError, "checkpoint is 123; expected the path of a folder, or None"),
        ({"checkpoint": True}, TypeError, "checkpoint is True; expected the path of a folder, or None"),
    ],
)
def test_seeds_and_folders_that_would_be_taken_for_others_are_refused(changed, error, message, problem):
    with pytest.raises(error, match=message):
        run(problem, **changed)


def test_whole_numbers_of_numpy_are_whole_numbers(problem):
    algorithm = hg.DSBO(0.1, 0.1, np.int64(2), hg.Neumann(0.1, np.int32(2)), True, batch_size=np.int64(1))
    assert type(algorithm.inner_iterations) is type(algorithm.batch_size) is int
    plain = hg.DSBO(0.1, 0.1, 2, hg.Neumann(0.1, 2), True, batch_size=1)
    settings = {
        "record_every": np.int8(2),
        "seed": np.uint32(3),
        "metrics": [hg.hypergradient_norm(cg_steps=np.int8(9))],
    }
    trace = run(problem, algorithm=algorithm, steps=np.int64(4), **settings)
    other = run(problem, algorithm=plain, steps=4, record_every=2, seed=3)
    np.testing.assert_array_equal(trace.x, other.x)
    np.testing.assert_array_equal(trace.metrics["step"], [0, 2, 4])


def test_own_leaves_that_are_not_said_are_refused_without_jaxs_words():
    with pytest.raises(
        ValueError, match=r"own = None does not fit x0.* expected True or False for every leaf"
    ) as caught:
        make(own=None)
    assert "prefix" not in str(caught.value)
    with pytest.raises(ValueError, match="does not fit x0"):
        make(own={"a": True})


def test_jhip_and_own_parts_are_refused_before_anything_is_traced(monkeypatch):
    monkeypatch.setattr(hg.DBO, "init", None)
    with pytest.raises(ValueError, match=r"hg\.JHIP makes .* agents' own"):
        run(make(own=True), algorithm=descent())


def test_weights_in_single_precision_are_refused_for_their_rounding():
    W = np.full((3, 3), np.float32(1 / 3))
    with pytest.raises(ValueError, match=r"W has dtype float32, .* miss 1 by up to 3\.0e-08; .*in float64"):
        hg.from_weights(W)
    with pytest.raises(ValueError, match="not doubly stochastic"):
        hg.from_weights(W * np.float32(1.1))
    assert hg.from_weights(np.full((4, 4), np.float32(0.25))).n == 4
