"""Splits over agents: partitions, of the shape that their names promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypergossip import data

LABELS = np.repeat(np.arange(5), 40)[np.random.default_rng(3).permutation(200)]
OPTIONS = {"iid": {}, "dirichlet": {"alpha": 0.5}, "shards": {"shards": 2}, "column": {"column": np.arange(200) % 8}}


def _is_partition(parts, count):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(count))


@st.composite
def _splits(draw):
    agents = draw(st.integers(1, 12))
    least = draw(st.integers(1, 3))
    count = draw(st.integers(agents * least, 120))
    labels = draw(st.lists(st.integers(-2, 4), min_size=count, max_size=count))
    how = draw(st.sampled_from(["iid", "dirichlet", "shards"]))
    options = {"least": least}
    if how == "dirichlet":
        options["alpha"] = draw(st.floats(1e-320, 1.7e308, allow_subnormal=True))
    if how == "shards":
        options["shards"] = draw(st.integers(1, count // agents))
        options["least"] = min(least, options["shards"])  # of pieces of at least one row
    return labels, agents, how, options, draw(st.integers(0, 2**40))


@settings(max_examples=150, deadline=None)
@given(_splits())
def test_every_row_is_at_exactly_one_agent(drawn):
    labels, agents, how, options, seed = drawn
    parts = data.split(labels, agents, how, seed=seed, **options)
    assert len(parts) == agents
    assert _is_partition(parts, len(labels))
    assert min(len(rows) for rows in parts) >= options["least"]
    assert all((np.diff(rows) > 0).all() for rows in parts)


@pytest.mark.parametrize("how", OPTIONS)
def test_seeds_decide_and_columns_need_none(how):
    first, again, other = (data.split(LABELS, 8, how, seed=seed, **OPTIONS[how]) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first, again))
    assert all(map(np.array_equal, first, other)) == (how == "column")


def test_iid_parts_differ_by_one_row_at_most_and_mix_the_labels():
    sizes = [len(rows) for rows in data.split(LABELS, 7)]
    assert sorted(sizes) == [28, 28, 28, 29, 29, 29, 29]
    counts = np.mean([data.describe(LABELS, data.split(LABELS, 4, seed=seed)) for seed in range(200)], axis=0)
    np.testing.assert_allclose(
        counts, 10.0, atol=4 * np.sqrt(6.03 / 200)
    )  # hypergeometric: the variance is 50·⅕·⅘·150/199


def test_dirichlet_shares_have_the_moments_of_their_law():
    """A share of Dirichlet(α, …, α) over n agents has mean 1/n and variance (n−1) / (n²(nα+1))."""
    labels, n, alpha = np.repeat([0, 1], 5000), 4, 0.7
    counts = [data.describe(labels, data.split(labels, n, "dirichlet", alpha=alpha, seed=seed)) for seed in range(400)]
    shares = np.stack(counts) / 5000  # (seeds, agents, classes)
    variance = (n - 1) / (n**2 * (n * alpha + 1))
    np.testing.assert_allclose(shares.mean(axis=0), 1 / n, atol=4 * np.sqrt(variance / 400))
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.3)
    between_classes = np.mean((shares[..., 0] - 1 / n) * (shares[..., 1] - 1 / n))
    assert abs(between_classes) < 4 * variance / np.sqrt(400)  # drawn anew for each class


def test_large_alpha_gives_equal_shares_and_small_alpha_whole_classes():
    even = data.describe(LABELS, data.split(LABELS, 8, "dirichlet", alpha=1e300))
    assert set(even.ravel()) == {5}
    uneven = data.describe(LABELS, data.split(LABELS, 2, "dirichlet", alpha=1e-9))
    assert set(uneven.ravel()) == {0, 40}


def test_agents_left_short_are_given_rows_by_those_with_most():
    parts = data.split(np.zeros(30, int), 6, "dirichlet", alpha=1e-9, least=3)
    assert sorted(len(rows) for rows in parts) == [3, 3, 3, 3, 3, 15]
    assert _is_partition(parts, 30)


def test_shards_hold_few_labels_each():
    counts = data.describe(LABELS, data.split(LABELS, 10, "shards", shards=2))
    assert counts.sum(axis=1).tolist() == [20] * 10
    assert ((counts > 0).sum(axis=1) <= 2).all()  # 40 rows of a class are four pieces of ten
    assert counts.sum(axis=0).tolist() == [40] * 5


def test_columns_name_the_agents_in_the_order_of_their_values():
    column = np.array(["b", "a", "c", "a", "b"])
    parts = data.split(np.zeros(5, int), 3, "column", column=column)
    assert [rows.tolist() for rows in parts] == [[1, 3], [0, 4], [2]]


def test_describe_counts_rows_of_each_class():
    counts = data.describe(["x", "z", "z", "y"], [np.array([0, 1, 2]), np.array([3])])
    assert counts.tolist() == [[1, 0, 2], [0, 1, 0]]


def test_all_classes_can_be_demanded():
    parts = data.split(LABELS, 4, classes=True)
    assert (data.describe(LABELS, parts) > 0).all()
    with pytest.raises(
        ValueError, match=r"leaves agent 1 without an example of class y \(1 of 4 such pairs are empty\)"
    ):
        data.split(["x", "y", "x", "x"], 2, "column", column=[0, 0, 1, 1], classes=True)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((LABELS, 201), {}, "Got 200 examples for 201 agents; expected at least one for every agent"),
        ((LABELS, 8), {"least": 30}, "expected at least 30 for every agent"),
        ((LABELS, 8, "even"), {}, "Unknown split 'even'; possible are 'iid', 'dirichlet', 'shards', 'column'"),
        ((LABELS, 8, "iid"), {"alpha": 1.0}, "Got alpha = 1.0 for the split 'iid', which takes no options"),
        ((LABELS, 8, "shards"), {"shards": 2, "alpha": 1.0}, "Got alpha = 1.0 for .* takes shards"),
        ((LABELS, 8, "dirichlet"), {}, "The split 'dirichlet' needs alpha"),
        ((LABELS, 8, "dirichlet"), {"alpha": 0.0}, "alpha = 0.0; expected a positive, finite number"),
        ((LABELS, 8, "dirichlet"), {"alpha": float("nan")}, "alpha = nan"),
        ((LABELS, 8, "shards"), {"shards": 26}, "expected at most 25 shards"),
        ((LABELS, 8, "shards"), {"shards": 0}, "shards = 0; expected at least 1"),
        ((LABELS, 8, "column"), {"column": np.arange(200) % 7}, "7 different values for 8 agents"),
        ((LABELS, 8, "column"), {"column": np.arange(20)}, r"column has shape \(20,\); expected .* \(200,\)"),
        (([0, 0, 0, 0], 2, "column"), {"column": [0, 0, 0, 1], "least": 2}, "gives agent 1 1 examples; expected at"),
        ((LABELS[None], 8), {}, r"labels has shape \(1, 200\)"),
        ((LABELS, 0), {}, "agents = 0; expected at least 1"),
        ((LABELS, 8), {"seed": -1}, "seed = -1; expected at least 0"),
    ],
)
def test_impossible_splits_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        data.split(*arguments, **options)
