"""Where constant steps lead, by the closed form of ∇Φ: to the solution, to a bias, or to another problem's solution."""

import jax.numpy as jnp
import numpy as np
import pytest

import hypergossip as hg

TOPOLOGY = hg.ring(8, self_weight=0.5)
START = 1.15
"""‖∇Φ‖ at the start, for scale."""


def _end(problem, kind, outer_step, steps=1500, oracle=None, **settings):
    """(‖∇Φ(x̄)‖, consensus) after a run with constant steps."""
    oracle = oracle or hg.JHIP(step=0.1, iterations=20)
    algorithm = kind(outer_step=outer_step, inner_step=0.1, inner_iterations=10, hypergradient=oracle, **settings)
    trace = hg.run(algorithm, problem.hg_problem, TOPOLOGY, steps, record_every=steps)
    return np.linalg.norm(problem.hypergradient(np.asarray(trace.mean_x))), trace.metrics["consensus"][-1]


def test_the_start_is_far_from_the_solution(quadratic):
    assert np.linalg.norm(quadratic.hypergradient(np.zeros(quadratic.p))) == pytest.approx(START, rel=0.01)


@pytest.mark.parametrize("oracle", [hg.JHIP(step=0.1, iterations=20), hg.HIGP(step=0.1, iterations=20)])
def test_dbogt_with_everything_carried_is_exact(quadratic, oracle):
    gradient, consensus = _end(quadratic, hg.DBOGT, 0.02, oracle=oracle)
    assert gradient < 1e-10
    assert consensus < 1e-10


def test_dbogt_is_exact_where_second_derivatives_move_with_the_iterates(logistic):
    original = logistic.hg_problem

    def pulled_upper(x, y, batch):
        # Without a pull on x the best penalty of some features is none at all, x = −∞.
        return original.upper(x, y, batch) + 0.05 * jnp.vdot(x, x)

    data = {"upper_data": original.upper_data, "lower_data": original.lower_data}
    problem = hg.Problem(pulled_upper, original.lower, **data, x0=original.x0, y0=original.y0)
    algorithm = hg.DBOGT(outer_step=0.2, inner_step=0.1, hypergradient=hg.JHIP(step=0.1, iterations=20))
    trace = hg.run(algorithm, problem, hg.ring(logistic.n, self_weight=0.5), 1500, record_every=1500)
    x = np.asarray(trace.mean_x)
    assert np.linalg.norm(x) > 0.1
    assert np.linalg.norm(logistic.hypergradient(x) + 0.1 * x) < 1e-10


@pytest.mark.parametrize("kind", [hg.DBO, hg.DBOGT])
def test_the_papers_letter_stalls_at_a_floor_that_no_outer_step_lowers(kind, quadratic):
    (coarse, _), (fine, _) = (_end(quadratic, kind, step, carry=False) for step in (0.02, 0.01))
    assert 1e-4 < fine < START / 10  # a floor, not a failure to move
    assert fine == pytest.approx(coarse, rel=0.01)


def test_dbo_keeps_a_bias_in_proportion_to_its_step(quadratic):
    # Enough iterations for each step to be at its fixed point: K η_x is the same for all.
    steps = [0.01, 0.005, 0.0025]
    biases = [_end(quadratic, hg.DBO, step, steps=int(20 / step)) for step in steps]
    gradients, consensus = np.array(biases).T
    assert gradients[-1] > 1e-4
    np.testing.assert_allclose(gradients[:-1] / gradients[1:], 2, rtol=0.1)
    np.testing.assert_allclose(consensus[:-1] / consensus[1:], 2, rtol=0.1)
    # On the way to proportionality: the smaller the steps, the closer the ratio to theirs.
    assert abs(gradients[1] / gradients[2] - 2) < abs(gradients[0] / gradients[1] - 2)


def test_longer_runs_do_not_lower_dbos_bias(quadratic):
    (short, _), (long, _) = (_end(quadratic, hg.DBO, 0.01, steps) for steps in (2000, 4000))
    assert long == pytest.approx(short, rel=1e-6)


@pytest.mark.parametrize("homogeneous", [True, False], ids=["declared homogeneous", "AID in a heterogeneous run"])
def test_local_second_derivatives_lead_elsewhere_when_agents_differ(homogeneous, quadratic):
    settings = {"homogeneous": homogeneous, "oracle": hg.AID(iterations=20)}
    reference, consensus = _end(quadratic, hg.DBOGT, 0.02, **settings)
    smaller_step, _ = _end(quadratic, hg.DBOGT, 0.01, steps=3000, **settings)
    longer, _ = _end(quadratic, hg.DBOGT, 0.02, steps=3000, **settings)
    assert reference > START / 10
    assert consensus < 1e-10  # the agents agree, and the run has settled: on a wrong point
    assert smaller_step == pytest.approx(reference, rel=1e-6)
    assert longer == pytest.approx(reference, rel=1e-6)


def test_local_second_derivatives_are_right_when_agents_share_their_lower_level(homogeneous_quadratic):
    gradient, _ = _end(homogeneous_quadratic, hg.DBOGT, 0.02, homogeneous=True, oracle=hg.AID(iterations=20))
    assert gradient < 1e-10
