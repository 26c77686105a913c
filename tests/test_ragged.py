"""Agents with different amounts of data: padding changes nothing, and draws never see it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergossip as hg
from hypergossip.local import Local
from hypergossip.ragged import sample_rows

counts_of_agents = st.lists(st.integers(1, 7), min_size=1, max_size=5)
draw_four = jax.jit(lambda key, data: sample_rows(key, data, 4))


def agents_with(counts, dtype=np.float64):
    """Pytrees of different lengths; every row holds its agent's and its own number, so that rows can be told apart."""
    rng = np.random.default_rng(0)
    return [
        {
            "feature": rng.standard_normal((m, 3)).astype(dtype),
            "label": np.stack([np.full(m, agent), np.arange(m)], axis=1),
        }
        for agent, m in enumerate(counts)
    ]


def of_agent(ragged, i):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], ragged)


@given(counts_of_agents)
@settings(max_examples=15, deadline=None)
def test_stacking_keeps_every_row_and_pads_with_weight_zero(counts):
    agents = agents_with(counts)
    ragged = jax.tree.map(np.asarray, hg.stack_ragged(agents))
    np.testing.assert_array_equal(ragged.count, counts)
    for i, (m, agent) in enumerate(zip(counts, agents, strict=True)):
        for name in ("feature", "label"):
            assert ragged.data[name].shape == (len(counts), max(counts), *agent[name].shape[1:])
            assert ragged.data[name].dtype == agent[name].dtype
            np.testing.assert_array_equal(ragged.data[name][i, :m], agent[name])
        np.testing.assert_array_equal(ragged.weight[i], np.arange(max(counts)) < m)


@given(counts_of_agents)
@settings(max_examples=15, deadline=None)
def test_weighted_sums_and_means_are_those_of_the_rows_alone(counts):
    agents = agents_with(counts)
    ragged = hg.stack_ragged(agents)
    for i, agent in enumerate(agents):
        batch, row_loss = of_agent(ragged, i), lambda rows: (rows**2).sum(axis=-1)
        total = (batch.weight * row_loss(batch.data["feature"])).sum()
        np.testing.assert_allclose(total, row_loss(agent["feature"]).sum(), rtol=1e-14)
        np.testing.assert_allclose(total / batch.count, row_loss(agent["feature"]).mean(), rtol=1e-14)


@given(st.integers(1, 7), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_draws_never_see_padding(count, seed):
    counts = (7, count)
    ragged = hg.stack_ragged(agents_with(counts))
    for i, m in enumerate(counts):
        drawn = draw_four(jax.random.key(seed), of_agent(ragged, i))
        assert drawn.data["feature"].shape == (4, 3)
        np.testing.assert_array_equal(drawn.data["label"][:, 0], i)
        assert np.asarray(drawn.data["label"])[:, 1].max() < m
        rows = np.asarray(ragged.data["feature"])[i, drawn.data["label"][:, 1]]
        np.testing.assert_array_equal(drawn.data["feature"], rows)
        np.testing.assert_allclose(drawn.weight, np.full(4, m / 4), rtol=1e-15)
        assert int(drawn.count) == m


def test_weighted_sums_of_draws_are_unbiased_for_the_agents_sum():
    ragged = hg.stack_ragged(agents_with([3, 7]))
    draws, batch_size = 4000, 4
    for i, m in enumerate((3, 7)):
        mine = of_agent(ragged, i)
        batches = jax.vmap(draw_four, in_axes=(0, None))(jax.random.split(jax.random.key(1), draws), mine)
        sums = np.asarray(jnp.einsum("db,dbf->df", batches.weight, batches.data["feature"]))
        rows = np.asarray(mine.data["feature"][:m])
        deviation = m * rows.std(axis=0) / np.sqrt(batch_size * draws)
        assert (np.abs(sums.mean(axis=0) - rows.sum(axis=0)) < 4 * deviation).all()


def test_every_row_of_an_agent_is_drawn_equally_often():
    ragged = hg.stack_ragged(agents_with([5, 2]))
    mine = jax.tree.map(jnp.asarray, of_agent(ragged, 0))
    drawn = sample_rows(jax.random.key(0), mine, 5000).data["label"][:, 1]
    shares = np.bincount(np.asarray(drawn), minlength=5) / 5000
    np.testing.assert_allclose(shares, 1 / 5, atol=4 * np.sqrt(0.2 * 0.8 / 5000))


def test_draws_from_data_without_padding_are_rows_of_all_leaves_together():
    rows = {"feature": jnp.arange(6.0), "label": jnp.arange(6)}
    drawn = sample_rows(jax.random.key(0), rows, 20)
    np.testing.assert_array_equal(drawn["feature"], drawn["label"].astype(float))
    assert len(np.unique(drawn["label"])) > 3


@pytest.mark.parametrize(("dtype", "expected"), [(np.float64, np.float64), (np.float32, np.float32)])
def test_weights_have_the_type_of_the_data(dtype, expected):
    ragged = hg.stack_ragged(agents_with([2, 3], dtype))
    assert ragged.weight.dtype == expected
    assert draw_four(jax.random.key(0), of_agent(ragged, 0)).weight.dtype == expected


def test_weights_of_data_without_floats_have_jax_own_type():
    assert hg.stack_ragged([np.arange(2), np.arange(3)]).weight.dtype == jnp.zeros(()).dtype


# Runs


COUNTS = (2, 6, 3, 5)


def row_losses(x, y, rows):
    return jnp.logaddexp(0.0, -(rows["feature"] @ y)) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def padded_upper(x, y, batch):
    return jnp.sum(batch.weight * jnp.square(batch.data["feature"] @ y - 1)) / batch.count.astype(y.dtype)


def padded_lower(x, y, batch):
    return jnp.sum(batch.weight * row_losses(x, y, batch.data)) / batch.count.astype(y.dtype)


def ragged_problem(dtype=np.float64):
    agents = [{"feature": agent["feature"]} for agent in agents_with(COUNTS, dtype)]
    data = hg.stack_ragged(agents)
    start = jnp.zeros(3, dtype)
    return hg.Problem(padded_upper, padded_lower, upper_data=data, lower_data=data, x0=start, y0=start)


def test_a_run_on_padded_data_is_the_run_of_every_agent_on_its_own_rows():
    problem, topology = ragged_problem(), hg.ring(len(COUNTS), 0.5)
    algorithm = hg.DBO(outer_step=0.1, inner_step=0.2, inner_iterations=2, homogeneous=True)
    trace = hg.run(algorithm, problem, topology, 3)

    rows = [agent["feature"] for agent in agents_with(COUNTS)]
    x, y = np.zeros((4, 3)), np.zeros((4, 3))
    for _ in range(3):
        h = np.zeros_like(x)
        for i, a in enumerate(rows):
            for _ in range(2):
                slope = -1 / (1 + np.exp(a @ y[i]))
                y[i] -= 0.2 * (a.T @ slope / len(a) + np.exp(x[i]) * y[i])
            probability = 1 / (1 + np.exp(a @ y[i]))
            H = a.T @ ((probability * (1 - probability))[:, None] * a) / len(a) + np.diag(np.exp(x[i]))
            fy = 2 * a.T @ (a @ y[i] - 1) / len(a)
            h[i] = -np.exp(x[i]) * y[i] * np.linalg.solve(H, fy)
        x = topology.W @ x - 0.1 * h
    np.testing.assert_allclose(trace.y, y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(trace.x, x, rtol=0, atol=1e-12)


def test_a_stochastic_run_on_padded_data_in_single_precision_stays_in_it():
    algorithm = hg.DSBO(
        outer_step=0.1,
        inner_step=0.1,
        inner_iterations=2,
        hypergradient=hg.AID(iterations=1),
        homogeneous=True,
        batch_size=3,
    )
    trace = hg.run(algorithm, ragged_problem(np.float32), hg.ring(len(COUNTS)), 3)
    assert {leaf.dtype for leaf in jax.tree.leaves(trace.state)} == {np.dtype(np.float32)}
    assert np.isfinite(np.asarray(trace.x)).all()
    assert np.abs(np.asarray(trace.x)).max() > 0


def test_a_way_to_draw_rows_of_ones_own_replaces_the_uniform_one():
    def last_rows(key, data, batch_size):
        return jax.tree.map(lambda leaf: leaf[-batch_size:], data)

    def loss(x, y, batch):
        return jnp.mean(jnp.square(batch["feature"] @ y - jnp.sum(x)))

    data = {"feature": np.random.default_rng(2).standard_normal((4, 5, 3))}
    start = jnp.zeros(3)
    problem = hg.Problem(loss, loss, upper_data=data, lower_data=data, x0=start, y0=start, sample=last_rows)
    mine = of_agent(data, 1)
    exact = Local(problem.losses(), mine, mine)
    exchange = hg.Simulated().exchange(hg.ring(4))
    agent = hg.Agent(exact, jnp.int32(0), jax.random.key(0), problem.sample, exchange)
    drawn = agent.sample(2)("inner", 0)
    for batch in (drawn.upper_batch, drawn.lower_batch):
        np.testing.assert_array_equal(batch["feature"], mine["feature"][-2:])
    assert agent.sample(None)("inner", 0) is exact
