"""The paper's experiments in small: what runs, what is judged and how, and what is written down."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import hypergossip as hg
from hypergossip.experiments import catalogue, cleaning, corruption, hypercleaning, newsgroups, rates
from hypergossip.experiments.base import Case, Outcome, Verdict, carry_out
from hypergossip.experiments.results import page, write
from hypergossip.experiments.softmax import cross_entropy

SMALL = ("fig1a", "fig1b", "fig2a", "fig2b", "cleaning", "rates")


def outcome(diverged=None, **metrics):
    arrays = {name: np.array(values, float) for name, values in metrics.items()}
    count = len(next(iter(arrays.values())))
    metrics = {"step": np.arange(count), **arrays}
    trace = hg.Trace(*[None] * 4, metrics, {}, None, range(0), lambda: hg.Communication({}, ()))
    return Outcome(trace, hg.Diverged(1, diverged, "y", "Advice.") if diverged else None)


@pytest.fixture(scope="module")
def carried_out():
    """Every experiment in small, with what it came to; fewer runs and iterations where they are many."""
    shorter = {"fig1b": {"rates": (4.0, 1.0), "mixed_rates": (4.0,)}, "fig1a": {"letter": False, "steps": 20}}
    found = {}
    for name in SMALL:
        chosen = dataclasses.replace(catalogue.experiment(name, small=True), **shorter.get(name, {}))
        with jax.enable_x64(chosen.double):
            found[name] = chosen, {run: carry_out(case) for run, case in chosen.cases().items()}
    return found


@pytest.mark.parametrize("name", SMALL)
def test_every_claim_is_judged_by_numbers(carried_out, name):
    chosen, outcomes = carried_out[name]
    with jax.enable_x64(chosen.double):
        verdicts = chosen.verdicts(outcomes)
    assert verdicts
    assert not any(one.diverged for one in outcomes.values())
    for verdict in verdicts:
        assert any(character.isdigit() for character in verdict.because)


@pytest.mark.parametrize("name", SMALL)
def test_what_is_written_tells_everything(carried_out, name, tmp_path):
    chosen, outcomes = carried_out[name]
    with jax.enable_x64(chosen.double):
        verdicts = chosen.verdicts(outcomes)
        paths = write(tmp_path, name, chosen, outcomes, verdicts, seconds=12.0)
    assert [path.name for path in paths] == [f"{name}.png", f"{name}.svg", f"{name}.json", "README.md"]
    numbers = json.loads((tmp_path / f"{name}.json").read_text())
    assert [one["verdict"] for one in numbers["verdicts"]] == [verdict.word for verdict in verdicts]
    for run, one in outcomes.items():
        recorded = numbers["runs"][run]["metrics"]
        assert recorded["step"][0] == 0
        assert recorded["step"][-1] == one.trace.metrics["step"][-1]
        assert min(101, len(one.trace.metrics["step"])) == len(recorded["step"])
        for metric, values in one.trace.metrics.items():  # a value for every iteration, so a step is a place
            written = np.array([np.nan if v is None else v for v in recorded[metric]])
            np.testing.assert_allclose(written, values[recorded["step"]], rtol=1e-5)
    text = page(tmp_path)
    for verdict in verdicts:
        assert f"| {verdict.claim} | **{verdict.word}** | {verdict.because} |" in text
    for choice in chosen.choices:
        assert choice in text


def test_a_case_that_diverges_is_an_outcome(quadratic):
    case = Case(hg.DBO(50.0, 0.1, 2), quadratic.hg_problem, hg.ring(8), 100)
    came_to = carry_out(case)
    assert came_to.diverged is not None
    assert came_to.remark == f"diverged in outer iteration {came_to.diverged.iteration}"


def test_an_exact_solve_that_failed_is_a_remark_and_no_warning(quadratic):
    case = Case(hg.DBO(0.01, 0.1, 2), quadratic.hg_problem, hg.ring(8), 3, [hg.hypergradient_norm(cg_steps=1)])
    assert carry_out(case).remark == "exact solves failed at 4 records"


def test_verdicts_read_as_sentences():
    words = [str(Verdict("It runs", holds, "2 of 3 did")) for holds in (True, False, None)]
    assert words == [
        "It runs: holds, because 2 of 3 did",
        "It runs: does not hold, because 2 of 3 did",
        "It runs: cannot be judged, because 2 of 3 did",
    ]


def test_unknown_experiments_are_refused():
    with pytest.raises(ValueError, match="Unknown experiment 'fig3'; possible are fig1a, fig1b"):
        catalogue.experiment("fig3")


def test_full_sizes_are_the_papers():
    news, (short, long) = catalogue.experiment("fig1b"), map(catalogue.experiment, ("fig2a", "fig2b"))
    assert (news.agents, news.self_weight, news.inner_iterations, news.steps, news.rates[0]) == (20, 0.33, 10, 30, 100)
    for one in (short, long):
        c = one.corruption
        assert (c.agents, c.training, c.validation, c.share, c.penalty) == (20, 50_000, 5_000, 0.5, 0.001)
        assert (one.inner_iterations, one.steps, one.self_weight) == (10, 30, 0.5)
    assert short.outer_steps[0] == 0.1
    assert min(long.outer_steps) > max(short.outer_steps)


def test_cross_entropy_against_numpy():
    rng = np.random.default_rng(0)
    scores, label = rng.standard_normal((7, 4)), rng.integers(0, 4, 7)
    expected = np.log(np.exp(scores).sum(1)) - scores[np.arange(7), label]
    np.testing.assert_allclose(cross_entropy(jnp.asarray(scores), jnp.asarray(label)), expected, rtol=1e-12)


def test_accuracy_is_that_of_the_averaged_model(carried_out):
    chosen, outcomes = carried_out["cleaning"]
    test, trace = chosen.corruption.data.test, outcomes[cleaning.RING].trace
    right = (test.features @ np.asarray(trace.mean_y)).argmax(axis=1) == test.labels
    assert trace.metrics["test_accuracy"][-1] == pytest.approx(right.mean(), rel=1e-6)
    assert trace.metrics["test_accuracy"].max() > 0.9


@pytest.fixture(scope="module")
def documents():
    return newsgroups.Newsgroups.small()


def test_every_document_is_at_one_agent_in_one_half(documents):
    problem, train = documents.problem(5), documents.data.train
    halves = [np.asarray(data.count) for data in (problem.upper_data, problem.lower_data)]
    assert sum(half.sum() for half in halves) == len(train)
    assert np.abs(halves[0] - halves[1]).max() <= 1
    norms = sparse.linalg.norm(sparse.csr_array(train.features).astype(float), axis=1)
    unit = sorted((train.features.sum(1) / norms).tolist())
    found = []
    for data in (problem.upper_data, problem.lower_data):
        for i, count in enumerate(data.count):
            rows = jax.tree.map(lambda leaf, i=i: leaf[i], data.data["feature"])
            found += np.asarray(rows @ jnp.ones(64))[:count].tolist()
    np.testing.assert_allclose(sorted(found), unit, rtol=1e-6)


def test_newsgroups_losses_against_numpy(documents):
    problem, rng = documents.problem(5), np.random.default_rng(0)
    x, y = rng.standard_normal(64), rng.standard_normal((64, 10))
    data = jax.tree.map(lambda leaf: leaf[2], problem.lower_data)
    m = int(data.count)
    scores = np.asarray(data.data["feature"] @ jnp.eye(64))[:m] @ y
    mean = np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(m), np.asarray(data.data["label"])[:m]])
    penalty = (np.exp(x)[:, None] * y**2).sum() / 640
    np.testing.assert_allclose(problem.upper(jnp.asarray(x), jnp.asarray(y), data), mean, rtol=1e-12)
    np.testing.assert_allclose(problem.lower(jnp.asarray(x), jnp.asarray(y), data), mean + penalty, rtol=1e-12)


def test_newsgroups_verdict_on_mixing_compares_like_with_like(documents):
    names = {f"η = {eta:g}": 0.5 for eta in documents.rates} | {newsgroups.POOLED: 0.9}
    outcomes = {name: outcome(test_accuracy=[0.1, value]) for name, value in names.items()}
    for gain, holds in ((0.1, True), (-0.1, False)):
        mixed = {f"η = {eta:g}{newsgroups.MIXED}": 0.5 + gain for eta in documents.mixed_rates}
        mixed = {name: outcome(test_accuracy=[0.1, value]) for name, value in mixed.items()}
        good, helps = documents.verdicts(outcomes | mixed)
        assert good.holds is None
        assert helps.holds is holds
    mixed = {name: outcome(diverged=2, test_accuracy=[0.1]) for name in mixed}
    assert documents.verdicts(outcomes | mixed)[1].holds is None


@pytest.fixture(scope="module")
def images():
    return corruption.Corruption(dataset="digits", agents=5, training=1003, validation=200)


def test_corruption_is_drawn_once_and_is_of_the_stated_size(images):
    wrong = np.concatenate(images.mislabelled)
    expected = images.share * (1 - 1 / 10)
    assert abs(wrong.mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / 1003)
    again = dataclasses.replace(images)
    np.testing.assert_array_equal(np.concatenate(again.mislabelled), wrong)
    for form in (images.own, images.shared):
        labels = [np.asarray(form().lower_data.data["label"]) for _ in range(2)]
        np.testing.assert_array_equal(*labels)


def test_both_forms_are_the_same_losses(images):
    """λ of all rows at every agent, or each agent's own: g_i is the same number, and so is its slope in λ."""
    own, shared, rng = images.own(), images.shared(), np.random.default_rng(0)
    weight, y = jnp.asarray(rng.standard_normal(1003)), jnp.asarray(rng.standard_normal((64, 10)))
    seen = np.zeros(1003, int)
    for i, rows in enumerate(images.shares):
        seen[rows] += 1
        batches = [jax.tree.map(lambda leaf, i=i: leaf[i], problem.lower_data) for problem in (own, shared)]
        mine = jnp.zeros(own.x0.shape[1]).at[: len(rows)].set(weight[rows])
        value, slope = jax.value_and_grad(own.lower)(mine, y, batches[0])
        value_of_all, slope_of_all = jax.value_and_grad(shared.lower)(weight, y, batches[1])
        np.testing.assert_allclose(value, value_of_all, rtol=1e-12)
        np.testing.assert_allclose(slope[: len(rows)], slope_of_all[rows], rtol=1e-10)
        assert not np.delete(np.asarray(slope_of_all), rows).any()
        images_, label = (np.asarray(batches[0].data[name])[: len(rows)] for name in ("image", "label"))
        scores = images_ @ np.asarray(y)
        losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(rows)), label]
        expected = (losses / (1 + np.exp(-weight[rows]))).mean() + 0.001 * (np.asarray(y) ** 2).sum()
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert (seen == 1).all()


def test_weights_are_never_sent(images):
    problem = images.own()
    algorithm = hg.DBOGT(1.0, 0.1, 2, hg.HIGP(0.1, 2))
    sent = hg.run(algorithm, problem, hg.ring(5), 1).communication
    assert set(sent.per_variable) == {"y", "v", "z", "d"}


def test_more_rows_than_there_are_is_refused():
    with pytest.raises(ValueError, match="training \\+ validation = 2000; digits has 1437 rows"):
        corruption.Corruption(dataset="digits", training=1500, validation=500).own()


def test_cleaning_finds_wrong_labels_and_judges_it(carried_out):
    chosen, outcomes = carried_out["cleaning"]
    found = chosen.corruption.found(outcomes[cleaning.RING].trace)
    assert found["AUROC"] > 0.97
    assert found["precision"] > 0.9
    close, finds, same = chosen.verdicts(outcomes)
    assert (close.holds, finds.holds, same.holds) == (True, True, True)
    swapped = {**outcomes, cleaning.UNTRACKED: outcomes[cleaning.UNWEIGHTED]}
    assert chosen.verdicts(swapped)[2].holds is False
    useless = {**outcomes, cleaning.RING: outcomes[cleaning.UNWEIGHTED]}
    assert chosen.verdicts(useless)[0].holds is False


def test_short_steps_are_alike_and_long_ones_faster_by_the_stated_rules():
    short, long = hypercleaning.HyperCleaning.small(), hypercleaning.HyperCleaning.small(long=True)

    def judged(experiment, dbo, dbogt, **more):
        grid = np.linspace(0, 1, experiment.steps + 1)
        norms = {"DBO": 10.0 ** (-dbo * grid), "DBOGT": 10.0 ** (-dbogt * grid)}
        outcomes = {
            experiment._name(kind, step): outcome(hypergradient_norm=values)
            for kind, values in norms.items()
            for step in experiment.outer_steps
        }
        return experiment.verdicts(outcomes)[0]

    assert judged(short, 1.0, 1.04).holds
    assert judged(short, 1.0, 1.1).holds is False
    assert judged(short, 0.001, 0.002).holds is None
    assert judged(short, 0.001, 0.5).holds is False
    assert judged(long, 1.0, 2.1).holds
    assert "from iteration 15 of 30" in judged(long, 1.0, 2.0).because
    assert judged(long, 1.0, 1.5).holds is False
    assert "does not end below" in judged(long, 1.0, 0.5).because
    assert judged(long, -1.0, -2.0).holds is None  # both grow
    failed = outcome(diverged=4, hypergradient_norm=[1.0, 0.5])
    names = {long._name(kind, step) for kind in ("DBO", "DBOGT") for step in long.outer_steps}
    assert [one.holds for one in long.verdicts(dict.fromkeys(names, failed))] == [None, None]


def test_a_curve_that_dips_and_comes_back_is_not_faster():
    dbo = np.linspace(0, -1, 31)
    dbogt = np.where(np.arange(31) == 3, -5.0, -0.5)
    assert hypercleaning._faster(dbo, dbogt) == (False, "DBOGT does not end below DBO")


def test_slopes_are_fitted_and_judged():
    lengths = np.array([64, 128, 256])
    slope, error = rates.fit(lengths, 3.0 * lengths**-0.7)
    assert slope == pytest.approx(-0.7)
    assert error < 1e-6
    chosen = rates.Rates.small(rules=("DBO",))

    def judged(exponent):
        outcomes = {
            name: outcome(hypergradient_norm=np.full(case.steps + 1, case.steps ** (exponent / 2)))
            for name, case in chosen.cases().items()
        }
        return chosen.verdicts(outcomes)[0].holds

    assert judged(-0.7)
    assert judged(-0.6) is False
    outcomes = {
        name: outcome(hypergradient_norm=np.full(case.steps + 1, 1.0 + case.steps % 7))
        for name, case in chosen.cases().items()
    }
    assert chosen.verdicts(outcomes)[0].holds is None  # scattered
