"""What is sent, against counts by hand; the library reads it off the traced program, so the two are independent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import table

import hypergossip as hg
from hypergossip import wire
from hypergossip.local import Local


def by_hand(algorithm, p, q, itemsize=8):
    """Variable ↦ (messages, bytes) along one edge in one direction, by counting the lines of the algorithm."""
    T, oracle = algorithm.inner_iterations, algorithm.hypergradient
    goes_on = 1 if algorithm.carry else 0  # a tracker that goes on takes in one gradient more
    sent = {"x": (1, p)}
    if isinstance(algorithm, hg.DBOGT):
        sent["u"] = (1, p)
    if not algorithm.homogeneous:
        sent["y"] = (T, q)
        solution, tracker, size = ("Z", "Y", p * q) if isinstance(oracle, hg.JHIP) else ("z", "d", q)
        sent[solution] = (oracle.iterations, size)
        sent[tracker] = (oracle.iterations + goes_on, size)
        if not isinstance(algorithm, hg.DSBO):
            sent["v"] = (T + goes_on, q)
    return {name: wire.Traffic(messages, messages * size * itemsize) for name, (messages, size) in sent.items()}


@pytest.mark.parametrize("row", table.ROWS, ids=table.NAMES)
def test_every_algorithm_sends_what_counting_its_lines_gives(row, logistic):
    topology = hg.ring(logistic.n)
    sent = hg.run(row.algorithm, logistic.hg_problem, topology, 1).communication
    expected = by_hand(row.algorithm, logistic.p, logistic.q)
    assert sent.along_edge == expected
    directed = 2 * logistic.n  # a ring has as many edges as agents
    assert sent.messages == directed * sum(traffic.messages for traffic in expected.values())
    assert sent.bytes == directed * sum(traffic.bytes for traffic in expected.values())


def test_matrices_cost_p_times_q_and_vectors_their_own_length(quadratic):
    row = table.ROWS[table.NAMES.index("DBOGT-heterogeneous-carry")]
    trace = hg.run(row.algorithm, quadratic.hg_problem, hg.ring(quadratic.n), 1)
    assert trace.communication.along_edge == by_hand(row.algorithm, quadratic.p, quadratic.q)


# One agent's program, without a run


N, SIZE = 5, 3
TOPOLOGY = hg.star(N)


@pytest.fixture(scope="module")
def agent():
    data = {"a": np.ones((N, 1, SIZE))}

    def loss(x, y, batch):
        return jnp.sum((y - batch["a"][0]) ** 2) + jnp.sum(x**2)

    problem = hg.Problem(loss, loss, upper_data=data, lower_data=data, x0=jnp.zeros(2), y0=jnp.zeros(SIZE))
    own = jax.tree.map(lambda leaf: leaf[0], data)
    exchange = hg.Simulated().exchange(TOPOLOGY)
    return hg.Agent(Local(problem.losses(), own, own), jnp.int32(0), jax.random.key(0), problem.sample, exchange)


def sent_by(program, dtype=jnp.float64):
    return wire.read(program, (jax.ShapeDtypeStruct((SIZE,), dtype),), TOPOLOGY)


@pytest.mark.parametrize(("dtype", "itemsize"), [(jnp.float64, 8), (jnp.float32, 4)])
def test_bytes_follow_the_type(agent, dtype, itemsize):
    sent = sent_by(lambda v: agent.mix(v, "v"), dtype)
    assert sent.along_edge == {"v": wire.Traffic(1, SIZE * itemsize)}


def test_variables_and_edges_add_up_to_the_whole(agent):
    sent = sent_by(lambda v: (agent.mix(v, "x"), agent.mix(agent.mix(v[:1], "y"), "y")))
    assert sent.along_edge == {"x": wire.Traffic(1, 24), "y": wire.Traffic(2, 16)}
    edges = {(0, i) for i in range(1, N)} | {(i, 0) for i in range(1, N)}
    assert set(sent.edges) == set(sent.per_edge) == edges
    assert sent.per_variable == {"x": wire.Traffic(8, 8 * 24), "y": wire.Traffic(16, 8 * 16)}
    whole = wire.Traffic(sent.messages, sent.bytes)
    assert whole == wire.Traffic(24, 320)
    assert sum(sent.per_edge.values(), wire.Traffic(0, 0)) == whole
    assert sum(sent.per_variable.values(), wire.Traffic(0, 0)) == whole


def test_the_text_tells_the_whole_and_every_variable(agent):
    text = str(sent_by(lambda v: (agent.mix(v, "x"), agent.mix(v[:1]))))
    assert text.splitlines() == [
        "16 messages and 256 bytes per outer iteration",
        "  x: 8 messages, 192 bytes",
        "  unnamed: 8 messages, 64 bytes",
    ]


def test_a_program_that_mixes_nothing_sends_nothing(agent):
    sent = sent_by(lambda v: v + agent.exact.gy(jnp.zeros(2), v))
    assert (sent.messages, sent.bytes, sent.along_edge) == (0, 0, {})


def test_every_leaf_of_a_pytree_is_a_message(agent):
    sent = sent_by(lambda v: agent.mix({"a": v, "b": (v[:1], jnp.zeros((2, 2)))}, "tree"))
    assert sent.along_edge == {"tree": wire.Traffic(3, 8 * (3 + 1 + 4))}


def test_loops_of_known_length_are_multiplied_out(agent):
    def twelve(v):
        def inner(_, v):
            return agent.mix(v, "v")

        def outer(v, _):
            return jax.lax.fori_loop(0, 4, inner, v), None

        return jax.lax.scan(outer, v, None, length=3)[0]

    assert sent_by(twelve).along_edge == {"v": wire.Traffic(12, 12 * 24)}


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, lambda f: lambda v: jax.vmap(f)(jnp.stack([v, v])).sum(0)])
def test_exchanges_inside_other_transforms_are_found(agent, wrap):
    sent = sent_by(wrap(lambda v: agent.mix(v, "v")))
    copies = 2 if wrap not in (jax.jit, jax.checkpoint) else 1
    assert sent.along_edge == {"v": wire.Traffic(1, copies * 24)}


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("while", lambda mix, v: jax.lax.while_loop(lambda v: v[0] > 0, mix, v)),
        ("while", lambda mix, v: jax.lax.fori_loop(0, (v[0] > 0).astype(int), lambda _, v: mix(v), v)),
        ("cond", lambda mix, v: jax.lax.cond(v[0] > 0, mix, lambda v: v, v)),
    ],
)
def test_an_exchange_whose_turns_cannot_be_counted_is_refused_with_what_to_use(agent, kind, program):
    with pytest.raises(NotImplementedError, match=f"exchange of 'w' stands inside a '{kind}' .*a loop of fixed length"):
        sent_by(lambda v: program(lambda v: agent.mix(v, "w"), v))


def test_a_loop_of_unknown_length_without_an_exchange_is_none_of_its_business(agent):
    sent = sent_by(lambda v: agent.mix(jax.lax.while_loop(lambda v: v[0] > 0, lambda v: v - 1, v), "v"))
    assert sent.along_edge == {"v": wire.Traffic(1, 24)}
