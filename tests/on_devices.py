"""Every algorithm on both backends; run by test_distributed.py in a process that has eight virtual devices.

Prints, as JSON, how far the distributed runs are from the simulated ones, relative to the largest number.
"""

import json
import sys

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import problems  # noqa: E402
from table import ROWS  # noqa: E402

import hypergossip as hg  # noqa: E402

N = 8
TOPOLOGIES = {
    "ring": hg.ring(N, self_weight=0.5),
    "star": hg.star(N),
    "Erdős–Rényi": hg.erdos_renyi(N, 0.4, seed=2),
    "torus": hg.torus(2, 4),
}
STEPS = 5


def main(everything: bool) -> None:
    """Every algorithm on a graph and a number of devices each, in turn; or all on all."""
    cases = [(row, name, devices) for row in ROWS for name in TOPOLOGIES for devices in (8, 4)]
    if not everything:
        cases = [cases[8 * i + i % 8] for i in range(len(ROWS))]
    print(json.dumps({f"{row.name} {name} {devices}": _apart(row, name, devices) for row, name, devices in cases}))


def _apart(row, name: str, devices: int) -> float:
    problem = problems.Quadratic(n=N, p=3, q=4, heterogeneous=not row.homogeneous).hg_problem
    metrics = [hg.hypergradient_norm(), hg.movement()]
    traces = [
        hg.run(row.algorithm, problem, TOPOLOGIES[name], STEPS, metrics=metrics, record_every=2, backend=backend)
        for backend in (hg.Simulated(), hg.Distributed(jax.devices()[:devices]))
    ]
    assert traces[1].x.sharding.num_devices == devices
    assert traces[0].communication == traces[1].communication
    pairs = [(getattr(traces[0], part), getattr(traces[1], part)) for part in ("x", "y")]
    pairs += [(traces[0].metrics[key], traces[1].metrics[key]) for key in traces[0].metrics]
    return max(_relative(np.asarray(one), np.asarray(other)) for one, other in pairs)


def _relative(one: np.ndarray, other: np.ndarray) -> float:
    assert np.array_equal(np.isnan(one), np.isnan(other))
    scale = max(np.nanmax(np.abs(one), initial=0.0), 1e-3)  # a residual of 1e-16 is nothing but rounding
    return float(np.nanmax(np.abs(one - other), initial=0.0) / scale)


if __name__ == "__main__":
    main("everything" in sys.argv[1:])
