"""The synthetic experiment: its data, its claims, and the command that shows it."""

import dataclasses
import math
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypergossip as hg
from hypergossip import cli
from hypergossip.experiments.base import Outcome
from hypergossip.experiments.synthetic import DEFAULT, LETTER, METRIC, SMALL, Lower, Synthetic, Upper, psi

WIDE = Synthetic(agents=4, dimension=5, training=4000, validation=3000, seed=7)
SMALL_LETTER = dataclasses.replace(SMALL, spread="i")


def test_presets_are_the_papers_and_differ_in_the_spread_alone():
    assert dataclasses.replace(DEFAULT, spread="i") == LETTER
    assert (DEFAULT.agents, DEFAULT.dimension, DEFAULT.step, DEFAULT.noise) == (20, 50, 0.01, 0.1)
    algorithms = DEFAULT.algorithms()
    assert list(algorithms) == ["DBO", "DBOGT", "DSBO"]
    for algorithm in algorithms.values():
        assert not algorithm.homogeneous
        assert algorithm.inner_iterations == 10
        assert (algorithm.oracle.step, algorithm.oracle.iterations) == (0.01, 20)
    assert DEFAULT.topology() == hg.ring(20, self_weight=0.4)


@pytest.mark.parametrize(("spread", "unit"), [("i/n", 1 / 4), ("i", 1.0)])
def test_features_have_the_stated_spread(spread, unit):
    upper, lower = dataclasses.replace(WIDE, spread=spread).data()
    assert upper["feature"].shape == (4, 3000, 5)
    assert lower["feature"].shape == (4, 4000, 5)
    assert upper["label"].shape == (4, 3000)
    for rows in (upper["feature"], lower["feature"]):
        for i, agent in enumerate(rows, start=1):
            assert agent.std() == pytest.approx(i * unit, rel=0.03)
            assert abs(agent.mean()) < 0.04 * i * unit


def test_psi_and_its_derivatives_are_finite_and_right_at_any_margin():
    z = jnp.array([-800.0, -40.0, -1.0, 0.0, 0.3, 5.0, 50.0, 900.0])
    ours, theirs = psi, lambda z: jnp.logaddexp(0.0, -z)
    for _ in range(3):
        np.testing.assert_allclose(jax.vmap(ours)(z), jax.vmap(theirs)(z), rtol=1e-14, atol=1e-300)
        ours, theirs = jax.grad(ours), jax.grad(theirs)


def test_labels_follow_the_rule():
    truth = np.random.default_rng(WIDE.seed).standard_normal(WIDE.dimension)
    for rows in dataclasses.replace(WIDE, noise=0.0).data():
        np.testing.assert_array_equal(rows["label"], np.sign(rows["feature"] @ truth))
    for rows in WIDE.data():
        assert set(np.unique(rows["label"])) == {-1.0, 1.0}
        flipped = (rows["label"] != np.sign(rows["feature"] @ truth)).mean(axis=1)
        for i, rate in enumerate(flipped, start=1):
            expected = math.atan(0.1 / (i / 4 * np.linalg.norm(truth))) / math.pi  # two normal numbers of unlike sign
            assert rate == pytest.approx(expected, abs=4 * math.sqrt(expected / 3000))


def test_the_seed_is_of_the_data():
    first, again, other = (dataclasses.replace(SMALL, seed=s).data()[0]["feature"] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_data_are_float32_unless_jax_is_in_double_precision():
    assert SMALL.data()[0]["feature"].dtype == np.float64
    with jax.enable_x64(False):
        assert SMALL.data()[0]["feature"].dtype == np.float32


def test_one_start_is_not_mistaken_where_agents_are_as_many_as_features():
    problem = Synthetic(agents=6, dimension=6, training=8, validation=8).problem()
    assert jnp.shape(problem.x0) == (6, 6)


@pytest.mark.parametrize(
    ("settings", "message"), [({"agents": 0}, "agents = 0"), ({"spread": "i*n"}, "Unknown spread")]
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Synthetic(**settings)


@pytest.mark.parametrize("loss", [Upper(12), Lower(12)])
def test_batches_estimate_the_sum_without_bias(loss):
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.standard_normal(3)), jnp.asarray(rng.standard_normal(3))
    rows = {
        "feature": jnp.asarray(rng.standard_normal((12, 3))),
        "label": jnp.asarray(np.sign(rng.standard_normal(12))),
    }
    margin = rows["label"] * (rows["feature"] @ y)
    penalty = 0.5 * jnp.sum(jnp.exp(x) * y**2) if isinstance(loss, Lower) else 0.0
    np.testing.assert_allclose(loss(x, y, rows), jnp.sum(jnp.log1p(jnp.exp(-margin))) + penalty)
    singles = jax.tree.map(lambda leaf: leaf[:, None], rows)  # every batch of one row, each as likely as the others
    slope = jax.grad(loss, 1)
    for derivative in (loss, slope, jax.jacobian(slope, 0)):
        mean = jax.vmap(lambda row, d=derivative: d(x, y, row))(singles).mean(axis=0)
        np.testing.assert_allclose(mean, derivative(x, y, rows), rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def small_runs() -> dict[str, hg.Trace]:
    problem, metrics = SMALL.problem(), [hg.hypergradient_norm()]
    return {
        name: hg.run(algorithm, problem, SMALL.topology(), 60, metrics=metrics)
        for name, algorithm in SMALL.algorithms().items()
    }


def test_all_three_algorithms_reduce_the_gradient(small_runs):
    for trace in small_runs.values():
        norms = trace.metrics[METRIC]
        assert norms[-1] < 0.9 * norms[0]
        assert (trace.metrics[f"{METRIC}.converged"] == 1).all()


def test_exact_descent_is_the_limit_that_they_come_near(small_runs):
    exact = dataclasses.replace(SMALL, steps=60).exact_descent
    norms = {name: trace.metrics[METRIC] for name, trace in small_runs.items()}
    assert exact.shape == (61,)
    assert exact[0] == pytest.approx(norms["DBO"][0], rel=1e-10)
    assert (np.diff(exact) < 0).all()
    for name in ("DBO", "DBOGT"):
        assert norms[name][-1] == pytest.approx(exact[-1], rel=0.05)
    assert norms["DSBO"][-1] > norms["DBO"][-1]


def test_the_letter_diverges_at_once():
    problem = SMALL_LETTER.problem()
    for algorithm in SMALL_LETTER.algorithms().values():
        with pytest.raises(hg.Diverged) as caught:
            hg.run(algorithm, problem, SMALL_LETTER.topology(), 50, metrics=[hg.hypergradient_norm()])
        assert caught.value.iteration <= 10


def _outcome(*norms, converged=1.0, diverged=None):
    metrics = {METRIC: np.array(norms, float), f"{METRIC}.converged": np.full(len(norms), converged)}
    trace = hg.Trace(*[None] * 4, metrics, {}, None, range(0), lambda: hg.Communication({}, ()))
    return Outcome(trace, hg.Diverged(1, diverged, "y", "Advice.") if diverged else None)


@pytest.fixture
def judge(monkeypatch):
    """The verdicts on outcomes, where exact descent takes ‖∇Φ‖ from 10 to 1."""
    monkeypatch.setattr(Synthetic, "exact_descent", np.array([10.0, 1.0]))
    return lambda **outcomes: Synthetic.small().verdicts(outcomes)


def test_verdicts_say_what_was_measured(judge):
    reduced, alike, better = judge(DBO=_outcome(10, 2), DBOGT=_outcome(10, 2.001), DSBO=_outcome(10, 4))
    assert reduced.holds
    assert alike.holds
    assert better.holds is None
    assert "from 1.000 to 0.301 (DBO), 0.301 (DBOGT), 0.602 (DSBO)" in reduced.because
    assert "reaches 0.000" in reduced.because
    assert "they end 0.0002 apart" in alike.because
    assert "ends 0.301 above" in better.because


def test_verdicts_do_not_repeat_the_paper_where_the_numbers_disagree(judge):
    reduced, alike, better = judge(DBO=_outcome(10, 2), DBOGT=_outcome(10, 5), DSBO=_outcome(10, 3))
    assert (reduced.holds, alike.holds, better.holds) == (True, False, False)
    assert "ends 0.222 below" in better.because
    assert not judge(DBO=_outcome(10, 2), DBOGT=_outcome(10, 11), DSBO=_outcome(10, 3))[0].holds


def test_verdicts_conclude_nothing_from_failures(judge):
    verdicts = judge(DBO=_outcome(10, 2), DBOGT=_outcome(10, 2, converged=0.0), DSBO=_outcome(10, 3))
    assert [verdict.holds for verdict in verdicts] == [None, None, None]
    assert verdicts[0].because == "DBOGT exact solves failed at 2 records"
    verdicts = judge(DBO=_outcome(10, 2), DBOGT=_outcome(10, 2), DSBO=_outcome(10, diverged=3))
    assert [verdict.holds for verdict in verdicts] == [False, None, None]
    assert "DSBO diverged in outer iteration 3" in str(verdicts[0])


def _hypergossip(*arguments, before="pass"):
    program = f"import sys; {before}; sys.argv[0] = 'hypergossip'; from hypergossip.cli import main; main()"
    command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiles sooner
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_demo_prints_a_table_and_writes_two_files(tmp_path):
    folder = tmp_path / "new" / "demo"
    result = _hypergossip("demo", "--small", "--steps", 3, "--seed", 5, "--output", folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "\x1b" not in result.stdout  # no colours, no bars: nobody watches
    assert "compiling" not in result.stdout
    said = " ".join(result.stdout.split())
    for expected in ("DBOGT", "consensus", "exact gradient descent", "3 outer iterations", str(folder / "report.html")):
        assert expected in said
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "synthetic.png"]
    assert (folder / "synthetic.png").read_bytes().startswith(b"\x89PNG")


def test_letter_tells_where_each_algorithm_diverged(tmp_path, capsys):
    cli.demo(tmp_path, steps=20, small=True, letter=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "figures that the paper gives: does not hold, because" in said
    for name in ("DBO", "DBOGT", "DSBO"):
        assert re.search(rf"{name} diverged in outer iteration \d+ \(\w at agent \d first\)", said)
    assert "to the letter" not in (tmp_path / "report.html").read_text()


def test_quiet_prints_the_paths_alone(tmp_path, capsys):
    cli.demo(tmp_path, steps=2, small=True, quiet=True)
    assert capsys.readouterr().out.split() == [str(tmp_path / "synthetic.png"), str(tmp_path / "report.html")]


def test_a_run_that_diverges_is_told_in_table_and_report(tmp_path, capsys, monkeypatch):
    three = Synthetic.algorithms
    longer = lambda self: three(dataclasses.replace(self, step=3.0))  # noqa: E731
    monkeypatch.setattr(Synthetic, "algorithms", lambda self: {"DBO": longer(self)["DBO"]})
    cli.demo(tmp_path, steps=50, small=True)
    assert "DBO diverged in outer iteration" in " ".join(capsys.readouterr().out.split())
    assert "DBO: diverged in outer iteration" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["demo", "--steps", "0"], "--steps 0: expected at least 1"),
        (["demo", "--seed", "-1"], "--seed -1: expected 0 or more"),
        (["demo", "--output", __file__], "is a file; expected a folder"),
    ],
)
def test_wrong_commands_end_with_status_2(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hypergossip", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err + captured.out


@pytest.mark.parametrize("package", ["tyro", "rich", "matplotlib", "bokeh"])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(package):
    result = _hypergossip("demo", "--small", before=f"sys.modules[{package!r}] = None")
    assert result.returncode == 2
    expected = f"This command needs {package}, which is not installed: pip install 'hypergossip[cli,report,data]'\n"
    assert result.stderr == expected


def test_the_library_imports_none_of_what_only_commands_need():
    extras = "('tyro', 'rich', 'matplotlib', 'bokeh', 'polars')"
    program = f"import sys, hypergossip, hypergossip.cli; print([name for name in {extras} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
