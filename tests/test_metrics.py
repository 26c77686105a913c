"""What is recorded of a run against the same numbers computed from the stacked iterates in NumPy."""

from functools import cache
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import numpy_oracle
import problems
import pytest

import hypergossip as hg

STEPS = 12
SETTINGS = {"outer_step": 0.3, "inner_step": 0.15, "inner_iterations": 3}
EVERYWHERE = np.arange(STEPS + 1)


def _start(problem):
    rng = np.random.default_rng(9)
    return rng.standard_normal((problem.n, problem.p)) / 2, rng.standard_normal((problem.n, problem.q)) / 2


@cache
def _started(problem):
    return problems.started_at(problem.hg_problem, *_start(problem))


def _topology(problem):
    return hg.ring(problem.n, self_weight=0.5)


def _watch(problem, algorithm, metrics, steps=STEPS, **settings):
    return hg.run(algorithm, _started(problem), _topology(problem), steps, metrics=metrics, **settings).metrics


@cache
def _iterates(problem, kind, oracle, iterations, homogeneous, carry=True):
    """The same run in NumPy, an `Iterate` per outer iteration."""
    return numpy_oracle.trajectory(
        kind,
        problem,
        _topology(problem).W,
        *_start(problem),
        STEPS,
        **SETTINGS,
        oracle=oracle,
        oracle_iterations=iterations,
        oracle_step=0.1,
        homogeneous=homogeneous,
        carry=carry,
    )


def _running(terms):
    """Sums over the outer iterations so far, from 0 before the first."""
    return np.concatenate([[0], np.cumsum(terms)])


def _agrees(recorded, expected, rtol=1e-9):
    np.testing.assert_allclose(recorded, expected, rtol=rtol, atol=1e-14)


# Agents that differ: tracked inner loop, JHIP

HETEROGENEOUS = hg.DBO(**SETTINGS, hypergradient=hg.JHIP(step=0.1, iterations=4))


def own_losses(witness):
    """A metric of one's own: agent i's value, which the record averages; and numbers that all agents know."""
    return {
        "own_loss": witness.exact.f(witness.state.x, witness.state.y),
        "total_x": witness.sum(jnp.sum(witness.x)),
        "largest_y": witness.max(jnp.max(witness.y)),
    }


def first_of_mean_y(witness):
    return witness.mean_y[0]


ALL = (
    hg.hypergradient_norm(),
    hg.upper_loss(),
    hg.lower_residual(),
    hg.disagreement(),
    hg.movement(),
    hg.inner_error(),
    own_losses,
    first_of_mean_y,
)


@pytest.fixture(scope="module")
def watched(logistic):
    """A run's records with all metrics, and its iterates."""
    return _watch(logistic, HETEROGENEOUS, ALL), _iterates(logistic, "DBO", "JHIP", 4, False)


def _upper_losses(logistic, y):
    """f_i(y_i), by hand."""
    feature, label = logistic.data["upper"]["feature"], logistic.data["upper"]["label"]
    return np.log1p(np.exp(-label * np.einsum("nmp,np->nm", feature, y))).mean(axis=1)


def _repeated(mean, like):
    return np.broadcast_to(mean, like.shape)


def test_there_is_a_record_at_the_start_and_after_every_iteration(watched):
    records, _ = watched
    np.testing.assert_array_equal(records["step"], EVERYWHERE)
    assert {len(values) for values in records.values()} == {STEPS + 1}


def test_consensus_is_the_root_mean_square_distance_from_the_mean(watched):
    records, iterates = watched
    _agrees(records["consensus"], [np.sqrt(((s.x - s.x.mean(0)) ** 2).sum(1).mean()) for s in iterates])


def test_upper_loss_is_the_mean_of_all_agents_losses_at_the_mean_iterate(watched, logistic):
    records, iterates = watched
    _agrees(records["upper_loss"], [_upper_losses(logistic, _repeated(s.y.mean(0), s.y)).mean() for s in iterates])


def test_lower_residual_is_the_mean_gradient_at_the_mean_iterate(watched, logistic):
    records, iterates = watched
    gradients = [logistic.gy(_repeated(s.x.mean(0), s.x), _repeated(s.y.mean(0), s.y)).mean(0) for s in iterates]
    _agrees(records["lower_residual"], np.linalg.norm(gradients, axis=1))


def test_S_K_adds_up_disagreement(watched):
    records, iterates = watched
    _agrees(records["S_K"], _running([((s.x - s.x.mean(0)) ** 2).sum() for s in iterates[1:]]))


def test_E_K_adds_up_movement(watched):
    records, iterates = watched
    _agrees(
        records["E_K"],
        _running([((s.x - before.x) ** 2).sum() for before, s in pairwise(iterates)]),
    )


def test_A_K_adds_up_distances_from_the_networks_minimiser(watched, logistic):
    records, iterates = watched
    terms = [
        ((s.y - numpy_oracle.network_minimiser(logistic, before.x)) ** 2).sum() for before, s in pairwise(iterates)
    ]
    _agrees(records["A_K"], _running(terms))
    own = [((s.y - numpy_oracle.own_minimisers(logistic, before.x)) ** 2).sum() for before, s in pairwise(iterates)]
    assert abs(records["A_K"][-1] / sum(own) - 1) > 0.1  # the other reading is another number here


def test_a_metric_of_ones_own_sees_every_agent_and_is_averaged(watched, logistic):
    records, iterates = watched
    _agrees(records["own_loss"], [_upper_losses(logistic, s.y).mean() for s in iterates])
    _agrees(records["total_x"], [s.x.sum() for s in iterates])
    _agrees(records["largest_y"], [s.y.max() for s in iterates])
    _agrees(records["first_of_mean_y"], [s.y.mean(0)[0] for s in iterates])


def test_running_sums_do_not_depend_on_how_often_records_are_made(watched, logistic):
    records, _ = watched
    rarely = _watch(logistic, HETEROGENEOUS, ALL, record_every=5)
    np.testing.assert_array_equal(rarely["step"], [0, 5, 10, 12])
    for name in ("S_K", "E_K", "A_K"):
        assert np.array_equal(rarely[name], records[name][rarely["step"]]), name


def test_a_sum_whose_exact_solves_fail_is_not_a_number_from_there_on(logistic):
    records = _watch(logistic, HETEROGENEOUS, (hg.inner_error(tolerance=1e-300),), steps=2)
    assert records["A_K"][0] == 0
    assert np.isnan(records["A_K"][1:]).all()


# Agents that are taken for alike: local inner loop, AID


def _homogeneous(carry):
    return hg.DBO(**SETTINGS, hypergradient=hg.AID(iterations=2), homogeneous=True, carry=carry)


@cache
def _homogeneous_records(problem, carry):
    said = None if carry else True  # A_K is read as the algorithm reads it, or as one says
    return _watch(problem, _homogeneous(carry), (hg.inner_error(homogeneous=said), hg.linear_error()))


@pytest.mark.parametrize("carry", [True, False], ids=["carry", "letter"])
def test_A_K_and_B_K_of_homogeneous_runs_are_about_each_agents_own_problem(carry, logistic):
    records = _homogeneous_records(logistic, carry)
    inner, linear = [], []
    for before, after in pairwise(_iterates(logistic, "DBO", "AID", 2, True, carry)):
        y = numpy_oracle.own_minimisers(logistic, before.x)
        v = np.linalg.solve(logistic.H(before.x, y), logistic.fy(before.x, y)[..., None])[..., 0]
        inner.append(((after.y - y) ** 2).sum())
        linear.append(((v - before.z) ** 2).sum())
    _agrees(records["A_K"], _running(inner))
    _agrees(records["B_K"], _running(linear))


def test_the_oracles_residual_is_the_worst_agents(logistic):
    residuals = []
    for before, after in pairwise(_iterates(logistic, "DBO", "AID", 2, True)):
        fy = logistic.fy(before.x, after.y)
        left = np.einsum("nab,nb->na", logistic.H(before.x, after.y), after.z) - fy
        residuals.append((np.linalg.norm(left, axis=1) / np.linalg.norm(fy, axis=1)).max())
    recorded = _homogeneous_records(logistic, True)["oracle_residual"]
    assert np.isnan(recorded[0])  # nothing has been solved at the start
    _agrees(recorded[1:], residuals, rtol=1e-6)


@pytest.mark.parametrize("carry", [True, False], ids=["carry", "letter"])
@pytest.mark.parametrize(
    "oracle", [hg.JHIP(step=0.1, iterations=2), hg.Neumann(step=0.1, terms=2)], ids=["JHIP", "Neumann"]
)
def test_B_K_is_refused_where_there_is_no_linear_system_of_aid(oracle, carry, logistic):
    algorithm = hg.DBO(**SETTINGS, hypergradient=oracle, carry=carry)
    with pytest.raises(ValueError, match=r"B_K.*AID"):
        _watch(logistic, algorithm, (hg.linear_error(),), steps=1)


# The exact gradient


def _assert_exact_along_the_run(records, iterates, problem):
    expected = [np.linalg.norm(problem.hypergradient(s.x.mean(axis=0))) for s in iterates]
    assert min(expected) > 1e-4  # relative errors mean something
    assert np.linalg.norm(iterates[-1].x.mean(axis=0) - iterates[0].x.mean(axis=0)) > 0.05  # and the points differ
    np.testing.assert_allclose(records["hypergradient_norm"], expected, rtol=1e-8)
    assert np.all(records["hypergradient_norm.converged"] == 1)
    assert records["hypergradient_norm.residual"].max() < 1e-12


def test_hypergradient_norm_is_the_closed_form_where_newtons_method_is_needed(watched, logistic):
    _assert_exact_along_the_run(*watched, logistic)


def test_hypergradient_norm_is_the_closed_form_of_quadratics_that_differ(quadratic):
    records = _watch(quadratic, HETEROGENEOUS, (hg.hypergradient_norm(),))
    _assert_exact_along_the_run(records, _iterates(quadratic, "DBO", "JHIP", 4, False), quadratic)


def test_hypergradient_norm_is_the_closed_form_of_quadratics_that_share_a_lower_level(homogeneous_quadratic):
    records = _watch(homogeneous_quadratic, _homogeneous(True), (hg.hypergradient_norm(),))
    iterates = _iterates(homogeneous_quadratic, "DBO", "AID", 2, True)
    _assert_exact_along_the_run(records, iterates, homogeneous_quadratic)


def test_a_gradient_whose_solves_failed_is_announced_as_such(logistic):
    impatient = hg.hypergradient_norm(newton_steps=1, cg_steps=1)
    with pytest.warns(hg.UnconvergedWarning, match=r"hypergradient_norm at outer iteration 0 .* do not trust"):
        records = _watch(logistic, HETEROGENEOUS, (impatient,), steps=3)
    assert np.all(records["hypergradient_norm.converged"] == 0)
    assert records["hypergradient_norm.residual"].min() > 1e-6
    expected = [
        np.linalg.norm(logistic.hypergradient(s.x.mean(axis=0)))
        for s in _iterates(logistic, "DBO", "JHIP", 4, False)[:4]
    ]
    assert np.abs(records["hypergradient_norm"] / expected - 1).min() > 1e-6  # the warning is not a false alarm


# A user's own metrics


@pytest.fixture(scope="module")
def nested() -> hg.Problem:
    """Pytrees for x and y; f_i = (x.scale − target_i)² and g_i pulls y towards x.scale times a matrix."""
    matrix = jnp.arange(6.0).reshape(2, 3)

    def upper(x, y, batch):
        return jnp.mean((x["scale"] - batch) ** 2) + 0.01 * jnp.sum(y["M"]["inner"] ** 2)

    def lower(x, y, batch):
        return 0.5 * jnp.sum((y["M"]["inner"] - x["scale"] * matrix) ** 2) + 0.5 * jnp.mean(batch) ** 2

    target = np.array([[1.0], [2.0], [6.0]])
    start = {"x0": {"scale": jnp.float64(0.5)}, "y0": {"M": {"inner": jnp.ones((2, 3))}}}
    return hg.Problem(upper, lower, upper_data=target, lower_data=target, **start)


def corner(witness):
    return witness.mean_y["M"]["inner"][1, 2]


def shapes(witness):
    """Own and mean variables come as the problem's pytrees."""
    own, mean = witness.y["M"]["inner"], witness.mean_y["M"]["inner"]
    return {
        "rows": jnp.float64(own.shape[0] + 10 * mean.shape[0]),
        "scale": witness.mean_x["scale"],
        "spread": jnp.abs(witness.x["scale"] - witness.mean_x["scale"]),
    }


def test_metrics_see_the_problems_own_pytrees(nested):
    algorithm = hg.DBO(0.1, 0.5, 2, hg.AID(iterations=2), homogeneous=True)
    trace = hg.run(algorithm, nested, hg.ring(3, self_weight=0.5), 5, metrics=[corner, shapes])
    assert trace.metrics["corner"][0] == 1
    assert trace.metrics["corner"][-1] == pytest.approx(float(trace.mean_y["M"]["inner"][1, 2]), rel=1e-14)
    assert trace.metrics["scale"][-1] == pytest.approx(float(trace.mean_x["scale"]), rel=1e-14)
    np.testing.assert_array_equal(trace.metrics["rows"], np.full(6, 22.0))
    deviations = np.abs(np.asarray(trace.x["scale"]) - float(trace.mean_x["scale"]))
    assert trace.metrics["spread"][-1] == pytest.approx(deviations.mean(), rel=1e-13)
    assert trace.metrics["spread"][-1] > 0


def _taking(name):
    def metric(witness):
        return {name: jnp.sum(witness.x)}

    return metric


@pytest.mark.parametrize("name", ["step", "consensus", "first_of_mean_y"])
def test_a_value_that_takes_the_name_of_another_is_refused(name, logistic):
    with pytest.raises(ValueError, match=name):
        _watch(logistic, HETEROGENEOUS, (first_of_mean_y, _taking(name)), steps=1)
