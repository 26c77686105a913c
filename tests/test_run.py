"""The one loop: what it records, that nothing but the problem and the seed decides the numbers, and how it fails."""

import importlib
import itertools
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import problems
import pytest
import table

import hypergossip as hg
from hypergossip.algorithms import Algorithm
from hypergossip.local import Local
from hypergossip.steps import Step, at

STEPS = 7


class State(NamedTuple):
    y: jax.Array
    x: jax.Array


class Descent(Algorithm):
    """Gossip descent on y and x at once, and a count of how often Python ran through it."""

    outer_step: Step
    inner_step: Step
    noise: bool = eqx.field(static=True, default=False)

    cite: ClassVar[str] = ""
    reports: ClassVar[tuple[str, ...]] = ("slope",)
    blame: ClassVar[dict[str, str]] = {"y": "inner_step", "x": "outer_step"}
    calls: ClassVar[list[int]] = []

    def init(self, agent, x, y):
        return State(y, x)

    def step(self, agent, s):
        self.calls.append(1)
        slope = agent.exact.fx(s.x, s.y)
        if self.noise:
            slope += jax.random.normal(agent.random_key("noise"), slope.shape, slope.dtype)
        y = agent.mix(s.y, "y") - at(self.inner_step, agent.k, s.y) * agent.exact.gy(s.x, s.y)
        x = agent.mix(s.x, "x") - at(self.outer_step, agent.k, s.x) * slope
        return State(y, x), {"slope": jnp.linalg.norm(slope)}


@pytest.fixture
def run(quadratic):
    """A short run of the small algorithm; all of them share one compilation."""

    def run(algorithm=None, steps=STEPS, **settings):
        algorithm = algorithm or Descent(0.05, 0.1)
        return hg.run(algorithm, quadratic.hg_problem, hg.ring(quadratic.n), steps, **settings)

    return run


def assert_same(one, other):
    """Bitwise, in state and records."""
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.metrics.keys() == other.metrics.keys()
    for name in one.metrics:
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name])


# Records


@pytest.mark.parametrize(
    ("steps", "record_every", "expected"),
    [(7, 1, range(8)), (7, 3, [0, 3, 6, 7]), (6, 3, [0, 3, 6]), (2, 5, [0, 2]), (1, 1, [0, 1])],
)
def test_records_are_made_at_the_start_every_so_often_and_at_the_end(run, steps, record_every, expected):
    trace = run(steps=steps, record_every=record_every)
    np.testing.assert_array_equal(trace.metrics["step"], expected)
    everything = run(steps=steps).metrics
    for name, values in trace.metrics.items():
        np.testing.assert_array_equal(values, everything[name][list(expected)])


def test_records_are_numpy_with_step_and_consensus_always_among_them(run, quadratic):
    trace = run()
    assert set(trace.metrics) == {"step", "consensus", "slope"}
    for values in trace.metrics.values():
        assert type(values) is np.ndarray
        assert values.shape == (STEPS + 1,)
    assert np.issubdtype(trace.metrics["step"].dtype, np.integer)
    x = np.asarray(trace.x)
    expected = np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert trace.metrics["consensus"][-1] == pytest.approx(expected, rel=1e-13)
    assert trace.metrics["consensus"][0] == 0  # all agents start at one point
    assert np.isnan(trace.metrics["slope"][0])  # nothing reported before the first step


def test_reports_are_recorded_as_the_worst_over_the_agents(run, quadratic):
    last, end = run(steps=STEPS).metrics["slope"][-1], run(steps=STEPS - 1)
    slopes = np.linalg.norm(quadratic.fx(np.asarray(end.x), np.asarray(end.y)), axis=1)
    assert last == pytest.approx(slopes.max(), rel=1e-13)


def test_metrics_of_ones_own_are_averaged_and_named_after_their_functions_or_keys(run):
    def largest(witness):
        return jnp.max(jnp.abs(witness.x))

    def both(witness):
        return {"smallest": jnp.min(jnp.abs(witness.x)), "mean": jnp.mean(witness.mean_x)}

    trace = run(metrics=[largest, both, hg.upper_loss()])
    assert set(trace.metrics) == {"step", "consensus", "slope", "largest", "smallest", "mean", "upper_loss"}
    x = np.asarray(trace.x)
    assert trace.metrics["largest"][-1] == pytest.approx(np.abs(x).max(axis=1).mean(), rel=1e-13)
    assert trace.metrics["smallest"][-1] == pytest.approx(np.abs(x).min(axis=1).mean(), rel=1e-13)
    assert trace.metrics["mean"][-1] == pytest.approx(x.mean(), rel=1e-13)


def test_the_table_has_one_row_per_record(run):
    trace = run(record_every=2)
    frame = trace.to_frame()
    assert frame.columns == list(trace.metrics)
    assert frame["step"].to_list() == [0, 2, 4, 6, 7]
    np.testing.assert_array_equal(frame["consensus"].to_numpy(), trace.metrics["consensus"])


def test_one_metric_by_its_name_is_plotted_alone(run):
    trace = run(metrics=[hg.upper_loss()])
    one, listed = ([axes.get_title() for axes in trace.plot(names).axes] for names in ("upper_loss", ["upper_loss"]))
    assert one == listed
    assert len(one) == 1


def test_the_text_of_a_trace_tells_the_last_values(run):
    trace = run()
    assert repr(trace).startswith(f"Trace({STEPS} outer iterations; consensus {trace.metrics['consensus'][-1]:.4g}")


def test_time_is_told_apart_into_compiling_and_running(run):
    seconds = run().seconds
    assert set(seconds) == {"compile", "run"}
    assert min(seconds.values()) > 0


# What goes in comes out


def test_pytrees_go_in_and_come_out_with_an_agents_axis(run, quadratic):
    def of_trees(loss):
        return lambda x, y, batch: loss(jnp.concatenate([x["a"], x["b"].reshape(-1)]), y[0], batch)

    flat = quadratic.hg_problem
    problem = hg.Problem(
        of_trees(flat.upper),
        of_trees(flat.lower),
        upper_data=flat.upper_data,
        lower_data=flat.lower_data,
        x0={"a": jnp.zeros(1), "b": jnp.zeros((2, 2))},
        y0=(jnp.zeros(6),),
    )
    trace, plain = hg.run(Descent(0.05, 0.1), problem, hg.ring(8), STEPS), run()
    assert trace.x["a"].shape == (8, 1)
    assert trace.x["b"].shape == (8, 2, 2)
    assert trace.y[0].shape == (8, 6)
    np.testing.assert_allclose(trace.x["a"], plain.x[:, :1], rtol=0, atol=1e-15)
    np.testing.assert_allclose(trace.x["b"].reshape(8, 4), plain.x[:, 1:], rtol=0, atol=1e-15)
    np.testing.assert_allclose(trace.y[0], plain.y, rtol=0, atol=1e-15)
    np.testing.assert_allclose(trace.mean_x["b"], np.asarray(trace.x["b"]).mean(axis=0), rtol=0, atol=1e-15)
    np.testing.assert_allclose(trace.mean_y[0], np.asarray(trace.y[0]).mean(axis=0), rtol=0, atol=1e-15)


def test_a_run_is_the_update_rule_from_the_start_on(run, quadratic):
    W = hg.ring(8).W
    x, y = np.zeros((8, 5)), np.zeros((8, 6))
    for _ in range(STEPS):
        x, y = W @ x - 0.05 * quadratic.fx(x, y), W @ y - 0.1 * quadratic.gy(x, y)
    trace = run()
    np.testing.assert_allclose(trace.x, x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(trace.y, y, rtol=0, atol=1e-14)


def test_a_callback_sees_the_run_grow(run):
    seen = []
    trace = run(steps=40, callback=seen.append, record_every=3)
    steps = [progress.step for progress in seen]
    assert len(seen) > 1
    assert steps == sorted(set(steps))
    assert steps[-1] == 40
    for progress in seen:
        assert progress.steps == 40
        so_far = trace.metrics["step"] <= progress.step
        for name, values in progress.metrics.items():
            np.testing.assert_array_equal(values, trace.metrics[name][so_far])


# The same numbers


@pytest.mark.parametrize("kind", [hg.DBOGT, hg.DSBO])
def test_the_seed_decides_the_numbers_of_stochastic_algorithms_and_of_no_others(kind, logistic):
    row = next(row for row in table.ROWS if isinstance(row.algorithm, kind) and row.homogeneous)

    def trace(seed):
        return hg.run(row.algorithm, logistic.hg_problem, hg.ring(logistic.n), 4, seed=seed)

    first = trace(0)
    assert_same(first, trace(0))
    other = trace(1)
    if kind is hg.DSBO:
        assert (np.asarray(first.x) != np.asarray(other.x)).all()
    else:
        assert_same(first, other)


def test_agents_and_iterations_have_draws_of_their_own(run, quadratic):
    noisy = Descent(0.05, 0.1, noise=True)
    after = [(np.zeros((8, 5)), np.zeros((8, 6)))]
    after += [(np.asarray(trace.x), np.asarray(trace.y)) for trace in (run(noisy, steps=1), run(noisy, steps=2))]
    noise = [
        (hg.ring(8).W @ x - 0.05 * quadratic.fx(x, y) - x_next) / 0.05
        for (x, y), (x_next, _) in itertools.pairwise(after)
    ]
    assert len(np.unique(np.stack(noise).round(9))) == 2 * 8 * 5


@pytest.mark.parametrize(("seconds", "capacity"), [(0.0, 4096), (1e-4, 4096), (100.0, 3)])
def test_how_a_run_is_cut_into_chunks_changes_no_bit(run, monkeypatch, seconds, capacity):
    settings = {"steps": 30, "record_every": 4, "metrics": [hg.disagreement(), hg.movement()], "seed": 3}
    algorithm = Descent(0.05, 0.1, noise=True)
    whole = run(algorithm, **settings)
    module = importlib.import_module("hypergossip.run")  # hg.run is the function
    monkeypatch.setattr(module, "_SECONDS_PER_CHUNK", seconds)
    monkeypatch.setattr(module, "_CAPACITY", capacity)
    chunks = []
    assert_same(whole, run(algorithm, callback=chunks.append, **settings))
    assert len(chunks) > 3


# Steps


@pytest.fixture
def standard_promotion():
    """optax adds floats to the index, which strict promotion does not let pass."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def by_hand(quadratic, outer, inner):
    W = hg.ring(8).W
    x, y = np.zeros((8, 5)), np.zeros((8, 6))
    for k in range(STEPS):
        x, y = (
            W @ x - float(outer(k)) * quadratic.fx(x, y),
            W @ y - float(inner(k)) * quadratic.gy(x, y),
        )
    return x, y


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (optax.linear_schedule(0.1, 0.01, 5), optax.piecewise_constant_schedule(0.1, {2: 0.5})),
        (lambda k: 0.1 / jnp.sqrt(1.0 + k), optax.exponential_decay(0.1, 3, 0.9)),
    ],
    ids=["optax", "lambda"],
)
@pytest.mark.usefixtures("standard_promotion")
def test_schedules_of_the_outer_iteration_are_followed(run, quadratic, outer, inner):
    trace = run(Descent(outer, inner))
    x, y = by_hand(quadratic, outer, inner)
    np.testing.assert_allclose(trace.x, x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(trace.y, y, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("standard_promotion")
def test_schedules_of_inner_iterations_and_of_the_oracle_start_anew_in_every_outer_iteration(quadratic):
    outer, inner, oracle = (
        optax.polynomial_schedule(0.05, 0.01, 1, 4),
        optax.linear_schedule(0.1, 0.05, 2),
        lambda t: 0.1 / jnp.sqrt(1.0 + t),
    )
    algorithm = hg.DSBO(
        outer_step=outer,
        inner_step=inner,
        inner_iterations=3,
        hypergradient=hg.JHIP(step=oracle, iterations=2),
        batch_size=None,
        carry=False,
    )
    trace = hg.run(algorithm, quadratic.hg_problem, hg.ring(8), 3)
    a, W = quadratic.arrays, hg.ring(8).W
    x, y = np.zeros((8, 5)), np.zeros((8, 6))
    for k in range(3):
        for t in range(3):
            y = W @ y - float(inner(t)) * quadratic.gy(x, y)
        Z, Jt = np.zeros((8, 6, 5)), a["J"].transpose(0, 2, 1)
        G = a["H"] @ Z - Jt
        Y = G
        for t in range(2):
            Z = np.tensordot(W, Z, 1) - float(oracle(t)) * Y
            G, last = a["H"] @ Z - Jt, G
            Y = np.tensordot(W, Y, 1) + G - last
        h = quadratic.fx(x, y) - np.einsum("nqp,nq->np", Z, quadratic.fy(x, y))
        x = W @ x - float(outer(k)) * h
    np.testing.assert_allclose(trace.x, x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(trace.y, y, rtol=0, atol=1e-14)


def test_a_step_is_traced_once_and_never_again_for_another_size_number_or_seed(quadratic):
    problem, topology = quadratic.hg_problem, hg.ring(8, 0.77)  # a network of its own, so that nothing is cached yet
    Descent.calls.clear()
    hg.run(Descent(0.05, 0.1, noise=True), problem, topology, 5)
    assert len(Descent.calls) == 1
    hg.run(Descent(0.05, 0.1, noise=True), problem, topology, 5)
    hg.run(Descent(0.03, 0.2, noise=True), problem, topology, 5)
    hg.run(Descent(0.05, 1, noise=True), problem, topology, 5, growth_limit=1e20)
    hg.run(Descent(np.float64(0.05), 0.1, noise=True), problem, topology, 9, record_every=2, seed=8)
    again = problems.started_at(problem, jnp.ones(5), jnp.ones(6))
    hg.run(Descent(0.05, 0.1, noise=True), again, hg.ring(8, 0.77), 5)
    assert len(Descent.calls) == 1


def test_a_grid_of_step_sizes_runs_under_one_vmap(quadratic):
    problem, topology, backend = quadratic.hg_problem, hg.ring(8), hg.Simulated()
    exchange, losses = backend.exchange(topology), problem.losses()
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 5)))
    y = jnp.asarray(np.random.default_rng(1).standard_normal((8, 6)))
    grid = jnp.array([0.01, 0.1, 1.0])

    def of_one_agent(own, algorithm):
        local = Local(losses, own["upper"], own["lower"])
        agent = hg.Agent(local, jnp.int32(0), jax.random.key(0), problem.sample, exchange)
        state, _ = algorithm.step(agent, algorithm.init(agent, own["x"], own["y"]))
        return state.x, None

    own = {"x": x, "y": y, "upper": problem.upper_data, "lower": problem.lower_data}

    def outer_iteration(outer_step):
        algorithm = hg.DBO(outer_step, inner_step=0.1, inner_iterations=1, hypergradient=hg.JHIP(0.1, iterations=1))
        return backend.parallel(of_one_agent)(own, algorithm)[0]

    together = jax.jit(jax.vmap(outer_iteration))(grid)
    step_of = jax.jit(outer_iteration)
    for step, x_after in zip(grid, together, strict=True):
        np.testing.assert_allclose(x_after, step_of(step), rtol=0, atol=1e-13)
    movement = np.asarray(together) - topology.W @ np.asarray(x)
    np.testing.assert_allclose(movement[2], 100 * movement[0], rtol=0, atol=1e-11)
    assert np.abs(movement[0]).min() > 1e-8


# Failure


def first_beyond(limit, quadratic, y0):
    """The iteration in which y passes the limit with an inner step of 40, and the first agent where it does."""
    W, x, y = hg.ring(8).W, np.zeros((8, 5)), np.tile(y0, (8, 1))
    for iteration in range(1, 200):
        x, y = W @ x - 0.05 * quadratic.fx(x, y), W @ y - 40 * quadratic.gy(x, y)
        if (hit := np.abs(y).max(axis=1) >= limit).any():
            return iteration, np.flatnonzero(hit)[0]
    raise AssertionError("The test's own run does not grow.")


def test_a_run_that_grows_without_bound_ends_with_where_and_why_and_all_records_before(run, quadratic):
    with pytest.raises(hg.Diverged) as caught:
        run(Descent(0.05, 40.0), steps=200, metrics=[hg.movement()])
    error, trace = caught.value, caught.value.trace
    assert error.variable == "y"
    iteration, agent = first_beyond(1e10, quadratic, np.zeros(6))
    assert (error.iteration, error.agent) == (iteration, agent)
    assert str(error).startswith(f"Diverged at agent {error.agent} in outer iteration {iteration}: y is not finite")
    assert "Try a smaller inner_step (now 40)" in str(error)
    np.testing.assert_array_equal(trace.metrics["step"], np.arange(iteration))
    for name in ("consensus", "E_K"):
        assert np.isfinite(trace.metrics[name]).all()
    assert (
        trace.metrics["E_K"][-1]
        == run(Descent(0.05, 40.0), steps=iteration - 1, metrics=[hg.movement()]).metrics["E_K"][-1]
    )


def test_the_limit_of_growth_can_be_set_and_is_relative_to_the_start(run, quadratic):
    with pytest.raises(hg.Diverged) as near:
        run(Descent(0.05, 40.0), steps=200, growth_limit=1e4)
    assert (near.value.iteration, near.value.agent) == first_beyond(1e4, quadratic, np.zeros(6))
    far = problems.started_at(quadratic.hg_problem, jnp.zeros(5), jnp.full(6, -1e3))
    with pytest.raises(hg.Diverged) as caught:
        hg.run(Descent(0.05, 40.0), far, hg.ring(8), 200, growth_limit=1e4)
    assert (caught.value.iteration, caught.value.agent) == first_beyond(1e7, quadratic, np.full(6, -1e3))


def test_what_is_not_finite_is_reported_with_the_agent_that_it_came_from(quadratic):
    def square_root_at_agent_two(x, y, batch):
        return jnp.where(batch["who"][0] == 2, jnp.sum(jnp.sqrt(1 - y)), 0.5 * jnp.sum((y + 1) ** 2))

    who = {"who": np.arange(5.0)[:, None]}
    problem = hg.Problem(
        lambda x, y, batch: 0.5 * jnp.sum(x**2),
        square_root_at_agent_two,
        upper_data=who,
        lower_data=who,
        x0=jnp.ones(2),
        y0=jnp.full(3, 0.9),
    )
    with pytest.raises(hg.Diverged, match=r"agent 2 .*: y is not finite.*smaller inner_step \(now 0\.5\)") as caught:
        hg.run(Descent(lambda k: 0.1, -1 * -0.5), problem, hg.ring(5), 50)
    assert caught.value.agent == 2
    assert caught.value.iteration > 1


def test_advice_names_a_schedule_without_a_number(run):
    with pytest.raises(hg.Diverged, match=r"Try a smaller outer_step, or scale the losses"):
        run(Descent(lambda k: 1e3, 0.1), steps=50)


def test_advice_about_the_oracle_names_its_step_with_the_current_one(quadratic):
    algorithm = hg.DBO(
        outer_step=1e-300, inner_step=0.1, inner_iterations=1, hypergradient=hg.JHIP(step=1e4, iterations=50)
    )
    with pytest.raises(hg.Diverged, match=r"z is not finite.* smaller .*hypergradient.* \(now 10000\)"):
        hg.run(algorithm, quadratic.hg_problem, hg.ring(8), 50)


def test_advice_names_the_oracle_where_it_failed_before_x_did(quadratic):
    algorithm = hg.DBO(outer_step=0.1, inner_step=0.1, hypergradient=hg.JHIP(step=100.0, iterations=30))
    with pytest.raises(hg.Diverged, match=r"x is not.*oracle_residual reached .*hypergradient\.step \(now 100\).*Else"):
        hg.run(algorithm, quadratic.hg_problem, hg.ring(8), 50)


def test_a_value_that_rests_on_an_unconverged_solve_is_announced_once(run, quadratic):
    with pytest.warns(hg.UnconvergedWarning, match=r"hypergradient_norm at outer iteration 0 .*newton_steps") as warned:
        trace = run(metrics=[hg.hypergradient_norm(cg_steps=1)])
    assert len(warned) == 1
    assert (trace.metrics["hypergradient_norm.converged"] == 0).all()


def test_advice_does_not_depend_on_which_records_are_kept(quadratic):
    algorithm = hg.DBO(outer_step=0.1, inner_step=0.1, hypergradient=hg.JHIP(step=100.0, iterations=30))
    with pytest.raises(hg.Diverged, match=r"oracle_residual reached .*hypergradient\.step \(now 100\).*Else") as caught:
        hg.run(algorithm, quadratic.hg_problem, hg.ring(8), 50, record_every=50)
    np.testing.assert_array_equal(caught.value.trace.metrics["step"], [0])


@pytest.mark.parametrize("homogeneous", [False, True])
def test_advice_names_the_step_that_the_user_gave_and_none_that_there_is_not(homogeneous, quadratic):
    algorithm = hg.DBOGT(outer_step=0.1, inner_step=0.1, homogeneous=homogeneous)
    assert (algorithm.driver("z"), algorithm.driver("x")) == (None if homogeneous else "inner_step", "outer_step")
    assert hg.DBOGT(0.1, 0.1, hypergradient=hg.HIGP(0.1)).driver("z") == "hypergradient.step"
    wild = hg.DBO(outer_step=1e-300, inner_step=1e4, inner_iterations=1)
    with pytest.raises(hg.Diverged) as caught:
        hg.run(wild, quadratic.hg_problem, hg.ring(8), 50)
    assert str(caught.value).count("smaller inner_step (now 10000)") == 1
    assert "hypergradient" not in str(caught.value)


def test_a_users_value_may_have_the_name_of_a_flag(run):
    def solved(witness):
        return {"mine.converged": 0.0 * witness.x[0]}

    assert (run(metrics=[solved]).metrics["mine.converged"] == 0).all()


def test_a_metric_may_return_any_mapping_of_any_real_numbers(run):
    def several(witness):
        return MappingProxyType({"whole": 3, "true": True, "numpy": np.float32(0.5)})

    metrics = run(metrics=[several]).metrics
    assert [metrics[name][-1] for name in ("whole", "true", "numpy")] == [3.0, 1.0, 0.5]


def test_warnings_point_at_the_line_that_called(run):
    with pytest.warns(hg.UnconvergedWarning) as warned:
        run(metrics=[hg.hypergradient_norm(cg_steps=1)])
    assert warned[0].filename == __file__


# Single precision


@pytest.mark.parametrize("name", ["DBOGT-heterogeneous-carry", "DSBO-homogeneous-carry"])
def test_single_precision_stays_single_throughout(name, logistic):
    algorithm = dict(zip(table.NAMES, table.ROWS, strict=True))[name].algorithm
    full = logistic.hg_problem
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (full.upper_data, full.lower_data))
    zeros = jnp.zeros(logistic.p, jnp.float32)
    problem = hg.Problem(full.upper, full.lower, upper_data=single[0], lower_data=single[1], x0=zeros, y0=zeros)
    trace = hg.run(algorithm, problem, hg.ring(logistic.n), 4, metrics=[hg.upper_loss(), hg.disagreement()])
    assert {leaf.dtype for leaf in jax.tree.leaves((trace.state, trace.x, trace.y))} == {np.dtype(np.float32)}
    assert {values.dtype for name, values in trace.metrics.items() if name != "step"} == {np.dtype(np.float32)}
    double = hg.run(algorithm, full, hg.ring(logistic.n), 4)
    np.testing.assert_allclose(trace.y, double.y, rtol=1e-4, atol=1e-5)
    assert np.asarray(double.x).dtype == np.float64
