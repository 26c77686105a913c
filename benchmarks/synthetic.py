"""The synthetic preset, DBOGT with JHIP: milliseconds per outer iteration, beside other ways to write it.

    python benchmarks/synthetic.py [--rounds 9]

All forms compute the same iteration in single precision (DBOGT, heterogeneous, trackers carried on:
n = 20, p = q = 50, 500 + 500 examples per agent, T = 10, N = 20), and their states are compared
before anything is timed. The forms take turns, so that the machine's moods hit all alike. "JAX by
hand" is the stacked matrix form with derivatives taken by hand, compiled as one loop: what
hypergossip's automatic derivatives and one agent's program cost beside it is their price. PyTorch
is left out where it is not installed. The last lines give the share of the machine's own rates.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hypergossip as hg
from hypergossip.experiments.synthetic import DEFAULT

T, N, STEP = 10, 20, np.float32(0.01)
Form = Callable[[int], tuple[np.ndarray, float]]
"""iterations ↦ (every agent's x, seconds)."""


def main() -> None:
    """Times all forms and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    problem, topology = DEFAULT.problem(), DEFAULT.topology()
    arrays = [np.array(leaf, np.float32) for leaf in _rows(problem.lower_data) + _rows(problem.upper_data)]
    W = topology.W.astype(np.float32)
    forms: dict[str, Form] = {
        "hypergossip": lambda k: _hypergossip(problem, topology, k),
        "JAX by hand, stacked": Compiled(Stacked(jnp, arrays, W)),
        "NumPy by hand, stacked": lambda k: _in_turn(Stacked(np, arrays, W), k),
    }
    forms |= _torch_forms(arrays, W)
    _agree({name: form(3)[0] for name, form in forms.items()})
    lengths = {name: 3 if "loop" in name else 50 for name in forms}
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            time.sleep(0.3)  # threads of the form before it stop spinning
            times[name].append(form(lengths[name])[1] / lengths[name])
    median = {name: float(np.median(values)) for name, values in times.items()}
    for name, seconds in median.items():
        low, high = np.percentile(times[name], [25, 75]) * 1e3
        ratio = seconds / median["hypergossip"]
        print(f"{name:>28}: {seconds * 1e3:8.2f} ms per iteration ({low:.2f} to {high:.2f}), {ratio:6.2f} x ours")
    _shares(median["hypergossip"])


def _rows(data: dict) -> list[np.ndarray]:
    return [data["feature"], data["label"]]


def _hypergossip(problem: hg.Problem, topology: hg.Topology, steps: int) -> tuple[np.ndarray, float]:
    oracle = hg.JHIP(step=float(STEP), iterations=N)
    algorithm = hg.DBOGT(float(STEP), float(STEP), T, oracle)
    trace = hg.run(algorithm, problem, topology, steps=steps, record_every=steps)
    return np.asarray(trace.x), trace.seconds["run"]


class Stacked:
    """The derivatives of the synthetic problem, stacked over the agents, by hand, in NumPy or JAX."""

    def __init__(self, xp: Any, arrays: list[np.ndarray], W: np.ndarray):
        self.xp, self.W = xp, xp.asarray(W)
        self.A, self.b, self.A_upper, self.b_upper = map(xp.asarray, arrays)
        self.n, self.p = self.A[:, 0].shape
        self.unit = xp.eye(self.p, dtype=np.float32)

    def zeros(self, *shape: int):
        return self.xp.zeros((self.n, *shape), np.float32)

    def mix(self, v):
        return (self.W @ v.reshape(self.n, -1)).reshape(v.shape)

    def slopes(self, A, b, y):
        return -b / (1 + self.xp.exp(b * (A @ y[..., None])[..., 0]))

    def gy(self, x, y):
        return (self.slopes(self.A, self.b, y)[:, None] @ self.A)[:, 0] + self.xp.exp(x) * y

    def fy(self, x, y):
        return (self.slopes(self.A_upper, self.b_upper, y)[:, None] @ self.A_upper)[:, 0]

    def H(self, x, y):
        s = self.xp.abs(self.slopes(self.A, self.b, y))
        curvature = (self.A * (s * (1 - s))[..., None]).transpose(0, 2, 1) @ self.A
        return curvature + self.xp.exp(x)[..., None] * self.unit

    def Jt(self, x, y):
        return (self.xp.exp(x) * y)[..., None] * self.unit

    def contract(self, Z, v):
        return (v[:, None] @ Z)[:, 0]

    def done(self, x) -> np.ndarray:
        return np.asarray(x)


def start(d) -> tuple:
    """x, y; v and the gradient it last took in; Z; Y and its; u and its."""
    y, v, g = (d.zeros(d.p) for _ in range(3))
    Z, Y, G = (d.zeros(d.p, d.p) for _ in range(3))
    return d.zeros(d.p), y, v, g, Z, Y, G, d.zeros(d.p), d.zeros(d.p)


def iteration(d, state: tuple, repeat: Callable) -> tuple:
    """DBOGT with all agents' states in arrays: one text for NumPy, JAX and PyTorch."""
    x, y, v, g, Z, Y, G, u, h = state
    new = d.gy(x, y)

    def descent(s):
        y, v, g = s
        y = d.mix(y) - STEP * v
        new = d.gy(x, y)
        return y, d.mix(v) + new - g, new

    y, v, g = repeat(T, descent, (y, d.mix(v) + new - g, new))
    H, Jt = d.H(x, y), d.Jt(x, y)
    new = H @ Z - Jt

    def jhip(s):
        Z, Y, G = s
        Z = d.mix(Z) - STEP * Y
        new = H @ Z - Jt
        return Z, d.mix(Y) + new - G, new

    Z, Y, G = repeat(N, jhip, (Z, d.mix(Y) + new - G, new))
    new = -d.contract(Z, d.fy(x, y))
    u, h = d.mix(u) + new - h, new
    return d.mix(x) - STEP * u, y, v, g, Z, Y, G, u, h


def _in_turn(d, steps: int) -> tuple[np.ndarray, float]:
    """One operation after the other, as NumPy and PyTorch compute."""

    def repeat(times, function, s):
        for _ in range(times):
            s = function(s)
        return s

    state = start(d)
    began = time.perf_counter()
    for _ in range(steps):
        state = iteration(d, state, repeat)
    return d.done(state[0]), time.perf_counter() - began


class Compiled:
    """All outer iterations as one compiled loop."""

    def __init__(self, d: Stacked):
        def repeat(times, function, s):
            return jax.lax.fori_loop(0, times, lambda _, s: function(s), s)

        self.start = start(d)
        self.loop = jax.jit(lambda steps, s: repeat(steps, partial(iteration, d, repeat=repeat), s))
        jax.block_until_ready(self.loop(1, self.start))

    def __call__(self, steps: int) -> tuple[np.ndarray, float]:
        began = time.perf_counter()
        state = jax.block_until_ready(self.loop(steps, self.start))
        return np.asarray(state[0]), time.perf_counter() - began


def _torch_forms(arrays: list[np.ndarray], W: np.ndarray) -> dict[str, Form]:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: its forms are left out.")
        return {}
    from torch_forms import Loop, Vectorised

    return {
        "PyTorch, vectorised (vmap)": lambda k: _in_turn(Vectorised(arrays, W), k),
        "PyTorch, loop over agents": lambda k: _in_turn(Loop(arrays, W), k),
    }


def _agree(states: dict[str, np.ndarray]) -> None:
    reference = states["NumPy by hand, stacked"]
    for name, x in states.items():
        error = np.abs(x - reference).max() / np.abs(reference).max()
        if not error < 1e-3:
            raise SystemExit(f"{name} computes something else: relative difference {error:.1e}.")


def _shares(seconds: float) -> None:
    """Floating-point operations of one outer iteration against what matrix products reach here."""
    n, p, m = 20, 50, 500
    gradients = (T + 2) * n * 4 * m * p
    matrices = n * 2 * m * p * p
    jhip = (N + 1) * (n * 2 * p**3 + 3 * n * 2 * 2 * p * p)
    operations = gradients + matrices + jhip
    print(f"{operations / 1e6:.0f} million operations per iteration at {operations / seconds / 1e9:.0f} G/s:")
    for what, shape, times in (("2,000 x 2,000", (2000, 2000), 3), ("20 of 50 x 50", (20, 50, 50), 1000)):
        rate = _rate(shape, times)
        share = operations / seconds / rate
        print(f"  {share:4.0%} of the {rate / 1e9:.0f} G/s of matrix products of {what}")


def _rate(shape: tuple[int, ...], times: int) -> float:
    a = jax.random.normal(jax.random.key(0), shape, "float32") / 50
    products = jax.jit(lambda a: jax.lax.fori_loop(0, times, lambda _, b: a @ b, a))
    jax.block_until_ready(products(a))
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(products(a))
        seconds.append(time.perf_counter() - began)
    return times * 2 * a.size * shape[-1] / float(np.median(seconds))


if __name__ == "__main__":
    main()
