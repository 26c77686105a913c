"""Equinox models as x and y: their functions are no variables, and stand in losses and results where they were."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypergossip as hg

N, P = 3, 2
KEYS = jax.random.split(jax.random.key(3), 2)
ROWS = np.random.default_rng(0).standard_normal((N, 4, P))


def model(key=KEYS[0], activation=jnp.tanh):
    return eqx.nn.MLP(P, 1, 4, 1, activation=activation, key=key)


def squares(f, batch):
    return jnp.mean((jax.vmap(f)(batch)[:, 0] - batch[:, 0]) ** 2)


def ridge(y, factor):
    leaves = jax.tree.leaves(eqx.filter(y, eqx.is_array))
    return factor * jnp.stack([jnp.sum(leaf**2) for leaf in leaves]).sum()


def problem(x0, y0, **given):
    def upper(x, y, batch):
        return squares(y if callable(y) else x, batch)

    def lower(x, y, batch):
        if callable(y):
            return squares(y, batch) + ridge(y, jnp.exp(x[0]))
        return jnp.sum((y - jax.vmap(x)(batch).mean()) ** 2)

    return hg.Problem(upper, lower, upper_data=ROWS, lower_data=ROWS, x0=x0, y0=y0, **given)


def fitted(witness):
    """Models can be called wherever they are seen."""
    at = jnp.ones(P)
    own, mean = (f(at)[0] if callable(f) else f[0] for f in (witness.y, witness.mean_y))
    return {"own": own, "mean": mean}


ALGORITHM = hg.DBO(0.05, 0.05, 2, hg.HIGP(0.05, 2))


def test_a_model_as_y_is_trained_as_its_numbers_are():
    trace = hg.run(ALGORITHM, problem(jnp.zeros(1), model()), hg.ring(N), 5, metrics=[fitted, hg.hypergradient_norm()])
    numbers, functions = eqx.partition(model(), eqx.is_array)

    def of_numbers(y):
        return eqx.combine(y, functions)

    plain = hg.Problem(
        lambda x, y, batch: squares(of_numbers(y), batch),
        lambda x, y, batch: squares(of_numbers(y), batch) + ridge(y, jnp.exp(x[0])),
        upper_data=ROWS,
        lower_data=ROWS,
        x0=jnp.zeros(1),
        y0=numbers,
    )
    other = hg.run(ALGORITHM, plain, hg.ring(N), 5)
    for one, same in zip(jax.tree.leaves(trace.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-12, atol=1e-14)
    at = jnp.ones(P)
    assert float(trace.mean_y(at)[0]) == pytest.approx(trace.metrics["mean"][-1], rel=1e-12)
    each = eqx.filter_vmap(lambda y: y(at)[0])(trace.y)
    assert each.shape == (N,)
    assert float(each.mean()) == pytest.approx(trace.metrics["own"][-1], rel=1e-12)
    assert trace.y.activation is trace.mean_y.activation is model().activation


def test_a_model_as_x_is_trained_and_resumed_to_the_same_bits(tmp_path):
    given = {"metrics": [fitted], "record_every": 2}
    here = problem(model(), jnp.zeros(1))
    hg.run(ALGORITHM, here, hg.ring(N), 3, checkpoint=tmp_path, **given)
    resumed = hg.run(ALGORITHM, problem(model(), jnp.zeros(1)), hg.ring(N), 6, checkpoint=tmp_path, **given)
    unbroken = hg.run(ALGORITHM, here, hg.ring(N), 6, **given)
    for one, same in zip(jax.tree.leaves(resumed.state), jax.tree.leaves(unbroken.state), strict=True):
        np.testing.assert_array_equal(one, same)
    assert resumed.x.layers[0].weight.shape == (N, 4, P)
    assert resumed.mean_x(jnp.ones(P)).shape == (1,)
    assert jnp.abs(resumed.mean_x.layers[0].weight - model().layers[0].weight).max() > 1e-4
    with pytest.raises(hg.CheckpointMismatch, match="loss: formula"):
        hg.run(ALGORITHM, problem(model(activation=jnp.sin), jnp.zeros(1)), hg.ring(N), 6, checkpoint=tmp_path, **given)


def test_a_model_for_each_agent_and_leaves_of_models_that_are_agents_own():
    each = eqx.filter_vmap(model)(jax.random.split(KEYS[1], N))
    here = problem(each, jnp.zeros((N, 1)), own=True)
    assert sum(here.own) == len(jax.tree.leaves(eqx.filter(each, eqx.is_array)))
    trace = hg.run(ALGORITHM, here, hg.ring(N), 2)
    assert "x" not in trace.communication.along_edge
    assert trace.mean_x.layers[0].weight.shape == (N, 4, P)
    start = hg.run(ALGORITHM, here, hg.ring(N), 1)
    assert np.ptp(np.asarray(start.x.layers[0].weight), axis=0).min() > 1e-3
