"""The synthetic preset, DBOGT with JHIP: milliseconds per outer iteration, beside NumPy and PyTorch in the same run.

    python benchmarks/synthetic.py [--rounds 5]

All forms compute the same iteration in single precision (DBOGT, heterogeneous, trackers carried on:
n = 20, p = q = 50, 500 + 500 examples per agent, T = 10, N = 20), and their states are compared
before anything is timed. PyTorch is left out where it is not installed. The last line gives the
share of the machine's own matrix-product rate that hypergossip reaches.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable

import jax
import numpy as np

import hypergossip as hg
from hypergossip.experiments.synthetic import DEFAULT

T, N, STEP = 10, 20, np.float32(0.01)


def main() -> None:
    """Times each form, round by round so that the machine's moods hit all alike, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    problem, topology = DEFAULT.problem(), DEFAULT.topology()
    arrays = [np.array(leaf, np.float32) for leaf in _rows(problem.lower_data) + _rows(problem.upper_data)]
    W = topology.W.astype(np.float32)
    forms: dict[str, Callable[[int], tuple[np.ndarray, float]]] = {
        "hypergossip": lambda k: _hypergossip(problem, topology, k),
        "NumPy, stacked": lambda k: _stacked(NumPy(arrays, W), k),
    }
    forms |= _torch_forms(arrays, W)
    _agree({name: form(3)[0] for name, form in forms.items()})
    lengths = {name: 3 if "loop" in name else 100 for name in forms}
    times = {name: [form(lengths[name])[1] / lengths[name] for _ in range(rounds)] for name, form in forms.items()}
    median = {name: float(np.median(values)) for name, values in times.items()}
    for name, seconds in median.items():
        best = min(times[name])
        ratio = seconds / median["hypergossip"]
        print(f"{name:>28}: {seconds * 1e3:8.2f} ms per iteration (best {best * 1e3:.2f}), {ratio:6.1f} x hypergossip")
    _share(median["hypergossip"])


def _rows(data: dict) -> list[np.ndarray]:
    return [data["feature"], data["label"]]


def _hypergossip(problem: hg.Problem, topology: hg.Topology, steps: int) -> tuple[np.ndarray, float]:
    oracle = hg.JHIP(step=float(STEP), iterations=N)
    algorithm = hg.DBOGT(float(STEP), float(STEP), T, oracle)
    trace = hg.run(algorithm, problem, topology, steps=steps, record_every=steps)
    return np.asarray(trace.x), trace.seconds["run"]


class NumPy:
    """The derivatives of the synthetic problem, stacked over the agents, by hand."""

    def __init__(self, arrays: list[np.ndarray], W: np.ndarray):
        self.A, self.b, self.A_upper, self.b_upper = arrays
        self.W, self.n, self.p = W, *self.A[:, 0].shape

    def zeros(self, *shape: int):
        return np.zeros((self.n, *shape), np.float32)

    def mix(self, v):
        return (self.W @ v.reshape(self.n, -1)).reshape(v.shape)

    def slopes(self, A, b, y):
        return -b / (1 + np.exp(b * (A @ y[..., None])[..., 0]))

    def gy(self, x, y):
        return (self.slopes(self.A, self.b, y)[:, None] @ self.A)[:, 0] + np.exp(x) * y

    def fy(self, x, y):
        return (self.slopes(self.A_upper, self.b_upper, y)[:, None] @ self.A_upper)[:, 0]

    def H(self, x, y):
        s = np.abs(self.slopes(self.A, self.b, y))
        H = (self.A * (s * (1 - s))[..., None]).transpose(0, 2, 1) @ self.A
        H[:, range(self.p), range(self.p)] += np.exp(x)
        return H

    def Jt(self, x, y):
        J = self.zeros(self.p, self.p)
        J[:, range(self.p), range(self.p)] = np.exp(x) * y
        return J

    def contract(self, Z, v):
        return (v[:, None] @ Z)[:, 0]

    def done(self, x) -> np.ndarray:
        return np.asarray(x)


def _stacked(d, steps: int) -> tuple[np.ndarray, float]:
    """DBOGT with all agents' states in arrays: one text for NumPy and PyTorch."""
    x, y, v, g = (d.zeros(d.p) for _ in range(4))
    Z, Y, G = (d.zeros(d.p, d.p) for _ in range(3))
    u, h = d.zeros(d.p), d.zeros(d.p)
    began = time.perf_counter()
    for _ in range(steps):
        new = d.gy(x, y)
        v, g = d.mix(v) + new - g, new
        for _ in range(T):
            y = d.mix(y) - STEP * v
            new = d.gy(x, y)
            v, g = d.mix(v) + new - g, new
        H, Jt = d.H(x, y), d.Jt(x, y)
        new = H @ Z - Jt
        Y, G = d.mix(Y) + new - G, new
        for _ in range(N):
            Z = d.mix(Z) - STEP * Y
            new = H @ Z - Jt
            Y, G = d.mix(Y) + new - G, new
        new = -d.contract(Z, d.fy(x, y))
        u, h = d.mix(u) + new - h, new
        x = d.mix(x) - STEP * u
    return d.done(x), time.perf_counter() - began


def _torch_forms(arrays: list[np.ndarray], W: np.ndarray) -> dict[str, Callable[[int], tuple[np.ndarray, float]]]:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: its forms are left out.")
        return {}
    from torch_forms import Loop, Vectorised

    return {
        "PyTorch, vectorised (vmap)": lambda k: _stacked(Vectorised(arrays, W), k),
        "PyTorch, loop over agents": lambda k: _stacked(Loop(arrays, W), k),
    }


def _agree(states: dict[str, np.ndarray]) -> None:
    reference = states["NumPy, stacked"]
    for name, x in states.items():
        error = np.abs(x - reference).max() / np.abs(reference).max()
        if not error < 1e-3:
            raise SystemExit(f"{name} computes something else: relative difference {error:.1e}.")


def _share(seconds: float) -> None:
    """Floating-point operations of one outer iteration against what a large matrix product reaches here."""
    n, p, m = 20, 50, 500
    gradients = (T + 2) * n * 4 * m * p
    matrices = n * 2 * m * p * p
    jhip = (N + 1) * (n * 2 * p**3 + 2 * n * n * 2 * p * p)
    operations = gradients + matrices + jhip
    a = jax.random.normal(jax.random.key(0), (2000, 2000), "float32")
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    began = time.perf_counter()
    jax.block_until_ready([product(a) for _ in range(10)])
    rate = 10 * 2 * 2000**3 / (time.perf_counter() - began)
    print(
        f"{operations / 1e6:.0f} million operations per iteration at {operations / seconds / 1e9:.0f} G/s: "
        f"{operations / seconds / rate:.0%} of the {rate / 1e9:.0f} G/s of a large matrix product"
    )


if __name__ == "__main__":
    main()
