"""Gossip on rings of 100 to 10,000 agents: seconds per step, peak memory, and the slope between them.

    python benchmarks/large_ring.py

Each size runs in a process of its own, so that peak memory is that size's. Linear cost is a slope
of 1; a dense W would show as a slope of 2 and, at 10,000 agents, as 800 MB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hypergossip as hg

SIZES = (100, 316, 1_000, 3_162, 10_000)
DIMENSION = 50
STEPS = 200


def measure(n: int) -> dict[str, float]:
    """Builds a ring, gossips on it, and says what that took."""
    before = _peak_megabytes()
    began = time.perf_counter()
    topology = hg.ring(n)
    construction = time.perf_counter() - began
    backend = hg.Simulated()
    mix = backend.exchange(topology)
    gossip = jax.jit(backend.parallel(lambda v, steps: (lax.fori_loop(0, steps, lambda _, v: mix(v), v), None)))
    v = jnp.asarray(np.random.default_rng(0).standard_normal((n, DIMENSION)), jnp.float32)
    jax.block_until_ready(gossip(v, 1))
    seconds = min(_timed(lambda: gossip(v, STEPS)) for _ in range(5)) / STEPS
    return {"seconds": seconds, "megabytes": _peak_megabytes() - before, "construction": construction}


def _timed(call) -> float:
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """One line per size, then the slope."""
    rows = []
    print(f"{'agents':>8} {'us per gossip step':>20} {'MB above the import':>20} {'ms to construct':>16}")
    for n in SIZES:
        child = subprocess.run([sys.executable, __file__, str(n)], capture_output=True, text=True, check=True)
        row = json.loads(child.stdout)
        rows.append(row["seconds"])
        print(f"{n:>8} {row['seconds'] * 1e6:>20.1f} {row['megabytes']:>20.1f} {row['construction'] * 1e3:>16.1f}")
    slope = np.polyfit(np.log(SIZES), np.log(rows), 1)[0]
    last = np.log(rows[-1] / rows[-2]) / np.log(SIZES[-1] / SIZES[-2])
    print(f"slope of the time from {SIZES[0]} to {SIZES[-1]} agents: {slope:.2f} (between the last two: {last:.2f})")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
    else:
        main()
