"""A run computes what its functions say now: what they read may have changed since they were last compiled."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypergossip as hg
from hypergossip.algorithms import Algorithm
from hypergossip.metrics import RunningSum

N, P = 4, 3


class Penalised:
    """A problem's losses as methods, as in a notebook: they read what can be set anew."""

    weight = 1.0

    def upper(self, x, y, batch):
        return 0.5 * jnp.sum((y - batch[0]) ** 2)

    def lower(self, x, y, batch):
        return 0.5 * self.weight * jnp.sum(y**2) - x @ y


class Scaled(RunningSum):
    """A running sum whose term reads what can be set anew."""

    name = "scaled"

    def term(self, witness):
        return settings["scale"] * jnp.ones(())


settings = {"scale": 1.0, "rows": 1, "step": 0.1, "name": "first"}


def scaled_mean(witness):
    return settings["scale"] * jnp.sum(witness.mean_y**2)


def named(witness):
    return {settings["name"]: jnp.sum(witness.mean_y)}


def step(k):
    return settings["step"] / jnp.sqrt(k + 1)


def draw(key, data, batch_size):
    return jax.tree.map(lambda leaf: settings["rows"] * leaf[:batch_size], data)


def with_default(c):
    def metric(witness, c=c):
        return c * jnp.sum(witness.mean_y**2)

    return metric


@pytest.fixture
def losses():
    return Penalised()


@pytest.fixture
def now(monkeypatch):
    """Sets what the functions above read."""
    return lambda **changed: [monkeypatch.setitem(settings, name, value) for name, value in changed.items()]


def run(losses, *, algorithm=None, **given):
    sample = {"sample": given.pop("sample")} if "sample" in given else {}
    data = np.arange(1.0, N * 2 * P + 1).reshape(N, 2, P)
    problem = hg.Problem(
        losses.upper, losses.lower, upper_data=data, lower_data=data, x0=jnp.ones(P), y0=jnp.ones(P), **sample
    )
    algorithm = algorithm or hg.DBO(0.1, 0.1, 2, hg.HIGP(0.1, 2))
    return hg.run(algorithm, problem, hg.ring(N), 3, **given)


def stochastic(outer_step=0.1):
    return hg.DSBO(outer_step, 0.1, 2, hg.HIGP(0.1, 2), batch_size=1, carry=False)


def test_a_loss_that_has_come_to_mean_something_else_is_the_one_that_is_solved(losses):
    before = run(losses)
    losses.weight = 5.0
    fresh = Penalised()
    fresh.weight = 5.0
    np.testing.assert_array_equal(run(losses).y, run(fresh).y)
    assert np.abs(np.asarray(run(losses).y) - np.asarray(before.y)).max() > 0.1


def test_a_metric_records_what_it_computes_now(losses, now):
    given = {"metrics": [scaled_mean, named, Scaled()]}
    before = run(losses, **given).metrics
    now(scale=3.0, name="second")
    after = run(losses, **given).metrics
    np.testing.assert_allclose(after["scaled_mean"], 3 * before["scaled_mean"], rtol=1e-14)
    np.testing.assert_array_equal(after["scaled"], 3 * before["scaled"])
    np.testing.assert_array_equal(after["second"], before["first"])
    assert "first" not in after


def test_a_schedule_is_followed_as_it_is_now(losses, now):
    algorithm = hg.DBO(step, 0.1, 2, hg.HIGP(0.1, 2))
    before = run(losses, algorithm=algorithm)
    now(step=0.2)
    after = run(losses, algorithm=algorithm)
    fresh = run(losses, algorithm=hg.DBO(lambda k: 0.2 / jnp.sqrt(k + 1), 0.1, 2, hg.HIGP(0.1, 2)))
    np.testing.assert_array_equal(after.x, fresh.x)
    assert np.abs(np.asarray(after.x) - np.asarray(before.x)).max() > 1e-3


def test_rows_are_drawn_as_they_are_now(losses, now):
    before = run(losses, algorithm=stochastic(), sample=draw)
    now(rows=2)
    after = run(losses, algorithm=stochastic(), sample=draw)
    assert np.abs(np.asarray(after.x) - np.asarray(before.x)).max() > 1e-3


@pytest.mark.parametrize(
    ("given", "changed", "message"),
    [
        ({}, {"weight": 5.0}, "lower loss: formula"),
        ({"metrics": [scaled_mean]}, {"scale": 2.0}, r"metrics: \['scaled_mean"),
        ({"metrics": [named]}, {"name": "second"}, r"metrics: \['named"),
        ({"metrics": [Scaled()]}, {"scale": 2.0}, r"metrics: \['Scaled"),
        ({"algorithm": hg.DBO(step, 0.1, 2, hg.HIGP(0.1, 2))}, {"step": 0.3}, r"algorithm\.outer_step: formula"),
        ({"algorithm": stochastic(), "sample": draw}, {"rows": 2}, "sampling: draw"),
    ],
)
def test_a_checkpoint_of_what_the_functions_computed_before_is_refused(given, changed, message, losses, now, tmp_path):
    run(losses, checkpoint=tmp_path, **given)
    losses.weight = changed.pop("weight", losses.weight)
    now(**changed)
    with pytest.raises(hg.CheckpointMismatch, match=message):
        run(losses, checkpoint=tmp_path, **given)


def test_a_default_of_a_metric_sets_runs_apart(losses, tmp_path):
    run(losses, checkpoint=tmp_path, metrics=[with_default(1.0)])
    with pytest.raises(hg.CheckpointMismatch, match="metrics"):
        run(losses, checkpoint=tmp_path, metrics=[with_default(2.0)])


class Projected(Algorithm):
    """An algorithm with a function among its fields that is no step."""

    project: Callable = eqx.field(static=True)

    cite: ClassVar[str] = ""
    blame: ClassVar[dict[str, str]] = {}

    def init(self, agent, x, y):
        return State(y, x)

    def step(self, agent, s):
        return State(agent.mix(s.y, "y") - 0.1 * agent.exact.gy(s.x, s.y), self.project(s.x - 0.1)), {}


class State(NamedTuple):
    y: jax.Array
    x: jax.Array


def clipped(x):
    return jnp.minimum(x, jnp.full(x.shape[0], settings["scale"]))


def shrunk(by):
    return lambda x, by=by: x * jnp.full(x.shape[0], by)


def test_a_function_that_is_no_step_is_known_by_its_code_and_what_it_reads(losses, now, tmp_path):
    before = run(losses, algorithm=Projected(clipped), checkpoint=tmp_path / "clipped")
    now(scale=0.25)
    after = run(losses, algorithm=Projected(clipped))
    np.testing.assert_allclose([before.mean_x[0], after.mean_x[0]], [0.7, 0.25 - 2 * 0.1], rtol=1e-12)
    with pytest.raises(hg.CheckpointMismatch, match=r"algorithm\.project: code"):
        run(losses, algorithm=Projected(clipped), checkpoint=tmp_path / "clipped")
    run(losses, algorithm=Projected(shrunk(0.5)), checkpoint=tmp_path / "shrunk")
    run(losses, algorithm=Projected(shrunk(0.5)), checkpoint=tmp_path / "shrunk")
    with pytest.raises(hg.CheckpointMismatch, match=r"algorithm\.project: code"):
        run(losses, algorithm=Projected(shrunk(0.25)), checkpoint=tmp_path / "shrunk")


class Decay(eqx.Module):
    """A schedule with a parameter among its leaves."""

    first: float

    def __call__(self, k):
        return self.first / jnp.sqrt(k + 1)


class Near(eqx.Module):
    """A metric with data of its own."""

    target: jax.Array

    def __call__(self, witness):
        return jnp.sum((witness.mean_y - self.target) ** 2)


def test_parameters_of_schedules_compile_nothing_and_set_runs_apart_as_data_of_metrics_do(
    losses, monkeypatch, tmp_path
):
    traced = []
    original = hg.DBO.step
    monkeypatch.setattr(hg.DBO, "step", lambda self, agent, s: traced.append(1) or original(self, agent, s))

    def decaying(first, target=0.0, **given):
        algorithm = hg.DBO(Decay(first), 0.1, 4, hg.HIGP(0.1, 2))
        return run(losses, algorithm=algorithm, metrics=[Near(jnp.full(P, target))], **given)

    slow, fast = decaying(0.1, checkpoint=tmp_path), decaying(0.2)
    assert len(traced) == 1
    assert np.abs(np.asarray(slow.x) - np.asarray(fast.x)).max() > 1e-3
    for given, what in (((0.2,), r"algorithm\.outer_step: formula"), ((0.1, 1.0), r"metrics: \['Near\(target=")):
        with pytest.raises(hg.CheckpointMismatch, match=what):
            decaying(*given, checkpoint=tmp_path)


def test_functions_that_compute_the_same_are_compiled_once(losses, monkeypatch):
    traced = []
    original = hg.DBO.step
    monkeypatch.setattr(hg.DBO, "step", lambda self, agent, s: traced.append(1) or original(self, agent, s))
    again = partial(run, losses, metrics=[scaled_mean, hg.upper_loss()])
    again(algorithm=hg.DBO(step, 0.1, 3, hg.HIGP(0.1, 2)))
    again(algorithm=hg.DBO(step, 0.2, 3, hg.HIGP(0.05, 2)), seed=7)
    assert len(traced) == 1
    losses.weight = 2.0
    again(algorithm=hg.DBO(step, 0.1, 3, hg.HIGP(0.1, 2)))
    assert len(traced) == 2
