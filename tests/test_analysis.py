"""The analysis against closed forms, its stability limits against dense eigenvalues, its advice against runs."""

import math
import re
import runpy
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from test_models import N as MODELS_AGENTS
from test_models import model
from test_models import problem as with_models
from test_own_parts import TOPOLOGY as OWN_TOPOLOGY
from test_own_parts import Quadratic as WithOwnParts

import hypergossip as hg
from hypergossip.analysis.analysis import _rows_drawn
from hypergossip.analysis.constants import Constants, worst
from hypergossip.analysis.derivatives import third_derivative
from hypergossip.analysis.similarity import _most_apart, similarity
from hypergossip.analysis.spectra import Blocks, largest_against_gossip
from hypergossip.analysis.stability import GOSSIP, LOCAL, TRACKED, WAYS, Modes
from hypergossip.analysis.theorems import Theory
from hypergossip.analysis.view import View
from hypergossip.experiments import synthetic

ROOT = Path(__file__).parent.parent
RING = hg.ring(8, self_weight=0.5)
SMALL_LETTER = replace(synthetic.SMALL, spread="i")
BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "recommendations.py"))


@pytest.fixture(scope="module")
def of_quadratic(quadratic):
    return hg.analyse(quadratic.hg_problem, RING)


@pytest.fixture(scope="module")
def of_small():
    return hg.analyse(synthetic.SMALL.problem(), synthetic.SMALL.topology(), batch_size=synthetic.SMALL.batch_size)


def hessian_of_phi(quadratic):
    at_zero = quadratic.hypergradient(np.zeros(quadratic.p))
    return np.stack([quadratic.hypergradient(e) - at_zero for e in np.eye(quadratic.p)], axis=1)


def test_the_constants_of_a_quadratic_are_its_matrices(quadratic, of_quadratic):
    a, found = quadratic.arrays, of_quadratic.constants
    each, mean = np.linalg.eigvalsh(a["H"]), np.linalg.eigvalsh(a["H"].mean(0))
    np.testing.assert_allclose([found.mu, found.L_g1, found.low, found.high], [each.min(), each.max(), *mean[[0, -1]]])
    assert found.L_f1 == pytest.approx(max(1, np.linalg.eigvalsh(a["A"]).max()))
    assert pytest.approx(np.linalg.norm(a["J"], 2, axis=(1, 2)).max()) == found.J
    assert found.L_g2 == pytest.approx(0, abs=1e-12)
    assert found.kappa == pytest.approx(max(found.L_f1, found.L_g1, found.J) / each.min())
    y = -np.linalg.solve(a["H"].mean(0), a["d"].mean(0))
    gradients = [np.concatenate([a["c"], y - a["b"]], axis=1) for y in (np.zeros(quadratic.q), y)]
    assert found.L_f0 == pytest.approx(max(np.linalg.norm(g, axis=1).max() for g in gradients))


def test_the_curvature_of_phi_is_that_of_its_closed_form(quadratic, of_quadratic):
    hessian, outer = hessian_of_phi(quadratic), of_quadratic.outer
    np.testing.assert_allclose([outer.low, outer.high], np.linalg.eigvalsh(hessian)[[0, -1]], rtol=1e-6)
    assert outer.L_phi == pytest.approx(np.linalg.norm(hessian, 2), rel=1e-6)
    assert outer.gradient == pytest.approx(np.linalg.norm(quadratic.hypergradient(np.zeros(quadratic.p))))
    A = quadratic.arrays["A"]
    own = np.linalg.eigvalsh(A).max() + np.linalg.norm(hessian - A.mean(0), 2)
    assert outer.own == pytest.approx(own, rel=1e-6)


def test_the_surrogates_error_is_that_of_the_agents_own_hypergradients(quadratic, of_quadratic):
    a, exact = quadratic.arrays, quadratic.hypergradient(np.zeros(quadratic.p))
    y = -np.linalg.solve(a["H"], a["d"][..., None])
    z = np.linalg.solve(a["H"], y - a["b"][..., None])
    own = (a["c"] - (a["J"] @ z)[..., 0]).mean(0)
    expected = np.linalg.norm(own - exact) / np.linalg.norm(exact)
    assert expected > 0.1
    assert of_quadratic.outer.surrogate == pytest.approx(expected, rel=1e-8)


def test_parts_that_are_agents_own_enter_as_one_long_x():
    case = WithOwnParts()
    analysis = hg.analyse(case.hg_problem, OWN_TOPOLOGY, hg.DBOGT(0.1, 0.1, hypergradient=hg.HIGP(0.1)))
    a = case.arrays
    n, s, w, q = len(a["C"]), a["C"].shape[1], a["J"].shape[1], a["H"].shape[1]
    force = np.concatenate([a["C"].mean(0), (a["J"] / n).reshape(n * w, q)])
    y = force @ np.linalg.inv(a["H"].mean(0))
    hessian = y @ y.T + np.diag([0.2] * s + [1 / n] * (n * w))
    assert analysis.p == s + n * w
    np.testing.assert_allclose(
        [analysis.outer.low, analysis.outer.high], np.linalg.eigvalsh(hessian)[[0, -1]], rtol=1e-5
    )
    both = np.concatenate([a["C"], a["J"]], axis=1)
    assert pytest.approx(np.linalg.norm(both, 2, axis=(1, 2)).max()) == analysis.constants.J
    assert hg.recommend("DBOGT", analysis, 10).practical.oracle.value is hg.HIGP
    assert len(analysis.findings) == 3


def flat_of(net):
    """A model's numbers as one vector, and the model of such a vector."""
    variables, functions = eqx.partition(net, eqx.is_array)
    flat, unravel = jax.flatten_util.ravel_pytree(variables)
    return flat, lambda v: eqx.combine(unravel(v), functions)


def test_a_model_as_y_is_analysed_as_its_numbers_are():
    """Functions among the leaves are no variables."""
    problem, (flat, called) = with_models(jnp.zeros(1), model()), flat_of(model())
    found = hg.analyse(problem, hg.ring(MODELS_AGENTS), points=[(jnp.zeros(1), model())])

    def g(v, batch):
        return problem.lower(jnp.zeros(1), called(v), batch)

    hessians = jax.vmap(jax.hessian(g), in_axes=(None, 0))(flat, problem.lower_data)
    each = np.linalg.eigvalsh(hessians)
    assert found.q == flat.size
    np.testing.assert_allclose([found.constants.mu, found.constants.L_g1], [each.min(), each.max()], rtol=1e-8)


@pytest.mark.parametrize("own", [False, True])
def test_a_model_as_x_is_seen_by_every_agent(own):
    flat, called = flat_of(model())
    x0 = model()
    if own:
        x0 = eqx.filter_vmap(model)(jax.random.split(jax.random.key(1), MODELS_AGENTS))
    problem = with_models(x0, jnp.zeros((MODELS_AGENTS, 1)) if own else jnp.zeros(1), own=own)
    view = View.of(problem)
    x, y = view.start(problem)[1:]
    each = np.asarray(view.each(x))
    assert x.size == flat.size * (MODELS_AGENTS if own else 1)
    if not own:
        np.testing.assert_allclose(each, np.broadcast_to(flat, each.shape), rtol=1e-14)
    losses = [problem.lower(called(each[i]), y, problem.lower_data[i]) for i in range(MODELS_AGENTS)]
    assert float(view.pooled.g(x, y)) == pytest.approx(float(np.mean(losses)), rel=1e-12)


def test_third_derivatives_are_found_and_never_overestimated(logistic):
    problem = logistic.hg_problem
    rng = np.random.default_rng(3)
    x, y = 0.3 * rng.standard_normal((2, logistic.p))
    directions = jnp.asarray(rng.standard_normal((4, logistic.n, 2 * logistic.p)))
    found = float(third_derivative(View.of(problem), jnp.asarray(x), jnp.asarray(y), directions, 15))

    def g(z, batch):
        return problem.lower(z[: logistic.p], z[logistic.p :], batch)

    tensors = jax.vmap(jax.jacfwd(jax.hessian(g)), in_axes=(None, 0))(jnp.concatenate([x, y]), problem.lower_data)
    d = rng.standard_normal((len(tensors), 60, 2 * logistic.p))
    for _ in range(100):
        d /= np.linalg.norm(d, axis=2, keepdims=True)
        t = np.einsum("aijk,asj,ask->asi", tensors, d, d)
        largest = np.linalg.norm(t, axis=2).max()
        d = t + 0.5 * largest * d
    assert 0.98 * largest <= found <= largest * (1 + 1e-6)


def test_the_lemmas_formulas_by_hand():
    theory = Theory(L=2.0, mu=1.0, L_f0=3.0, L_g2=0.5)
    assert theory.L_phi == pytest.approx(2 + (8 + 4.5) + (3 + 8 + 3) + 6)
    assert theory.L_f == pytest.approx(2 + 4 + 3 * (0.5 + 1))
    root = (1 + math.sqrt(2)) ** 2
    assert theory.gamma == pytest.approx(12 + 3 * 0.25 * 3 + 24 * root * 3.5**2)
    assert theory.d1 == pytest.approx(4 * root * 3.5**2)
    assert theory.d2 == pytest.approx(2 * (4 + 12 + 24) ** 2)
    assert theory.dbo_step(4, 0.5, homogeneous=True) == pytest.approx(0.5 / (130 * 2 * 34.5))
    assert theory.dbo_step(4, 0.5, homogeneous=False) == pytest.approx(1 / 34.5)
    assert theory.dbogt_step(2, 0.5, homogeneous=True) == pytest.approx(0.25 / (8 * 34.5))
    assert theory.dbogt_step(6, 0.5, homogeneous=False) == pytest.approx(0.25 / (24 * 2 * 10.5))
    factor = 1 - 2 * 0.5 * 2 / 3
    T = theory.inner_iterations(0.5, 1e-3)
    assert factor**T < 1e-3 <= factor ** (T - 1)
    delta = ((math.sqrt(2) - 1) / (math.sqrt(2) + 1)) ** 2
    N = theory.cg_iterations(1e-5)
    assert delta**N < 1e-5 <= delta ** (N - 1)


def blocks_of(matrices):
    return Blocks(lambda v: jnp.einsum("nab,nb->na", matrices, v), *matrices.shape[:2], np.dtype(float))


def spread_hessians(n, q, seed=0, shared=False):
    """Positive definite matrices with eigenvalues over two decades; at agents that share one, the same."""
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.standard_normal((n, q, q)))[0]
    H = (turns * 10 ** rng.uniform(0, 2, (n, 1, q))) @ turns.swapaxes(1, 2)
    return np.broadcast_to(H[0], H.shape).copy() if shared else H


def spectral_radius(way, W, H, step):
    """Of the whole system of all agents, the tracker's q neutral modes (eigenvalue 1) left out."""
    n, q = H.shape[:2]
    D, mix = scipy.linalg.block_diag(*H), np.kron(W, np.eye(q))
    if way is LOCAL:
        return np.abs(np.linalg.eigvals(np.eye(n * q) - step * D)).max()
    if way is GOSSIP:
        return np.abs(np.linalg.eigvals(mix - step * D)).max()
    system = np.block([[mix, -step * np.eye(n * q)], [D @ (mix - np.eye(n * q)), mix - step * D]])
    sizes = np.linalg.eigvals(system)
    neutral = np.argsort(np.abs(sizes - 1))[:q]
    np.testing.assert_allclose(sizes[neutral], 1, atol=1e-7)
    return np.abs(np.delete(sizes, neutral)).max()


@pytest.mark.parametrize("topology", [hg.ring(6, self_weight=0.4), hg.path(5), hg.star(7)], ids=lambda t: t.name)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "differing"])
def test_limits_are_where_the_whole_system_turns_unstable(topology, way, shared):
    H = spread_hessians(topology.n, 3, shared=shared)
    exact, converged = way.limit(blocks_of(H), topology)
    guaranteed = way.guaranteed(topology.smallest, np.linalg.eigvalsh(H).max())
    assert converged
    assert spectral_radius(way, topology.W, H, 0.999 * exact) < 1 < spectral_radius(way, topology.W, H, 1.001 * exact)
    assert guaranteed == pytest.approx(exact) if shared or way is LOCAL else guaranteed < exact
    assert guaranteed <= exact * (1 + 1e-9)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_the_model_of_contraction_and_growth_is_exact_where_agents_share_their_hessian(way):
    topology = hg.ring(6, self_weight=0.4)
    H = spread_hessians(6, 2, shared=True)
    low, high = np.linalg.eigvalsh(H[0])
    limit = way.guaranteed(topology.smallest, high)
    for part in (0.3, 0.9):
        true = spectral_radius(way, topology.W, H, part * limit)
        model = Modes.of(topology).contraction(way, part * limit, (low, high), (low, high))
        assert true <= model * (1 + 1e-9)  # the model takes all λ between λₙ and ρ
        assert model == pytest.approx(true, rel=2e-3)
    beyond = 1.5 * limit
    assert way.growth(beyond, limit, topology.smallest) == pytest.approx(
        spectral_radius(way, topology.W, H, beyond), rel=1e-9
    )
    step, rate = Modes.of(topology).best_step(way, 0.8 * limit, (low, high), (low, high))
    others = [Modes.of(topology).contraction(way, f * limit, (low, high), (low, high)) for f in (0.1, 0.4, 0.8)]
    assert step <= 0.8 * limit * (1 + 1e-12)
    assert rate <= min(others) * (1 + 1e-3)


@pytest.mark.parametrize("matrix", [np.zeros, lambda shape: np.broadcast_to(3 * np.eye(150), shape)])
def test_lanczos_finds_a_spectrum_that_is_a_point(matrix):
    """A derivative can vanish at a point, and a penalty's Hessian be a multiple of the identity."""
    H = matrix((2, 150, 150))
    assert blocks_of(H).extremes() == (pytest.approx(H[0, 0, 0]), pytest.approx(H[0, 0, 0]), True, True)


def test_lanczos_finds_both_ends_where_one_is_0_many_times():
    """As of an upper loss in (x, y) that does not depend on x."""
    H = np.zeros((3, 150, 150))
    for i, (low, high) in enumerate([(-2.0, 1.0), (-0.5, 4.0), (0.0, 0.5)]):
        H[i, 0, 0], H[i, 1, 1] = low, high
    for sign in (1, -1):
        found = blocks_of(sign * H).extremes()
        assert found.converged
        np.testing.assert_allclose(sorted([sign * found.low, sign * found.high]), [-2, 4], rtol=1e-6)
    assert blocks_of(np.abs(H)).extremes().low == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("small", [0.0, 1e-5, 1e-2])
def test_an_end_within_the_error_of_the_other_is_not_called_known(small):
    values = np.linspace(1.0, 4.0, 150)
    values[0] = small
    H = np.diag(values)[None]
    for sign in (1, -1):
        found = blocks_of(sign * H).extremes()
        flags = [found.low_converged, found.high_converged][::sign]
        assert flags == [small == 1e-2, True]
        assert found.converged is (small == 1e-2)
        assert found.largest_converged


def test_lanczos_finds_what_dense_eigenvalues_are():
    rng = np.random.default_rng(1)
    roots = rng.standard_normal((4, 150, 150)) / 10
    H = roots @ roots.transpose(0, 2, 1) + np.eye(150)
    topology, blocks = hg.path(4), blocks_of(H)
    assert not blocks.small
    found = blocks.extremes()
    assert found.converged
    exact = np.linalg.eigvalsh(H)
    np.testing.assert_allclose([found.low, found.high], [exact.min(), exact.max()], rtol=1e-5)
    mixing = np.linalg.inv(np.eye(4) + topology.W)
    factor = np.kron(np.linalg.cholesky(mixing), np.eye(150))
    top = np.linalg.eigvalsh(factor.T @ scipy.linalg.block_diag(*H) @ factor)[-1]
    against, converged = largest_against_gossip(blocks, topology, 1)
    assert converged
    assert against == pytest.approx(top, rel=1e-6)


def test_the_smallest_eigenvalue_of_w():
    for n in (7, 700):  # dense, and by Lanczos
        assert hg.ring(n, self_weight=0.4).smallest == pytest.approx(
            min(0.4 + 0.6 * math.cos(2 * math.pi * k / n) for k in range(n)), abs=1e-8
        )
    assert hg.complete(5).smallest == pytest.approx(0, abs=1e-12)
    assert hg.ring(1).smallest == 1


def test_steps_within_the_limits_run_and_steps_beyond_diverge_as_foreseen(quadratic, of_quadratic):
    limit = of_quadratic.exact(TRACKED)

    def levels(algorithm):
        return {finding.about: finding.level for finding in of_quadratic.foresee(algorithm)}

    def run(algorithm):
        return hg.run(algorithm, quadratic.hg_problem, RING, 300, record_every=300)

    within = hg.DBOGT(0.01, 0.8 * limit, 5, hg.JHIP(0.8 * limit, 5))
    assert "diverges" not in levels(within).values()
    end = quadratic.hypergradient(np.asarray(run(within).mean_x))
    assert np.linalg.norm(end) < 0.3 * np.linalg.norm(quadratic.hypergradient(np.zeros(quadratic.p)))
    beyond = {
        "inner_step": hg.DBOGT(0.01, 2 * limit, 5, hg.JHIP(0.5 * limit, 5)),
        "hypergradient.step": hg.DBOGT(0.01, 0.5 * limit, 5, hg.JHIP(2 * limit, 5)),
    }
    for about, algorithm in beyond.items():
        assert levels(algorithm)[about] == "diverges"
        with pytest.raises(hg.Diverged):
            run(algorithm)


def test_growth_that_no_float_holds_is_told_as_a_power_of_ten(quadratic, of_quadratic):
    oracle = hg.JHIP(0.001, 2)
    judged = {T: of_quadratic.foresee(hg.DBOGT(0.01, 50.0, T, oracle))[0] for T in (1, 3000)}
    assert {finding.level for finding in judged.values()} == {"diverges"}
    once = float(re.search(r"grow (\S+)-fold", judged[1].sentence)[1])
    power = float(re.search(r"grow 10\^(\d+)-fold", judged[3000].sentence)[1])
    assert power == pytest.approx(3000 * math.log10(once), rel=0.02)


def test_mini_batches_and_a_carried_oracle_of_dsbo_are_foreseen(of_quadratic):
    steep = replace(of_quadratic.similarity, sampled_high=3 * of_quadratic.constants.L_g1)
    known = replace(of_quadratic, similarity=steep)
    unknown = replace(of_quadratic, similarity=replace(steep, sampled_high=math.nan))
    limit, oracle = of_quadratic.limits["solution"][GOSSIP.name].exact, hg.HIGP(1e-3, 5)

    def judged(analysis, step=0.5, kind=hg.DSBO, oracle=oracle, **more):
        return {f.about: f for f in analysis.foresee(kind(0.01, step * limit, 5, oracle, **more))}

    assert judged(known)["inner_step"].level == "beyond what the theorem covers"
    assert judged(known)["inner_step"].limit == pytest.approx(limit / 3)
    assert judged(known, 1.5)["inner_step"].limit == pytest.approx(limit)
    assert judged(known, 0.3)["inner_step"].level == "fine"
    for analysis, more in ((of_quadratic, {}), (unknown, {}), (known, {"batch_size": None})):
        assert judged(analysis, 0.3, **more)["inner_step"].level == "fine"
        assert "mini-batches" not in judged(analysis, **more)["inner_step"].sentence
    for other in (oracle, hg.JHIP(1e-3, 5)):
        assert judged(known, oracle=other, carry=True)["carry"].level == "beyond what the theorem covers"
    assert "carry" not in judged(known, carry=False)
    assert "carry" not in judged(known, carry=True, oracle=hg.AID(5))
    assert "carry" not in judged(known, carry=True, kind=hg.DBO)


def test_the_batch_size_is_the_algorithms_where_none_is_given():
    rows = np.random.default_rng(5).standard_normal((3, 12, 3))
    problem = hg.Problem(_upper, _lower, upper_data=rows, lower_data=rows, x0=jnp.zeros(3), y0=jnp.zeros(3))
    view = View.of(problem)
    whole = similarity(problem, view, [view.start(problem)], batch_size=None, seed=0)
    assert whole.batch_size is None
    assert whole.sampled_high == pytest.approx(1)
    assert whole.ratio > 0
    assert _rows_drawn(None, None) == _rows_drawn(None, hg.DBO(0.1, 0.1)) == 32
    for of_algorithm in (7, None):
        algorithm = hg.DSBO(0.1, 0.1, batch_size=of_algorithm)
        assert _rows_drawn(None, algorithm) == of_algorithm
        assert _rows_drawn(5, algorithm) == 5


def test_points_where_rows_do_not_differ_are_left_out_in_any_order():
    known, more, unknown = (1.0, 2.0), (3.0, 4.0), (math.nan, math.nan)
    for found in ([unknown, known, more], [more, unknown, known], [known, more, unknown]):
        assert _most_apart(found) == more
    assert math.isnan(_most_apart([unknown, unknown])[0])


def test_the_worst_constants_do_not_depend_on_the_order_of_the_points(of_quadratic):
    one = of_quadratic.constants
    other = replace(one, mu=math.nan, L_g1=math.nan, high=2 * one.high, unconverged=("mu", "L_g1"))
    for order in ([one, other], [other, one]):
        found = worst(order)
        assert (found.mu, found.L_g1, found.high) == (one.mu, one.L_g1, 2 * one.high)
        assert found.unconverged == ("mu", "L_g1")
    assert math.isnan(worst([other, other]).mu)


def test_an_outer_step_beyond_exact_descent_is_foreseen(quadratic, of_quadratic):
    limit = 2 / np.linalg.eigvalsh(hessian_of_phi(quadratic))[-1]

    def judged(step, kind=hg.DBO):
        return next(f for f in of_quadratic.foresee(kind(step, 0.05)) if f.about == "outer_step")

    assert judged(1.01 * limit).level == "diverges"
    assert judged(1.01 * limit).limit == pytest.approx(limit, rel=1e-5)
    assert judged(0.9 * limit).level == "beyond what the theorem covers"
    assert judged(0.9 / of_quadratic.theory.L_phi).level == "fine"
    assert judged(0.9 / of_quadratic.theory.L_phi, hg.DBOGT).level == "beyond what the theorem covers"
    scheduled = judged(lambda k: 1.01 * limit / (1 + jnp.asarray(k, float)))
    assert scheduled.level == "diverges"
    assert "its value at 0" in scheduled.sentence


def test_homogeneous_where_agents_differ_is_foreseen(of_quadratic):
    found = {f.about: f for f in of_quadratic.foresee(hg.DBO(0.01, 0.01, homogeneous=True))}
    assert found["homogeneous"].level == "beyond what the theorem covers"
    assert f"{100 * of_quadratic.outer.surrogate:.3g}%" in found["homogeneous"].sentence
    local = {f.about: f for f in of_quadratic.foresee(hg.DBO(0.01, 0.01, hypergradient=hg.AID(5)))}
    assert local["hypergradient"].level == "beyond what the theorem covers"


def test_the_papers_letter_is_foretold_and_the_default_is_not(of_small):
    for name, algorithm in synthetic.SMALL.algorithms().items():
        assert all(finding.level != "diverges" for finding in of_small.foresee(algorithm)), name
    letter = hg.analyse(SMALL_LETTER.problem(), SMALL_LETTER.topology(), batch_size=SMALL_LETTER.batch_size)
    for name, algorithm in SMALL_LETTER.algorithms().items():
        worst = [finding.about for finding in letter.foresee(algorithm) if finding.level == "diverges"]
        assert "hypergradient.step" in worst, name
    with pytest.raises(hg.Diverged):
        hg.run(SMALL_LETTER.algorithms()["DBOGT"], SMALL_LETTER.problem(), SMALL_LETTER.topology(), 20, record_every=20)


def _lower(x, y, batch):
    return 0.5 * y @ y - jnp.mean(batch @ y) + 0.1 * x @ y


def _upper(x, y, batch):
    return 0.5 * x @ x + 0.5 * y @ y


def test_rows_of_one_distribution_are_plausible_and_others_are_not(of_quadratic):
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((20, 40, 3)) * [1, 2, 3]
    apart = rows + rng.standard_normal((20, 1, 3))

    def judged(data):
        problem = hg.Problem(
            _upper, _lower, upper_data=np.zeros((20, 1)), lower_data=data, x0=jnp.zeros(3), y0=jnp.zeros(3)
        )
        view = View.of(problem)
        return similarity(problem, view, [view.start(problem)], batch_size=32, seed=0)

    alike, differing = judged(rows), judged(apart)
    assert replace(of_quadratic, similarity=alike).plausibly_homogeneous is True
    assert replace(of_quadratic, similarity=differing).plausibly_homogeneous is False
    for found, data in ((alike, rows), (differing, apart)):
        between = data.mean(1).var(axis=0, ddof=1).sum()
        within = data.var(axis=1, ddof=0).sum(axis=1).mean() / 40
        assert found.ratio == pytest.approx(between / within, rel=0.1)
    directions = (1 + 4 + 9) ** 2 / (1 + 16 + 81)
    assert alike.chance == pytest.approx(1 + 4 * math.sqrt(2 / (19 * directions)), rel=0.05)


def lower_of_sparse(x, y, batch):
    return 0.5 * y @ y - jnp.sum(batch.weight * (batch.data @ y)) / batch.count.astype(y.dtype)


@pytest.mark.parametrize("of_each", [12, 40])
def test_sparse_rows_which_are_drawn_without_replacement_are_judged_as_dense_ones(of_each):
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((20, of_each, 3)) * (rng.random((20, of_each, 3)) < 0.5)
    problem = hg.Problem(
        lambda x, y, batch: 0.5 * y @ y + 0.5 * x @ x,
        lower_of_sparse,
        upper_data=np.zeros((20, 1)),
        lower_data=hg.stack_ragged([scipy.sparse.csr_array(one) for one in rows]),
        x0=jnp.zeros(3),
        y0=jnp.zeros(3),
    )
    view = View.of(problem)
    found = similarity(problem, view, [view.start(problem)], batch_size=32, seed=0)
    within = rows.var(axis=1, ddof=1).sum(axis=1).mean() / of_each
    assert found.ratio == pytest.approx(rows.mean(1).var(axis=0, ddof=1).sum() / within, rel=0.15)


def test_a_loss_that_takes_no_drawn_rows_is_not_judged():
    data = np.random.default_rng(0).standard_normal((3, 40, 2))
    problem = hg.Problem(
        lambda x, y, batch: 0.5 * y @ y,
        lambda x, y, batch: 0.5 * y @ y + jnp.mean(x * (batch @ y)),  # x has a number for every row
        upper_data=data,
        lower_data=data,
        x0=jnp.zeros((3, 40)),
        y0=jnp.zeros((3, 2)),
        own=True,
        each=True,
    )
    view = View.of(problem)
    found = similarity(problem, view, [view.start(problem)], batch_size=32, seed=0)
    assert math.isnan(found.ratio)
    assert found.why_unknown == "the lower loss does not take drawn rows (TypeError)"


def test_one_row_per_agent_is_not_judged(of_quadratic):
    assert of_quadratic.plausibly_homogeneous is None
    assert "cannot be judged: an agent has one row only" in str(of_quadratic)


def scaled(quadratic, of_x, of_g):
    """The same problem in x' = of_x · x, its lower loss times of_g: the same shapes, other constants."""
    a = {name: value[:, None] for name, value in quadratic.arrays.items()}
    return hg.Problem(
        quadratic.hg_problem.upper,
        quadratic.hg_problem.lower,
        upper_data={"A": a["A"] / of_x**2, "c": a["c"] / of_x, "b": a["b"]},
        lower_data={"H": of_g * a["H"], "J": of_g * a["J"] / of_x, "d": of_g * a["d"]},
        x0=jnp.zeros(quadratic.p),
        y0=jnp.zeros(quadratic.q),
    )


@pytest.mark.parametrize(
    ("seed", "topology", "of_x", "of_g"), [(1, hg.path(8), 10.0, 0.1), (2, hg.star(8), 0.1, 1.0), (3, RING, 1.0, 10.0)]
)
def test_the_recommendation_reaches_what_it_predicts(quadratic, seed, topology, of_x, of_g):
    problem = scaled(replace(quadratic, seed=seed), of_x, of_g)
    recommended = hg.recommend(hg.DBOGT, hg.analyse(problem, topology), 100)
    needed = int(recommended.needed)
    case = BENCHMARK["Case"](problem, topology, "")
    start, half, *_, end = BENCHMARK["fall"](case, recommended.algorithm(), needed, records=2)
    assert start == 1
    assert end < 1e-6 < half  # the prediction is no mere upper bound


def test_recommended_steps_go_further_than_those_chosen_by_hand_on_the_synthetic_experiment(of_small):
    case = BENCHMARK["Case"](synthetic.SMALL.problem(), synthetic.SMALL.topology(), "")
    by_hand = BENCHMARK["fall"](case, synthetic.SMALL.algorithms()["DBO"], 100, records=1)[-1]
    for name in ("DBO", "DBOGT", "DSBO"):
        algorithm = hg.recommend(name, of_small, 100).algorithm()
        assert BENCHMARK["fall"](case, algorithm, 100, records=1)[-1] < 0.6 * by_hand, name


def test_safe_settings_are_what_the_theorems_say(of_quadratic):
    theory, n, gap = of_quadratic.theory, of_quadratic.n, of_quadratic.gap
    tracked = hg.recommend("DBOGT", of_quadratic, 100).safe
    bound = gap**2 / (4 * math.sqrt(6 * n) * theory.kappa * theory.L_f)
    assert tracked.outer_step.value == pytest.approx(0.99 * bound)
    assert tracked.inner_step.value < of_quadratic.guaranteed(TRACKED)
    alike = hg.recommend("DBO", of_quadratic, 100, homogeneous=True).safe
    assert alike.outer_step.value <= gap / (130 * math.sqrt(n) * theory.L_phi)
    assert alike.inner_step.value == pytest.approx(2 / (theory.mu + theory.L))
    assert alike.algorithm().oracle == hg.AID(iterations=alike.oracle_iterations.value)
    noisy = {steps: hg.recommend("DSBO", of_quadratic, steps).safe for steps in (100, 400)}
    assert noisy[100].outer_step.value == pytest.approx(2 * noisy[400].outer_step.value)
    assert noisy[400].inner_iterations.value == 20
    decaying = noisy[100].inner_step.value
    assert decaying(0) < of_quadratic.guaranteed(GOSSIP)
    assert 1e6 * decaying(10**6) == pytest.approx(2 / theory.mu, rel=0.01)
    assert not noisy[100].algorithm().carry
    bounds = [1 / theory.L_phi, hg.recommend("DBO", of_quadratic, 10**9).safe.outer_step.value]
    assert bounds[1] < hg.recommend("DBO", of_quadratic, 10**6).safe.outer_step.value / 9 < bounds[0]


@pytest.mark.parametrize("kind", [hg.DBO, hg.DBOGT, hg.DSBO])
@pytest.mark.parametrize("homogeneous", [False, True])
def test_no_recommendation_is_said_to_diverge(of_quadratic, kind, homogeneous):
    recommended = hg.recommend(kind, of_quadratic, 50, homogeneous=homogeneous)
    for settings in (recommended.safe, recommended.practical):
        algorithm = settings.algorithm()
        assert isinstance(algorithm, kind)
        levels = {finding.about: finding.level for finding in of_quadratic.foresee(algorithm)}
        assert "diverges" not in levels.values()
        if settings is recommended.safe:
            differ = levels.pop("homogeneous", None)
            assert differ == ("beyond what the theorem covers" if homogeneous else None)
            assert set(levels.values()) == {"fine"}
    text = str(recommended)
    assert all(name in text for name in (*recommended.safe.choices(), "practical:", "safe:"))


def test_an_unconverged_solve_is_told(of_quadratic):
    unknown = replace(of_quadratic, outer=replace(of_quadratic.outer, high=math.nan, failure="it stopped"))
    with pytest.raises(ValueError, match=r"No practical outer step: it stopped"):
        hg.recommend("DBO", unknown, 10)
    assert all(f.about != "outer_step" for f in unknown.foresee(hg.DBO(1.0, 0.01)))


def test_bad_input(quadratic, of_quadratic, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # beartype stands in front of our messages
    problem = quadratic.hg_problem
    with pytest.raises(TypeError, match=r"expected an hg\.Problem"):
        hg.analyse(RING, problem)
    with pytest.raises(TypeError, match="expected a topology"):
        hg.analyse(problem, RING.W)
    with pytest.raises(TypeError, match="expected an algorithm"):
        hg.analyse(problem, RING, hg.DBO)
    with pytest.raises(ValueError, match="data of 8 agents, the topology has 7"):
        hg.analyse(problem, hg.ring(7))
    with pytest.raises(ValueError, match="batch_size = 0; expected at least 1"):
        hg.analyse(problem, RING, batch_size=0)
    for points in ([], "start", [1.0]):
        with pytest.raises(TypeError, match=r"expected (a list of )?pairs \(x, y\)"):
            hg.analyse(problem, RING, points=points)
    with pytest.raises(ValueError, match=re.escape("y of point 0 has shapes (5,); expected (6,)")):
        hg.analyse(problem, RING, points=[(np.zeros(5), np.zeros(5))])
    with pytest.raises(ValueError, match="Unknown algorithm 'SGD'; possible are DBO, DBOGT, DSBO"):
        hg.recommend("SGD", of_quadratic, 10)
    with pytest.raises(TypeError, match=r"expected hg\.DBO, hg\.DBOGT, hg\.DSBO or one of their names"):
        hg.recommend(hg.DBO(0.1, 0.1), of_quadratic, 10)
    with pytest.raises(TypeError, match=r"expected what hg\.analyse"):
        hg.recommend("DBO", problem, 10)
    with pytest.raises(ValueError, match="steps = 0; expected at least 1"):
        hg.recommend("DBO", of_quadratic, 0)
    with pytest.raises(TypeError, match="homogeneous is 1; expected True or False"):
        hg.recommend("DBO", of_quadratic, 10, homogeneous=1)
    flat = replace(of_quadratic, constants=replace(of_quadratic.constants, mu=0.0))
    assert isinstance(flat.constants, Constants)
    with pytest.raises(ValueError, match="not strongly convex"):
        hg.recommend("DBO", flat, 10)
    with pytest.raises(TypeError, match="expected an algorithm"):
        of_quadratic.foresee("DBO")


def words_and_numbers(text):
    number = r"-?\d+\.?\d*(?:e[+-]?\d+)?"
    return re.sub(number, "#", re.sub(r" +", " ", text)), [float(found) for found in re.findall(number, text)]


def test_the_documents_example_prints_what_it_shows(of_small, capsys):  # of_small: compiled by then
    text = (ROOT / "docs" / "analysis.md").read_text()
    names: dict = {}
    for code, shown in re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.DOTALL):
        exec(code, names)
        (words, numbers), (expected_words, expected) = map(words_and_numbers, (capsys.readouterr().out, shown))
        assert words == expected_words
        large = np.abs(expected) > 1e-9
        np.testing.assert_allclose(np.array(numbers)[large], np.array(expected)[large], rtol=0.02)
    assert "analysis" in names
    assert "recommended" in names
