"""Upper variables of which parts are agents' own, against the closed form for the long vector that holds all parts."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypergossip as hg

N, S, L, Q = 5, 2, 3, 4
"""Agents; shared numbers; each agent's own; y's."""
TOPOLOGY = hg.ring(N, self_weight=0.5)


def upper(x, y, batch):
    deviation = y - batch["b"][0]
    return 0.5 * deviation @ deviation + 0.1 * x["shared"] @ x["shared"] + 0.5 * x["own"] @ x["own"]


def lower(x, y, batch):
    force = x["shared"] @ batch["C"][0] + x["own"] @ batch["J"][0] + batch["d"][0]
    return 0.5 * y @ batch["H"][0] @ y + force @ y


@dataclass(frozen=True)
class Quadratic:
    """f_i = ½‖y − b_i‖² + 0.1‖s‖² + ½‖w_i‖²,  g_i = ½ yᵀH_i y + (C_iᵀs + J_iᵀw_i + d_i)ᵀy,  x = (s, w_1 … w_n)."""

    seed: int = 4

    @cached_property
    def arrays(self):
        rng = np.random.default_rng(self.seed)
        roots = rng.standard_normal((N, Q, Q)) / 2
        shapes = {"b": (N, Q), "C": (N, S, Q), "J": (N, L, Q), "d": (N, Q)}
        arrays = {name: rng.standard_normal(shape) / 2 for name, shape in shapes.items()}
        return {**arrays, "H": roots @ roots.transpose(0, 2, 1) + np.eye(Q)}

    @cached_property
    def hg_problem(self):
        rows = {name: value[:, None] for name, value in self.arrays.items()}
        return hg.Problem(
            upper,
            lower,
            upper_data={"b": rows["b"]},
            lower_data={name: rows[name] for name in "CJdH"},
            x0={"own": jnp.zeros(L), "shared": jnp.zeros(S)},
            y0=jnp.zeros(Q),
            own={"own": True, "shared": False},
        )

    def hypergradient(self, shared, own):
        """(∂Φ/∂s, every ∂Φ/∂w_i): of the long vector, by dense solves."""
        a = self.arrays
        H, b = a["H"].mean(0), a["b"].mean(0)
        force = shared @ a["C"].mean(0) + np.einsum("nl,nlq->q", own, a["J"]) / N + a["d"].mean(0)
        v = np.linalg.solve(H, np.linalg.solve(H, -force) - b)
        return 0.2 * shared - a["C"].mean(0) @ v, (own - np.einsum("nlq,q->nl", a["J"], v)) / N


@pytest.fixture(scope="module")
def quadratic():
    return Quadratic()


def _norm(gradient):
    return np.sqrt(sum((part**2).sum() for part in gradient))


HIGP = hg.HIGP(step=0.1, iterations=20)
SETTINGS = {"outer_step": 0.1, "inner_step": 0.1, "inner_iterations": 10}


@pytest.fixture(scope="module")
def trace(quadratic):
    algorithm = hg.DBOGT(**SETTINGS, hypergradient=HIGP)
    metrics = [hg.hypergradient_norm(), hg.movement(), hg.disagreement()]
    return hg.run(algorithm, quadratic.hg_problem, TOPOLOGY, 30, metrics=metrics)


def _at(trace, quadratic):
    x = trace.mean_x
    return quadratic.hypergradient(np.asarray(x["shared"]), np.asarray(x["own"]))


def test_the_gradient_norm_is_that_of_the_long_vector(trace, quadratic):
    norms = trace.metrics["hypergradient_norm"]
    assert norms[0] == pytest.approx(_norm(quadratic.hypergradient(np.zeros(S), np.zeros((N, L)))), rel=1e-10)
    assert norms[-1] == pytest.approx(_norm(_at(trace, quadratic)), rel=1e-8)
    assert 1e-3 < norms[-1] < norms[0] / 2


def test_own_leaves_come_back_as_every_agents_own_and_shared_ones_as_their_mean(trace):
    assert trace.x["own"].shape == trace.mean_x["own"].shape == (N, L)
    np.testing.assert_array_equal(trace.mean_x["own"], trace.x["own"])
    assert np.abs(np.diff(np.asarray(trace.x["own"]), axis=0)).min() > 1e-3
    np.testing.assert_allclose(trace.mean_x["shared"], np.asarray(trace.x["shared"]).mean(axis=0), rtol=1e-14)


def test_consensus_is_about_the_shared_part_alone(trace):
    shared = np.asarray(trace.x["shared"])
    expected = np.sqrt(((shared - shared.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert trace.metrics["consensus"][-1] == pytest.approx(expected, rel=1e-10)


def test_own_parts_are_never_sent(trace):
    along_edge = trace.communication.along_edge
    assert along_edge["x"] == along_edge["u"] == hg.Traffic(1, 8 * S)


@pytest.mark.parametrize("kind", [hg.DBO, hg.DBOGT])
def test_what_is_entirely_own_is_not_sent_at_all_and_needs_no_tracking(kind, quadratic):
    whole = quadratic.hg_problem
    problem = hg.Problem(
        lambda w, y, batch: upper({"own": w, "shared": jnp.zeros(S)}, y, batch),
        lambda w, y, batch: lower({"own": w, "shared": jnp.zeros(S)}, y, batch),
        upper_data=whole.upper_data,
        lower_data=whole.lower_data,
        x0=jnp.zeros(L),
        y0=jnp.zeros(Q),
        own=True,
    )
    trace = hg.run(kind(**SETTINGS, hypergradient=HIGP), problem, TOPOLOGY, 1500, record_every=500)
    assert set(trace.communication.along_edge) == {"y", "v", "z", "d"}
    assert (trace.metrics["consensus"] == 0).all()
    own = quadratic.hypergradient(np.zeros(S), np.asarray(trace.x))[1]
    assert np.abs(own).max() < 1e-10  # DBO too: no mean of others' gradients is missing


def test_dbogt_with_higp_is_exact_where_parts_are_own(quadratic):
    algorithm = hg.DBOGT(**SETTINGS, hypergradient=HIGP)
    trace = hg.run(algorithm, quadratic.hg_problem, TOPOLOGY, 3000, record_every=3000)
    assert _norm(_at(trace, quadratic)) < 1e-10


def test_local_second_derivatives_lead_elsewhere(quadratic):
    algorithm = hg.DBOGT(**SETTINGS, hypergradient=hg.AID(iterations=10))
    trace = hg.run(algorithm, quadratic.hg_problem, TOPOLOGY, 3000, record_every=3000)
    assert _norm(_at(trace, quadratic)) > 0.05


def test_an_outer_iteration_is_the_rule_part_by_part(quadratic):
    # One iteration of DBO from zero by hand, with one inner and one oracle iteration.
    a, W, step = quadratic.arrays, TOPOLOGY.W, 0.2
    algorithm = hg.DBO(0.3, step, 1, hg.HIGP(step, 1), carry=False)
    trace = hg.run(algorithm, quadratic.hg_problem, TOPOLOGY, 1)
    y = -step * a["d"]
    z = step * (y - a["b"])
    shared, own = -np.einsum("nsq,nq->ns", a["C"], z), -np.einsum("nlq,nq->nl", a["J"], z) / N
    np.testing.assert_allclose(trace.x["shared"], W @ np.zeros((N, S)) - 0.3 * shared, rtol=1e-12)
    np.testing.assert_allclose(trace.x["own"], -0.3 * own, rtol=1e-12)


def test_stochastic_runs_and_interrupted_ones_keep_their_own_parts(quadratic, tmp_path):
    algorithm = hg.DSBO(0.1, 0.1, 2, hg.HIGP(0.1, 2), carry=False, batch_size=1)

    def run(steps, **settings):
        return hg.run(algorithm, quadratic.hg_problem, TOPOLOGY, steps, record_every=2, seed=3, **settings)

    run(4, checkpoint=tmp_path)
    resumed, unbroken = run(8, checkpoint=tmp_path), run(8)
    for one, other in zip(jax.tree.leaves(resumed.state), jax.tree.leaves(unbroken.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_checkpoint_of_another_division_of_x_is_refused(quadratic, tmp_path):
    algorithm = hg.DBO(**SETTINGS, hypergradient=HIGP)
    hg.run(algorithm, quadratic.hg_problem, TOPOLOGY, 1, checkpoint=tmp_path)
    p = quadratic.hg_problem
    data = {"upper_data": p.upper_data, "lower_data": p.lower_data}
    start = {"x0": {"own": jnp.zeros(L), "shared": jnp.zeros(S)}, "y0": jnp.zeros(Q)}
    other = hg.Problem(upper, lower, **data, **start, own={"own": True, "shared": True})
    with pytest.raises(hg.CheckpointMismatch, match="own leaves of x"):
        hg.run(algorithm, other, TOPOLOGY, 1, checkpoint=tmp_path)


def test_jhip_says_why_it_cannot_serve_and_what_can(quadratic):
    with pytest.raises(ValueError, match=r"hg\.JHIP makes .* agents' own .* such as hg\.HIGP"):
        hg.run(hg.DBO(**SETTINGS), quadratic.hg_problem, TOPOLOGY, 1)


@pytest.mark.parametrize(
    ("own", "error", "message"),
    [
        ({"own": True}, ValueError, r"own = \{'own': True\} does not fit x0"),
        ({"own": 1, "shared": False}, TypeError, "expected True or False for every leaf of x0"),
        ("own", TypeError, "expected True or False"),
    ],
)
def test_a_choice_of_leaves_that_does_not_fit_is_refused(own, error, message, quadratic):
    p = quadratic.hg_problem
    data = {"upper_data": p.upper_data, "lower_data": p.lower_data}
    with pytest.raises(error, match=message):
        hg.Problem(upper, lower, **data, x0={"own": jnp.zeros(L), "shared": jnp.zeros(S)}, y0=jnp.zeros(Q), own=own)
