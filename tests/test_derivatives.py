"""One agent's derivatives against central differences, and against derivatives taken by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from jax.flatten_util import ravel_pytree

import hypergossip as hg
from hypergossip.local import Local


@jax.jit
def _everything(local, x, y, v):
    """All derivatives of one agent at (x, y), the products along v."""
    return {
        "fx": local.fx(x, y),
        "fy": local.fy(x, y),
        "gy": local.gy(x, y),
        "gyy": local.gyy(x, y, v),
        "gxy": local.gxy(x, y, v),
        "curvature": local.curvature(x, y)(v),
        "hessian": local.hessian(x, y),
        "jacobian": local.jacobian(x, y),
    }


_of_all_agents = jax.jit(jax.vmap(_everything))


def _central_differences(function, at, step=1e-5):
    """The derivative of a function of one vector, one column per direction."""
    columns = [(function(at + step * e) - function(at - step * e)) / (2 * step) for e in np.eye(at.size)]
    return np.stack([np.asarray(column) for column in columns], axis=-1)


def _local(problem):
    """Every agent's `Local`, with an agents' axis in front of its data."""
    return Local(problem.losses(), problem.upper_data, problem.lower_data)


def _points(n, p, q, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)), rng.standard_normal((n, q)), rng.standard_normal((n, q))


def _by_hand(problem, x, y, v):
    H, J = problem.H(x, y), problem.J(x, y)
    along = np.einsum("nab,nb->na", H, v)
    return {
        "fx": problem.fx(x, y),
        "fy": problem.fy(x, y),
        "gy": problem.gy(x, y),
        "gyy": along,
        "gxy": np.einsum("npq,nq->np", J, v),
        "curvature": along,
        "hessian": H,
        "jacobian": J,
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_derivatives_of_the_logistic_problem_are_those_taken_by_hand(seed, logistic):
    x, y, v = _points(logistic.n, logistic.p, logistic.q, seed)
    found = _of_all_agents(_local(logistic.hg_problem), x, y, v)
    for name, expected in _by_hand(logistic, x, y, v).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize(("p", "q"), [(3, 5), (5, 3)], ids=["x shorter", "y shorter"])
def test_matrices_are_right_whichever_way_round_they_are_cheaper(p, q):
    # p ≠ q also shows that J_i is p × q and not its transpose.
    problem = problems.Quadratic(n=2, p=p, q=q, heterogeneous=True)
    x, y, v = _points(problem.n, p, q, seed=3)
    found = _of_all_agents(_local(problem.hg_problem), x, y, v)
    for name, expected in _by_hand(problem, x, y, v).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-13, err_msg=name)


def test_derivatives_of_the_logistic_problem_are_those_of_central_differences(logistic):
    stacked = _local(logistic.hg_problem)
    _assert_like_central_differences(jax.tree.map(lambda leaf: leaf[-1], stacked), logistic.p, logistic.q)


def _assert_like_central_differences(local, p, q):
    (x,), (y,), (v,) = _points(1, p, q, seed=4)
    found = _everything(local, x, y, v)
    f, g, gy = (eqx.filter_jit(method) for method in (local.f, local.g, local.gy))
    expected = {
        "fx": _central_differences(lambda x: f(x, y), x),
        "fy": _central_differences(lambda y: f(x, y), y),
        "gy": _central_differences(lambda y: g(x, y), y),
        "hessian": _central_differences(lambda y: gy(x, y), y),
        "jacobian": _central_differences(lambda x: gy(x, y), x).T,
    }
    expected["gyy"] = expected["curvature"] = expected["hessian"] @ v
    expected["gxy"] = expected["jacobian"] @ v
    assert expected.keys() == found.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-7, atol=1e-8, err_msg=name)


def _network_output(y, rows):
    return jnp.tanh(rows @ y["weights"]["first"]) @ y["weights"]["second"] + y["bias"]


def _nested_upper(x, y, batch):
    error = _network_output(y, batch["rows"]) - batch["target"]
    return jnp.mean(error**2) + 0.1 * jnp.sum(x["a"]["matrix"] ** 2) + jnp.sin(x["scale"]) * y["bias"]


def _nested_lower(x, y, batch):
    error = _network_output(y, batch["rows"]) - batch["target"]
    penalty = jnp.sum(jnp.exp(x["a"]["matrix"]) * y["weights"]["first"] ** 2) + jnp.sum(y["weights"]["second"] ** 2)
    return jnp.mean(error**2) + penalty + 0.5 * (y["bias"] - x["scale"]) ** 2


@pytest.fixture(scope="module")
def nested() -> hg.Problem:
    """Dictionaries of matrices, vectors and scalars, their keys in no alphabetical order."""
    rng = np.random.default_rng(6)
    x0 = {"scale": jnp.float64(0.3), "a": {"matrix": jnp.asarray(rng.standard_normal((3, 2)))}}
    y0 = {
        "weights": {"second": jnp.asarray(rng.standard_normal(2)), "first": jnp.asarray(rng.standard_normal((3, 2)))},
        "bias": jnp.float64(-0.2),
    }
    data = {"rows": rng.standard_normal((2, 7, 3)), "target": rng.standard_normal((2, 7))}
    return hg.Problem(_nested_upper, _nested_lower, upper_data=data, lower_data=data, x0=x0, y0=y0)


def test_derivatives_on_nested_pytrees_are_those_of_central_differences(nested):
    _assert_like_central_differences(jax.tree.map(lambda leaf: leaf[0], _local(nested)), p=7, q=9)


def test_flat_gradients_of_nested_pytrees_belong_to_the_leaves_that_they_are_put_back_to(nested):
    local = jax.tree.map(lambda leaf: leaf[1], _local(nested))
    x, y = jax.tree.map(lambda leaf: leaf[1], (nested.x0, nested.y0))
    flat_x, flat_y = ravel_pytree(x)[0], ravel_pytree(y)[0]
    fx = local.losses.x.unravel(local.fx(flat_x, flat_y))
    gy = local.losses.y.unravel(local.gy(flat_x, flat_y))
    # By hand, leaf by leaf.
    np.testing.assert_allclose(fx["a"]["matrix"], 0.2 * x["a"]["matrix"], rtol=1e-14)
    np.testing.assert_allclose(fx["scale"], np.cos(x["scale"]) * y["bias"], rtol=1e-14)
    rows, target = (np.asarray(local.lower_batch[name]) for name in ("rows", "target"))
    first, second = (np.asarray(y["weights"][name]) for name in ("first", "second"))
    hidden = np.tanh(rows @ first)
    slope = 2 * (hidden @ second + float(y["bias"]) - target) / len(target)
    np.testing.assert_allclose(gy["bias"], slope.sum() + y["bias"] - x["scale"], rtol=1e-13)
    np.testing.assert_allclose(gy["weights"]["second"], hidden.T @ slope + 2 * second, rtol=1e-13)
    through_hidden = rows.T @ (np.outer(slope, second) * (1 - hidden**2))
    penalty = 2 * np.exp(np.asarray(x["a"]["matrix"])) * first
    np.testing.assert_allclose(gy["weights"]["first"], through_hidden + penalty, rtol=1e-13)


def test_a_run_does_not_depend_on_how_its_variables_are_nested(logistic):
    flat = logistic.hg_problem

    def flat_x(x):
        return jnp.concatenate([x["z"].reshape(-1), x["a"]["last"]])

    def flat_y(y):
        return jnp.concatenate([y["one"], y["four"], jnp.ravel(y["a"])])

    def upper(x, y, batch):
        return flat.upper(flat_x(x), flat_y(y), batch)

    def lower(x, y, batch):
        return flat.lower(flat_x(x), flat_y(y), batch)

    x0 = {"z": jnp.zeros((3, 1)), "a": {"last": jnp.zeros(1)}}
    y0 = {"one": jnp.zeros(1), "four": jnp.zeros(1), "a": jnp.zeros((1, 2))}
    data = {"upper_data": flat.upper_data, "lower_data": flat.lower_data}
    nested = hg.Problem(upper, lower, **data, x0=x0, y0=y0)
    algorithm = hg.DBOGT(outer_step=0.2, inner_step=0.1, inner_iterations=3, hypergradient=hg.JHIP(0.1, 4))
    ours, theirs = (hg.run(algorithm, p, hg.ring(logistic.n), 10, record_every=10) for p in (nested, flat))
    assert ours.x["z"].shape == (logistic.n, 3, 1)
    assert ours.mean_y["a"].shape == (1, 2)
    np.testing.assert_allclose(jax.vmap(flat_x)(ours.x), theirs.x, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(flat_y)(ours.y), theirs.y, rtol=1e-12)
    assert np.abs(theirs.x).min() > 1e-6  # the run has moved every entry
