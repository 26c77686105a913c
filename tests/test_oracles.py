"""Oracles at a fixed point against closed forms, and the random draws that stochastic ones are made of.

Small algorithms of our own ask the questions: one outer iteration is one independent answer at every
agent, addressed as in any other run.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy_oracle
import problems
import pytest
from scipy import stats

import hypergossip as hg

STANDARD_ERRORS = 4
"""How far a sample mean may be from what it estimates: at 1 in 16,000 per number, with fixed seeds."""


class _Asked(NamedTuple):
    y: Any
    x: Any
    first: Any
    second: Any


class Ask(hg.algorithms.Algorithm):
    """Asks an oracle in every iteration at the same (x, y), and adds up the answers and their squares."""

    oracle: Any
    measure: Callable = eqx.field(static=True)
    """What of an `Estimate` is added up, as a flat vector."""
    batch_size: int | None = eqx.field(static=True, default=None)

    def _answer(self, agent, x, y):
        return self.measure(self.oracle(agent, agent.sample(self.batch_size), x, y, None))

    def init(self, agent, x, y):
        answer = jax.eval_shape(lambda: self._answer(agent, x, y))
        nothing = jnp.zeros(answer.shape, answer.dtype)
        return _Asked(y, x, nothing, nothing)

    def step(self, agent, s):
        answer = self._answer(agent, s.x, s.y)
        return s._replace(first=s.first + answer, second=s.second + answer**2), {}


def _moments(oracle, problem, topology, answers, measure, **settings):
    """Every agent's mean answer, and the mean of the squares."""
    trace = hg.run(Ask(oracle, measure, **settings), problem, topology, answers, record_every=answers)
    return np.asarray(trace.state.first) / answers, np.asarray(trace.state.second) / answers


def _h(estimate):
    return estimate.h


def _point(n, p, q):
    rng = np.random.default_rng(8)
    return rng.standard_normal((n, p)), rng.standard_normal((n, q))


# AID


def _h_v_residual(estimate):
    return jnp.concatenate([estimate.h, estimate.carried, estimate.residual[None]])


@pytest.fixture(scope="module")
def aid_at_a_point(logistic):
    """N ↦ (h, v, residual) of every agent, at one point."""
    x, y = _point(logistic.n, logistic.p, logistic.q)
    problem = problems.started_at(logistic.hg_problem, x, y)

    def ask(iterations):
        answer, _ = _moments(hg.AID(iterations), problem, hg.ring(logistic.n), 1, _h_v_residual)
        return np.split(answer, [logistic.p, logistic.p + logistic.q], axis=1)

    return ask, x, y


def test_aid_with_as_many_steps_as_unknowns_is_the_dense_solve(aid_at_a_point, logistic):
    ask, x, y = aid_at_a_point
    h, v, residual = ask(logistic.q)
    H, J, fy = logistic.H(x, y), logistic.J(x, y), logistic.fy(x, y)
    solved = np.linalg.solve(H, fy[..., None])[..., 0]
    np.testing.assert_allclose(v, solved, rtol=1e-9)
    np.testing.assert_allclose(h, logistic.fx(x, y) - np.einsum("npq,nq->np", J, solved), rtol=1e-9)
    assert residual.max() < 1e-12


def test_aid_reports_the_residual_that_it_leaves(aid_at_a_point, logistic):
    ask, x, y = aid_at_a_point
    h, v, residual = ask(2)
    H, J, fy = logistic.H(x, y), logistic.J(x, y), logistic.fy(x, y)
    expected = np.stack(
        [numpy_oracle.conjugate_gradients(*one, np.zeros(logistic.q), 2) for one in zip(H, fy, strict=True)]
    )
    left = np.linalg.norm(np.einsum("nab,nb->na", H, expected) - fy, axis=1) / np.linalg.norm(fy, axis=1)
    np.testing.assert_allclose(v, expected, rtol=1e-10)
    np.testing.assert_allclose(h, logistic.fx(x, y) - np.einsum("npq,nq->np", J, expected), rtol=1e-10)
    np.testing.assert_allclose(residual[:, 0], left, rtol=1e-8)
    assert left.min() > 1e-6  # two steps do not solve it: there is something to report


# The Neumann series

TERMS, EPSILON, ANSWERS = 5, 0.2, 30_000


class Neumann(NamedTuple):
    """A sample of the oracle's answers, and the numbers of the problem that it was asked about."""

    mean: np.ndarray
    standard_error: np.ndarray
    fx: np.ndarray
    fy: np.ndarray
    H: np.ndarray
    """One per row: (agents, rows, q, q)."""
    J: np.ndarray

    def standard_errors_from(self, expected) -> float:
        """The worst over agents and entries."""
        return float(np.abs((self.mean - expected) / self.standard_error).max())

    def series(self, powers) -> np.ndarray:
        """The estimate with ε Σ_k (I − εH)^k over these powers in place of H⁻¹, everything averaged first."""
        return self.fx - np.einsum("npq,nq->np", self.J.mean(axis=1), self._sum(self.H.mean(axis=1), self.fy, powers))

    def series_if_factors_shared_a_row(self) -> np.ndarray:
        solved = np.mean([self._sum(H, self.fy, range(TERMS)) for H in self.H.swapaxes(0, 1)], axis=0)
        return self.fx - np.einsum("npq,nq->np", self.J.mean(axis=1), solved)

    def series_if_the_jacobian_shared_the_first_factors_row(self) -> np.ndarray:
        H = self.H.mean(axis=1)
        terms = EPSILON * self.fy
        total = np.einsum("npq,nq->np", self.J.mean(axis=1), terms)
        for k in range(1, TERMS):
            later = EPSILON * self._power(H, self.fy, k - 1)
            rows = zip(self.H.swapaxes(0, 1), self.J.swapaxes(0, 1), strict=True)
            total += np.mean([np.einsum("npq,nq->np", J, self._power(Hr, later, 1)) for Hr, J in rows], axis=0)
        return self.fx - total

    @staticmethod
    def _power(H, b, k):
        for _ in range(k):
            b = b - EPSILON * np.einsum("nab,nb->na", H, b)
        return b

    def _sum(self, H, b, powers):
        return EPSILON * sum(self._power(H, b, k) for k in powers)


@cache
def _neumann(batch_size) -> Neumann:
    whole = problems.Quadratic(n=3, p=3, q=4, heterogeneous=False)
    sampled = problems.SampledQuadratic(whole, examples=2, spread=1.5)
    x, y = _point(whole.n, whole.p, whole.q)
    problem = problems.started_at(sampled.hg_problem, x, y)
    oracle = hg.Neumann(step=EPSILON, terms=TERMS)
    first, second = _moments(oracle, problem, hg.ring(3), ANSWERS, _h, batch_size=batch_size)
    standard_error = np.sqrt((second - first**2) / ANSWERS)
    return Neumann(first, standard_error, whole.fx(x, y), whole.fy(x, y), sampled.rows["H"], sampled.rows["J"])


either_data = pytest.mark.parametrize("batch_size", [None, 1], ids=["all rows", "one row per draw"])


@either_data
def test_neumann_is_unbiased_for_the_series_with_m_terms(batch_size):
    neumann = _neumann(batch_size)
    assert neumann.standard_errors_from(neumann.series(range(TERMS))) < STANDARD_ERRORS


@either_data
@pytest.mark.parametrize(
    "powers",
    [range(1, TERMS + 1), range(TERMS + 1), range(TERMS - 1)],
    ids=["from 1 to M, as the paper prints it", "one term too many", "one term too few"],
)
def test_the_same_statistic_rejects_other_series(powers, batch_size):
    neumann = _neumann(batch_size)
    assert neumann.standard_errors_from(neumann.series(powers)) > 2 * STANDARD_ERRORS


def test_the_same_statistic_rejects_rows_shared_between_factors():
    neumann = _neumann(1)
    assert neumann.standard_errors_from(neumann.series_if_factors_shared_a_row()) > 2 * STANDARD_ERRORS


def test_the_same_statistic_rejects_a_row_shared_between_jacobian_and_factor():
    neumann = _neumann(1)
    shared = neumann.series_if_the_jacobian_shared_the_first_factors_row()
    assert neumann.standard_errors_from(shared) > 2 * STANDARD_ERRORS


# JHIP and HIGP


def _Z(estimate):
    return jnp.ravel(estimate.carried[0])


def _gamma(t):
    return 2.0 / (jnp.float64(t) + 20.0)


@pytest.fixture(scope="module")
def few() -> problems.SampledQuadratic:
    """Small agents that differ, with noisy rows."""
    whole = problems.Quadratic(n=4, p=2, q=3, heterogeneous=True)
    return problems.SampledQuadratic(whole, examples=6, spread=0.5)


def _product(whole):
    """H⁻¹Jᵀ of the whole network."""
    return np.linalg.solve(whole.arrays["H"].mean(axis=0), whole.arrays["J"].mean(axis=0).T)


def test_jhip_finds_the_networks_product_at_every_agent(few):
    Z, _ = _moments(hg.JHIP(step=0.1, iterations=400), few.hg_problem, hg.ring(4, self_weight=0.5), 1, _Z)
    np.testing.assert_allclose(Z, np.broadcast_to(_product(few.whole).ravel(), Z.shape), rtol=1e-10)
    local = np.linalg.solve(few.whole.arrays["H"], few.whole.arrays["J"].swapaxes(1, 2)).reshape(Z.shape)
    assert np.abs(Z - local).max(axis=1).min() > 0.1  # which is nobody's own


def test_stochastic_jhip_with_diminishing_steps_is_consistent(few):
    # Steps γ_t = c/t with c > 1/μ: the mean squared error falls like 1/N. Each of the two errors, a mean over
    # 100 answers of 4 agents, is itself good to about a tenth, which makes 0.06 in the slope.
    counts, answers = np.array([100, 900]), 100
    Zs = _product(few.whole).ravel()
    errors = []
    for N in counts:
        oracle = hg.JHIP(step=_gamma, iterations=int(N))
        first, second = _moments(oracle, few.hg_problem, hg.ring(4, self_weight=0.5), answers, _Z, batch_size=2)
        errors.append((second - 2 * first * Zs + Zs**2).mean())
    slope = np.diff(np.log(errors)) / np.diff(np.log(counts))
    assert slope == pytest.approx(-1, abs=0.15)


def test_higp_finds_the_networks_product_at_every_agent(few):
    x, y = _point(4, 2, 3)
    problem = problems.started_at(few.hg_problem, x, y)
    z, _ = _moments(hg.HIGP(step=0.1, iterations=400), problem, hg.ring(4, self_weight=0.5), 1, _Z)
    expected = np.linalg.solve(few.whole.arrays["H"].mean(axis=0), few.whole.fy(x, y).mean(axis=0))
    np.testing.assert_allclose(z, np.broadcast_to(expected, z.shape), rtol=1e-10)


@pytest.mark.parametrize("kind", [hg.JHIP, hg.HIGP])
def test_every_iteration_of_a_stochastic_oracle_by_gossip_has_rows_of_its_own(kind):
    # Fresh rows are independent of the iterate that they meet, so that the mean of Z, three products deep,
    # is the deterministic one. Rows used twice add the covariance of H and J, with two rows a large one.
    whole = problems.Quadratic(n=3, p=2, q=3, heterogeneous=True)
    problem = problems.SampledQuadratic(whole, examples=2, spread=1.5).hg_problem
    topology, answers = hg.ring(3, self_weight=0.5), 20_000
    settings = {"outer_step": 0.1, "inner_step": 0.0, "inner_iterations": 1}  # y stays where the oracle is asked
    oracle = {"oracle": kind.__name__, "oracle_iterations": 3, "oracle_step": 0.2}
    start = np.zeros((3, whole.p)), np.zeros((3, whole.q))
    expected = numpy_oracle.trajectory("DBO", whole, topology.W, *start, 1, **settings, **oracle)[1].z.reshape(3, -1)
    first, second = _moments(kind(step=0.2, iterations=3), problem, topology, answers, _Z, batch_size=1)
    standard_error = np.sqrt((second - first**2) / answers)
    assert (np.abs(first - expected) / standard_error).max() < STANDARD_ERRORS


# Seeds


@pytest.mark.parametrize("homogeneous", [True, False], ids=["homogeneous", "heterogeneous"])
def test_a_seed_fixes_every_bit_and_another_seed_gives_other_numbers(homogeneous, few):
    oracle = hg.Neumann(step=0.1, terms=3) if homogeneous else hg.JHIP(step=0.1, iterations=3)
    algorithm = hg.DSBO(0.05, 0.1, 3, oracle, homogeneous=homogeneous, batch_size=2)
    first, again, other = (
        hg.run(algorithm, few.hg_problem, hg.ring(4), 10, record_every=10, seed=seed) for seed in (7, 7, 8)
    )
    for name in ("x", "y"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert np.all(np.asarray(getattr(first, name)) != np.asarray(getattr(other, name)))


# Draws


class _Recorded(NamedTuple):
    y: Any
    x: Any
    draws: Any


class Record(hg.algorithms.Algorithm):
    """Keeps what it draws for some purposes in every iteration, and moves nothing."""

    measure: Callable = eqx.field(static=True)
    """What of a draw is kept, as an array."""
    steps: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def _draws(self, agent):
        draw = agent.sample(self.batch_size)
        by_name = jnp.stack([self.measure(draw(*purpose)) for purpose in PURPOSES])
        in_a_loop = jax.lax.map(lambda t: self.measure(draw("inner", t)), jnp.arange(2))
        return jnp.concatenate([by_name, in_a_loop])

    def init(self, agent, x, y):
        shape = jax.eval_shape(lambda: self._draws(agent)).shape
        return _Recorded(y, x, jnp.zeros((self.steps, *shape)))

    def step(self, agent, s):
        return s._replace(draws=s.draws.at[agent.k].set(self._draws(agent))), {}


def _no_loss(x, y, batch):
    return x @ x + y @ y


def _record(data, measure, steps, batch_size, seed=0):
    """What was drawn, (agents, iterations, purposes, ...): for all `PURPOSES`, then for the first two in a loop."""
    problem = hg.Problem(_no_loss, _no_loss, upper_data=data, lower_data=data, x0=jnp.zeros(1), y0=jnp.zeros(1))
    algorithm = Record(measure, steps, batch_size)
    trace = hg.run(algorithm, problem, hg.ring(problem.n), steps, record_every=steps, seed=seed)
    return np.asarray(trace.state.draws)


ROWS, BATCH, PURPOSES = 32, 8, (("inner", 0), ("inner", 1), ("upper",), ("lower", 0))


def _row_numbers(local):
    return jnp.stack([local.upper_batch["row"], local.lower_batch["row"]])


@pytest.fixture(scope="module")
def draws() -> Callable[[int], np.ndarray]:
    """seed ↦ row numbers (agents, iterations, purposes, upper and lower, batch)."""
    data = {"row": np.broadcast_to(np.arange(ROWS, dtype=float), (3, ROWS))}
    return cache(lambda seed: _record(data, _row_numbers, 250, BATCH, seed))


def test_a_purpose_has_the_same_rows_whenever_it_is_asked_for(draws):
    rows = draws(0)
    assert np.array_equal(rows[:, :, :2], rows[:, :, -2:])


def test_agents_iterations_purposes_and_levels_all_have_rows_of_their_own(draws):
    rows = draws(0)[:, :, : len(PURPOSES)].reshape(-1, BATCH)
    # 6,000 batches of 8 out of 32 rows in order: two alike are expected 1.6e-5 times.
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_another_seed_draws_other_rows(draws):
    rows, other = (draws(seed)[:, :, : len(PURPOSES)].reshape(-1, BATCH) for seed in (0, 1))
    assert len(np.unique(np.concatenate([rows, other]), axis=0)) == 2 * len(rows)


def _p_value(observed):
    """Of a uniform distribution over the cells, by the chi-square test."""
    return stats.chisquare(observed.ravel()).pvalue


def test_rows_are_drawn_uniformly(draws):
    rows = draws(0)[:, :, : len(PURPOSES)].astype(int)
    assert 1e-3 < _p_value(np.bincount(rows.ravel(), minlength=ROWS)) < 1 - 1e-3
    for agent in rows:
        assert _p_value(np.bincount(agent.ravel(), minlength=ROWS)) > 1e-3


@pytest.mark.parametrize(
    "pair", ["upper and lower", "two purposes", "neighbours in a batch", "two iterations", "two agents"]
)
def test_draws_are_independent_of_each_other(pair, draws):
    rows = draws(0)[:, :, : len(PURPOSES)].astype(int)
    first, second = {
        "upper and lower": (rows[:, :, :, 0], rows[:, :, :, 1]),
        "two purposes": (rows[:, :, 0], rows[:, :, 1]),
        "neighbours in a batch": (rows[..., ::2], rows[..., 1::2]),
        "two iterations": (rows[:, ::2], rows[:, 1::2]),
        "two agents": (rows[0], rows[1]),
    }[pair]
    together = np.bincount((ROWS * first + second).ravel(), minlength=ROWS**2)
    assert 1e-3 < _p_value(together) < 1 - 1e-3


COUNTS = (3, 7, 5)


@pytest.fixture(scope="module")
def ragged() -> hg.Ragged:
    """Rows 1 … m_i at agent i; padding would show as 0."""
    return hg.stack_ragged([{"row": np.arange(1.0, m + 1)} for m in COUNTS])


def _rows_weights_and_sums(local):
    batch = local.lower_batch
    total = jnp.sum(batch.weight * batch.data["row"])
    mean = total / batch.count.astype(total.dtype)
    return jnp.concatenate([batch.data["row"], batch.weight, total[None], mean[None]])


@pytest.fixture(scope="module")
def ragged_draws(ragged) -> list[np.ndarray]:
    """Rows, weights, weighted sums and weighted means, each (agents, draws, ...)."""
    recorded = _record(ragged, _rows_weights_and_sums, 1000, BATCH)[:, :, : len(PURPOSES)]
    recorded = recorded.reshape(len(COUNTS), -1, recorded.shape[-1])
    return np.split(recorded, [BATCH, 2 * BATCH, 2 * BATCH + 1], axis=-1)


def test_padding_is_never_drawn_and_every_example_is(ragged_draws):
    rows, *_ = ragged_draws
    for m, agent in zip(COUNTS, rows.astype(int), strict=True):
        observed = np.bincount(agent.ravel(), minlength=m + 1)
        assert observed[0] == 0
        assert len(observed) == m + 1
        assert _p_value(observed[1:]) > 1e-3


def test_weighted_sums_of_draws_are_unbiased_for_the_agents_sum_and_mean(ragged_draws):
    _, weights, sums, means = ragged_draws
    for i, m in enumerate(COUNTS):
        assert np.all(weights[i] == m / BATCH)
        for drawn, expected in ((sums[i], m * (m + 1) / 2), (means[i], (m + 1) / 2)):
            standard_error = drawn.std() / np.sqrt(len(drawn))
            assert abs(drawn.mean() - expected) < STANDARD_ERRORS * standard_error
            assert standard_error < 0.01 * expected  # fine enough to tell a mean over padding, or of other weights


def test_all_rows_weigh_one_and_padding_nothing(ragged):
    sums = (ragged.weight * ragged.data["row"]).sum(axis=1)
    np.testing.assert_array_equal(sums, [m * (m + 1) / 2 for m in COUNTS])
    np.testing.assert_array_equal(ragged.weight.sum(axis=1), COUNTS)
    np.testing.assert_array_equal(ragged.count, COUNTS)
