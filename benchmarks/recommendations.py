"""What `hg.recommend` is worth: 20 random heterogeneous quadratics and the synthetic preset, no step chosen by hand.

    python benchmarks/recommendations.py [quadratics] [synthetic]

The quadratics differ in size, graph, conditioning, and in the scales of x, y and the lower loss. DBOGT
should bring ‖∇Φ(x̄)‖ to 1e-6 of its start within the number of iterations that the recommendation
predicts, DBO to its bias, DSBO to its noise.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hypergossip as hg
from hypergossip.experiments import synthetic

NORM = "hypergradient_norm"
ROWS = 64


class Case(NamedTuple):
    """A problem over a network, and in words what it is."""

    problem: hg.Problem
    topology: hg.Topology
    words: str


def upper(x, y, batch):
    """½ xᵀAx + cᵀx + ½ ‖y/s − b‖², the coefficients those of the mean row."""
    row = jax.tree.map(lambda rows: jnp.mean(rows, axis=0), batch)
    deviation = row["s"] * y - row["b"]
    return 0.5 * x @ row["A"] @ x + row["c"] @ x + 0.5 * deviation @ deviation


def lower(x, y, batch):
    """½ yᵀHy + xᵀJy + dᵀy, likewise."""
    row = jax.tree.map(lambda rows: jnp.mean(rows, axis=0), batch)
    return 0.5 * y @ row["H"] @ y + x @ row["J"] @ y + row["d"] @ y


def quadratic(seed: int) -> Case:
    """Agents that differ, 64 rows at each, scattered around the agent's own coefficients."""
    rng = np.random.default_rng(seed)
    n, p, q = int(rng.integers(4, 13)), int(rng.integers(2, 9)), int(rng.integers(2, 11))
    graph = ("ring", "path", "star", "erdos_renyi")[seed % 4]
    more = {"p": 0.5, "seed": seed} if graph == "erdos_renyi" else {}
    topology = getattr(hg, graph)(n, **more)
    conditions = 10 ** rng.uniform(0.3, 1.7, size=2)
    scale_x, scale_y, scale_g = 10 ** rng.uniform(-1, 1, size=3)

    def around(mean: np.ndarray, spread: float) -> np.ndarray:
        noise = rng.standard_normal((n, ROWS, *mean.shape[1:])) / np.sqrt(mean.shape[-1])
        if mean.ndim == 3 and mean.shape[1] == mean.shape[2]:
            noise = (noise + noise.swapaxes(-1, -2)) / 2
        noise -= noise.mean(axis=1, keepdims=True)
        return mean[:, None] + spread * noise

    A, H = (_spd(rng, n, size, c) for size, c in zip((p, q), conditions, strict=True))
    J = rng.standard_normal((n, p, q)) / np.sqrt(q)
    b, c, d = (rng.standard_normal((n, size)) for size in (q, p, q))
    problem = hg.Problem(
        upper,
        lower,
        upper_data={
            "A": around(A, 0.2) / scale_x**2,
            "c": around(c, 0.5) / scale_x,
            "b": around(b, 0.5),
            "s": np.full((n, ROWS), 1 / scale_y),
        },
        lower_data={
            "H": scale_g * around(H, 0.5) / scale_y**2,
            "J": scale_g * around(J, 0.2) / (scale_x * scale_y),
            "d": scale_g * around(d, 0.5) / scale_y,
        },
        x0=jnp.zeros(p),
        y0=jnp.zeros(q),
    )
    scales = f"x {scale_x:.2g}, y {scale_y:.2g}, g {scale_g:.2g}"
    return Case(problem, topology, f"{graph} n={n} p={p} q={q} cond {conditions[0]:.0f}/{conditions[1]:.0f} {scales}")


def _spd(rng: np.random.Generator, n: int, size: int, condition: float) -> np.ndarray:
    """One symmetric matrix per agent, its eigenvalues from 1 to `condition`, evenly in the logarithm."""
    turns = np.linalg.qr(rng.standard_normal((n, size, size)))[0]
    values = condition ** rng.uniform(size=(n, size))
    return (turns * values[:, None, :]) @ turns.swapaxes(1, 2)


def fall(case: Case, algorithm: hg.algorithms.Algorithm, steps: int, records: int = 50) -> np.ndarray:
    """‖∇Φ‖ over its start along a run; infinite from where it diverged."""
    every = max(1, steps // records)
    try:
        trace = hg.run(
            algorithm, case.problem, case.topology, steps, record_every=every, metrics=[hg.hypergradient_norm()]
        )
    except hg.Diverged:
        return np.array([1.0, np.inf])
    return trace.metrics[NORM] / trace.metrics[NORM][0]


def quadratics(seeds: range = range(20)) -> None:
    """One line per quadratic: predicted iterations and the fall of the gradient, by algorithm."""
    print(f"{'':>2} {'K':>6} {'T':>5} {'DBOGT':>8} {'used':>6} {'DBO':>8} {'3 K':>8} {'DSBO':>8} {'s':>5}  problem")
    for seed in seeds:
        began, case = time.perf_counter(), quadratic(seed)
        analysis = hg.analyse(case.problem, case.topology)
        needed = int(hg.recommend("DBOGT", analysis, 1).needed)
        best = hg.recommend("DBOGT", analysis, needed)
        tracked = fall(case, best.algorithm(), needed, records=60)
        reached = np.flatnonzero(tracked < 1e-6)
        used = reached[0] * (needed // 60 or 1) / needed if reached.size else np.nan
        floors = [
            fall(case, hg.recommend("DBO", analysis, steps).algorithm(), steps, records=1)[-1]
            for steps in (needed, 3 * needed)
        ]
        noisy = fall(case, hg.recommend("DSBO", analysis, needed).algorithm(), needed, records=20)
        count = best.practical.inner_iterations.value
        print(
            f"{seed:>2} {needed:>6} {count:>5} {tracked[-1]:>8.1e} {used:>6.2f} {floors[0]:>8.1e} {floors[1]:>8.1e} "
            f"{np.median(noisy[-10:]):>8.1e} {time.perf_counter() - began:>5.0f}  {case.words}",
            flush=True,
        )


def preset(chosen: synthetic.Synthetic = synthetic.DEFAULT, steps: int = 100) -> None:
    """log₁₀‖∇Φ‖ after 100 outer iterations, with the paper's 0.01 and as recommended."""
    case = Case(chosen.problem(), chosen.topology(), "synthetic")
    analysis = hg.analyse(case.problem, case.topology, batch_size=chosen.batch_size)
    for name, by_hand in chosen.algorithms().items():
        recommended = hg.recommend(name, analysis, steps)
        print(recommended)
        for what, algorithm in (("by hand", by_hand), ("recommended", recommended.algorithm())):
            began = time.perf_counter()
            norms = fall(case, algorithm, steps, records=10)
            ends = np.log10(analysis.outer.gradient * norms[[0, -1]])
            print(
                f"{name:<6} {what:<12} {ends[0]:.3f} -> {ends[1]:.3f}  {time.perf_counter() - began:.0f} s", flush=True
            )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore", hg.UnconvergedWarning)
    chosen = sys.argv[1:] or ["quadratics", "synthetic"]
    if "quadratics" in chosen:
        quadratics()
    if "synthetic" in chosen:
        preset()
