"""Sparse rows are the rows: products, derivatives, draws and whole runs agree with the dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import hypergossip as hg
from hypergossip.ragged import sample_rows

D = 6


def matrices(counts, seed=0, density=0.3):
    """One sparse matrix per agent, with empty rows here and there."""
    rng = np.random.default_rng(seed)
    dense = [rng.standard_normal((m, D)) * (rng.random((m, D)) < density) for m in counts]
    return [sparse.csr_array(matrix) for matrix in dense]


def agents_of(stacked, n):
    return [jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(n)]


def labelled(rows):
    """With every row's own number beside it."""
    return [{"rows": matrix, "number": np.arange(matrix.shape[0])} for matrix in rows]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_products_and_their_derivatives_are_those_of_the_dense_rows(counts, seed):
    given_rows = matrices(counts, seed)
    ragged = hg.stack_ragged(labelled(given_rows))
    y, weight = (np.random.default_rng(seed).standard_normal(shape) for shape in ((D, 3), (max(counts), 3)))
    for batch, matrix in zip(agents_of(ragged, len(counts)), given_rows, strict=True):
        dense = np.zeros((max(counts), D))
        dense[: matrix.shape[0]] = matrix.toarray()
        rows = batch.data["rows"]
        np.testing.assert_allclose(rows @ jnp.asarray(y), dense @ y, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(rows @ jnp.asarray(y[:, 0]), dense @ y[:, 0], rtol=1e-14, atol=1e-14)
        slope = jax.grad(lambda y, rows=rows: jnp.sum(jnp.asarray(weight) * (rows @ y)))(jnp.asarray(y))
        np.testing.assert_allclose(slope, dense.T @ weight, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("batch_size", [1, 3, 5, 9])
def test_draws_are_different_rows_as_they_are(batch_size):
    counts = (5, 2)
    given_rows = matrices(counts)
    ragged = hg.stack_ragged(labelled(given_rows))
    draw = jax.jit(lambda key, data: sample_rows(key, data, batch_size))
    for batch, matrix, m in zip(agents_of(ragged, 2), given_rows, counts, strict=True):
        for seed in range(8):
            drawn = draw(jax.random.key(seed), batch)
            live = np.asarray(drawn.weight) > 0
            numbers = np.asarray(drawn.data["number"])[live]
            assert live.sum() == min(batch_size, m) == len(set(numbers.tolist()))
            product = np.asarray(drawn.data["rows"] @ jnp.eye(D))[live]
            np.testing.assert_array_equal(product, matrix.toarray()[numbers])
            np.testing.assert_allclose(drawn.weight[live], m / min(batch_size, m), rtol=1e-15)


def test_the_room_of_a_draw_is_that_of_the_longest_rows():
    dense = np.zeros((4, D))
    for i, length in enumerate((1, 6, 0, 3)):
        dense[i, :length] = 1
    ragged = hg.stack_ragged(labelled([sparse.csr_array(dense), sparse.csr_array(np.eye(4, D))]))
    assert ragged.data["rows"].longest == (6, 9, 10, 10)
    (first, _) = agents_of(ragged, 2)
    assert sample_rows(jax.random.key(0), first, 2).data["rows"].value.shape == (9,)


def test_weighted_sums_of_draws_are_unbiased():
    (matrix,) = rows = matrices([7])
    (batch,) = agents_of(hg.stack_ragged(labelled(rows)), 1)
    y = jnp.linspace(-1.0, 1.0, D)

    def estimate(key):
        drawn = sample_rows(key, batch, 3)
        return jnp.sum(drawn.weight * jnp.square(drawn.data["rows"] @ y))

    draws = jax.vmap(estimate)(jax.random.split(jax.random.key(0), 4000))
    expected = ((matrix @ np.asarray(y)) ** 2).sum()
    assert abs(draws.mean() - expected) < 4 * draws.std() / np.sqrt(4000)


def lower(x, y, batch):
    return upper(x, y, batch) + jnp.sum(jnp.exp(x) * y**2)


def upper(x, y, batch):
    """Least squares, on sparse rows or dense ones."""
    product = batch.data["rows"] @ y
    return jnp.sum(batch.weight * jnp.square(product - 1)) / batch.count.astype(product.dtype)


def all_rows(key, data, batch_size):
    return data


@pytest.mark.parametrize(
    "algorithm",
    [
        hg.DBOGT(0.1, 0.1, 3, hg.JHIP(0.1, 3)),
        hg.DSBO(0.1, 0.1, 3, hg.Neumann(0.1, 3), homogeneous=True, batch_size=9),
    ],
)
def test_a_run_on_sparse_rows_is_the_run_on_dense_ones(algorithm):
    rows = matrices([5, 3, 4], density=0.6)
    traces = []
    for matrices_or_arrays, sample in ((rows, sample_rows), ([matrix.toarray() for matrix in rows], all_rows)):
        data = hg.stack_ragged([{"rows": one} for one in matrices_or_arrays])
        start = {"x0": jnp.zeros(D), "y0": jnp.ones(D)}
        # Nine of at most five rows are all of them, in some order: so stochastic runs agree too.
        problem = hg.Problem(upper, lower, upper_data=data, lower_data=data, **start, sample=sample)
        traces.append(hg.run(algorithm, problem, hg.complete(3), 4))
    np.testing.assert_allclose(traces[0].x, traces[1].x, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(traces[0].y, traces[1].y, rtol=1e-12, atol=1e-14)


def test_a_sparse_matrix_where_data_are_expected_is_refused_with_the_way_out():
    (matrix,) = matrices([3])
    with pytest.raises(TypeError, match=r"sparse matrix; hg\.stack_ragged"):
        hg.Problem(upper, lower, upper_data=matrix, lower_data=matrix, x0=jnp.zeros(D), y0=jnp.zeros(D))


@pytest.mark.parametrize("other", [sparse.csr_array(np.ones((2, D + 1))), np.ones((2, D))])
def test_rows_of_another_width_or_kind_are_refused(other):
    with pytest.raises(ValueError, match="Agent 1's rows have shapes"):
        hg.stack_ragged([matrices([3])[0], other])
