"""The library's per-agent programs against independent code that sees all agents at once, number by number."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpy_oracle
import problems
import pytest

import hypergossip as hg

LENGTHS = (1, 2, 3, 7, 15)
"""Runs of these lengths: the trajectory is compared where trackers start, go on, and have gone on for long."""

SETTINGS = {"outer_step": 0.05, "inner_step": 0.15, "inner_iterations": 3}


def _start(problem):
    """Every agent somewhere else, and nobody at a point where a derivative happens to vanish."""
    rng = np.random.default_rng(5)
    return rng.standard_normal((problem.n, problem.p)) / 2, rng.standard_normal((problem.n, problem.q)) / 2


@cache
def _started(problem):
    return problems.started_at(problem.hg_problem, *_start(problem))


def _assert_same_trajectory(algorithm, problem, topology, expected):
    for steps in LENGTHS:
        trace = hg.run(algorithm, _started(problem), topology, steps, record_every=100)
        for name, ours, theirs in zip(("x", "y"), (trace.x, trace.y), expected[steps][:2], strict=True):
            error = np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max()
            assert error < 1e-10, f"{name} after {steps} outer iterations: relative error {error:.1e}"


@pytest.mark.parametrize("carry", [True, False], ids=["carry", "letter"])
@pytest.mark.parametrize("oracle", [hg.AID(3), hg.JHIP(0.1, 4), hg.HIGP(0.1, 4)], ids=["AID", "JHIP", "HIGP"])
@pytest.mark.parametrize("kind", [hg.DBO, hg.DBOGT])
@pytest.mark.parametrize("name", ["quadratic", "logistic"])
def test_every_agents_iterates_are_those_of_the_stacked_matrix_form(name, kind, oracle, carry, request):
    problem = request.getfixturevalue(name)
    # An irregular graph: a ring's W looks the same from every agent, which hides mixed-up rows.
    topology = hg.erdos_renyi(problem.n, 0.4, seed=3)
    homogeneous = isinstance(oracle, hg.AID)
    expected = numpy_oracle.trajectory(
        kind.__name__,
        problem,
        topology.W,
        *_start(problem),
        max(LENGTHS),
        **SETTINGS,
        oracle=type(oracle).__name__,
        oracle_iterations=oracle.iterations,
        oracle_step=0.1,
        homogeneous=homogeneous,
        carry=carry,
    )
    algorithm = kind(**SETTINGS, hypergradient=oracle, homogeneous=homogeneous, carry=carry)
    _assert_same_trajectory(algorithm, problem, topology, expected)


def _outer_schedule(k):
    return 0.1 / (jnp.float64(k) + 2.0)


def _inner_schedule(t):
    return 0.2 / (jnp.float64(t) + 1.0)


def _oracle_schedule(t):
    return 0.3 / (jnp.float64(t) + 2.0)


@pytest.mark.parametrize("kind", [hg.DBOGT, hg.DSBO])
def test_schedules_are_read_at_the_index_of_the_loop_that_they_belong_to(kind, logistic):
    topology = hg.ring(logistic.n, self_weight=0.4)
    steps = {"outer_step": _outer_schedule, "inner_step": _inner_schedule, "inner_iterations": 3}
    expected = numpy_oracle.trajectory(
        kind.__name__,
        logistic,
        topology.W,
        *_start(logistic),
        max(LENGTHS),
        **steps,
        oracle="JHIP",
        oracle_iterations=4,
        oracle_step=_oracle_schedule,
    )
    stochastic = {"batch_size": None} if kind is hg.DSBO else {}
    algorithm = kind(**steps, hypergradient=hg.JHIP(step=_oracle_schedule, iterations=4), **stochastic)
    _assert_same_trajectory(algorithm, logistic, topology, expected)


@pytest.mark.parametrize("carry", [True, False], ids=["carry", "letter"])
def test_dsbo_with_all_rows_is_gossip_descent_without_tracking_and_jhip(carry, logistic):
    topology = hg.erdos_renyi(logistic.n, 0.4, seed=3)
    expected = numpy_oracle.trajectory(
        "DSBO",
        logistic,
        topology.W,
        *_start(logistic),
        max(LENGTHS),
        **SETTINGS,
        oracle="JHIP",
        oracle_iterations=4,
        oracle_step=0.1,
        carry=carry,
    )
    algorithm = hg.DSBO(**SETTINGS, hypergradient=hg.JHIP(step=0.1, iterations=4), carry=carry, batch_size=None)
    _assert_same_trajectory(algorithm, logistic, topology, expected)


def test_a_lower_level_too_large_for_its_hessian_matrix_gives_the_same_numbers():
    # q > N·p: here JHIP multiplies by H_i instead of making it a matrix.
    problem = problems.Quadratic(n=4, p=1, q=6, heterogeneous=True)
    topology = hg.ring(problem.n, self_weight=0.5)
    expected = numpy_oracle.trajectory(
        "DBOGT",
        problem,
        topology.W,
        *_start(problem),
        max(LENGTHS),
        **SETTINGS,
        oracle="JHIP",
        oracle_iterations=4,
        oracle_step=0.1,
    )
    algorithm = hg.DBOGT(**SETTINGS, hypergradient=hg.JHIP(step=0.1, iterations=4))
    _assert_same_trajectory(algorithm, problem, topology, expected)


@pytest.mark.parametrize(("kind", "homogeneous"), [(hg.DBO, True), (hg.DBO, False), (hg.DBOGT, False), (hg.DSBO, True)])
def test_one_agent_alone_is_bilevel_descent_on_one_machine(kind, homogeneous):
    problem = problems.Logistic(n=1, p=4, examples=12)
    topology = hg.ring(1) if homogeneous else hg.complete(1)
    (x,), (y,) = _start(problem)
    expected = numpy_oracle.single_machine(problem, x, y, max(LENGTHS), **SETTINGS, cg_steps=3)
    stochastic = {"batch_size": None} if kind is hg.DSBO else {}
    algorithm = kind(**SETTINGS, hypergradient=hg.AID(iterations=3), homogeneous=homogeneous, **stochastic)
    _assert_same_trajectory(algorithm, problem, topology, [(x[None], y[None]) for x, y in expected])
