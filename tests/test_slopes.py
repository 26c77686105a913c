"""How the average of ‖∇Φ(x̄_k)‖² falls as runs get longer, against the orders that the theorems promise.

Each theorem ties the steps to K, the number of outer iterations. Φ is quadratic here, so its gradient
is known in closed form at every iterate and can be averaged over all of them.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import problems
import pytest
from scipy import stats

import hypergossip as hg

TOPOLOGY = hg.ring(8, self_weight=0.5)
LONG = 2 ** np.arange(7, 13)
CURVATURE = 0.01
"""What finite K bends a log-log line: orders hold in the limit only."""


@cache
def _squared_gradient(problem: problems.Quadratic):
    """‖∇Φ(x̄)‖² as a metric; ∇Φ is affine."""
    at_zero = problem.hypergradient(np.zeros(problem.p))
    columns = [problem.hypergradient(e) - at_zero for e in np.eye(problem.p)]
    P, r = jnp.asarray(np.stack(columns, axis=1)), jnp.asarray(at_zero)

    def squared_gradient(witness):
        gradient = P @ witness.mean_x + r
        return gradient @ gradient

    return squared_gradient


def _average(algorithm, problem, closed_form, K, seed=0):
    """mean_{k ≤ K} ‖∇Φ(x̄_k)‖²."""
    metric = _squared_gradient(closed_form)
    trace = hg.run(algorithm, problem, TOPOLOGY, int(K), metrics=[metric], seed=seed)
    values = trace.metrics["squared_gradient"]
    assert len(values) == K + 1
    return values.mean()


def _fit(lengths, averages):
    """(slope, its standard error) of log average against log K."""
    fit = stats.linregress(np.log(lengths), np.log(averages))
    return fit.slope, fit.stderr


def _as_steep_as(order, lengths, averages):
    """Whether the fitted slope, given two standard errors and the curvature, is at or below the order."""
    slope, error = _fit(lengths, averages)
    assert error < 0.05, f"a slope of {slope:.3f} ± {error:.3f} proves nothing"
    return slope <= order + 2 * error + CURVATURE


def _deterministic(kind, problem, outer_step, lengths=LONG):
    """The averages of runs with η_x = outer_step(K)."""
    oracle = hg.JHIP(step=0.1, iterations=20) if problem.heterogeneous else hg.AID(iterations=20)
    settings = {"inner_step": 0.1, "hypergradient": oracle, "homogeneous": not problem.heterogeneous}
    return [_average(kind(outer_step(K), **settings), problem.hg_problem, problem, K) for K in lengths]


@pytest.mark.parametrize("name", ["quadratic", "homogeneous_quadratic"])
def test_dbo_with_steps_of_order_one_over_the_cube_root_of_k(name, request):
    problem = request.getfixturevalue(name)
    averages = _deterministic(hg.DBO, problem, lambda K: 0.03 * (K / 32) ** (-1 / 3))
    assert _as_steep_as(-2 / 3, LONG, averages)
    constant, _ = _fit(LONG, _deterministic(hg.DBO, problem, lambda K: 0.15))
    assert constant > -1 / 2  # steps that do not shrink end at a bias, and this measurement shows it


@pytest.mark.parametrize("name", ["quadratic", "homogeneous_quadratic"])
def test_dbogt_with_a_constant_step_gains_one_over_k_and_dbo_does_not(name, request):
    problem = request.getfixturevalue(name)
    assert _as_steep_as(-1, LONG, _deterministic(hg.DBOGT, problem, lambda K: 0.05))
    slope, _ = _fit(LONG, _deterministic(hg.DBO, problem, lambda K: 0.05))
    assert slope > -0.9


SEEDS = 3


def _stochastic(algorithm_for, sampled, lengths):
    """The averages of runs with algorithm_for(K), every K with some seeds; and the lengths, repeated likewise."""
    runs = [(K, seed) for K in lengths for seed in range(SEEDS)]
    averages = [_average(algorithm_for(K), sampled.hg_problem, sampled.whole, K, seed) for K, seed in runs]
    return np.array([K for K, _ in runs]), averages


def test_homogeneous_dsbo_with_steps_of_order_one_over_the_square_root_of_k(homogeneous_quadratic):
    sampled = problems.SampledQuadratic(homogeneous_quadratic, examples=8, spread=0.5)
    oracle = hg.Neumann(step=0.2, terms=14)

    def algorithm_for(K, exponent=-0.5):
        scale = (K / 64) ** exponent
        return hg.DSBO(0.1 * scale, 0.2 * scale, 5, oracle, homogeneous=True, batch_size=2)

    assert _as_steep_as(-0.5, *_stochastic(algorithm_for, sampled, LONG))
    constant, _ = _fit(*_stochastic(lambda K: algorithm_for(K, exponent=0.0), sampled, [128, 1024]))
    assert constant > -0.25  # steps that do not shrink end in noise


def _diminishing(t):
    return 2.0 / (jnp.float64(t) + 10.0)


def test_heterogeneous_dsbo_with_inner_loops_of_order_square_root_of_k(quadratic):
    sampled = problems.SampledQuadratic(quadratic, examples=8, spread=0.5)

    def algorithm_for(K):
        oracle = hg.JHIP(step=_diminishing, iterations=int(2 * np.log2(K)))
        return hg.DSBO(0.05 * (K / 64) ** -0.5, _diminishing, int(np.sqrt(K)), oracle, batch_size=2)

    assert _as_steep_as(-0.5, *_stochastic(algorithm_for, sampled, (64, 196, 576)))
