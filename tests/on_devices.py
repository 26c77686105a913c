"""Every algorithm on several devices, of one process or of all that run together, beside one device.

Run by test_distributed.py, with eight virtual devices in all. The first process prints, as JSON, how
far the distributed runs are from the simulated ones, relative to the largest number. By hand:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/on_devices.py everything
    hypergossip launch -n 2 --devices 4 tests/on_devices.py everything
"""

import json
import sys

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import problems  # noqa: E402
from table import ROWS  # noqa: E402

import hypergossip as hg  # noqa: E402
from hypergossip.processes import Meeting  # noqa: E402

N = 8
TOPOLOGIES = {
    "ring": hg.ring(N, self_weight=0.5),
    "star": hg.star(N),
    "Erdős–Rényi": hg.erdos_renyi(N, 0.4, seed=2),
    "torus": hg.torus(2, 4),
}
STEPS = 5


def main(first: int = 0, every: int = 1) -> None:
    """Every algorithm, or every third say, on a graph and a number of devices each, in turn; or all on all."""
    cases = [(row, name, each) for row in ROWS for name in TOPOLOGIES for each in (1, 2)]
    if "everything" not in sys.argv:
        cases = [cases[8 * i + i % 8] for i in range(first, len(ROWS), every)]
    meeting, apart = Meeting.of(range(jax.process_count())), {}
    for i, (row, name, each) in enumerate(cases):
        exact = [hg.hypergradient_norm()] if i == 0 else []  # the same for all algorithms, and slow to compile
        of_processes = meeting.gather(row.name, _apart(row, name, each, [hg.movement(), *exact]))
        apart[f"{row.name} {name} {each}"] = max(of_processes)
    if jax.process_index() == 0:
        print(json.dumps(apart), flush=True)


def _apart(row, name: str, each: int, metrics: list) -> float:
    """How far two runs are apart: on one device, and with `each` agents on every of N / each devices."""
    of_processes = [jax.devices()[i : i + jax.local_device_count()] for i in range(0, N, jax.local_device_count())]
    backend = hg.Distributed([device for devices in of_processes for device in devices[: len(devices) // each]])
    mine = backend.agents(N)
    problem = problems.Quadratic(n=N, p=3, q=4, heterogeneous=not row.homogeneous).hg_problem
    given = {"metrics": metrics, "record_every": 2}
    one = hg.run(row.algorithm, problem, TOPOLOGIES[name], STEPS, **given, backend=hg.Simulated())
    other = hg.run(row.algorithm, problems.of_agents(problem, mine), TOPOLOGIES[name], STEPS, **given, backend=backend)
    assert one.communication == other.communication
    assert (other.agents, len(other.x)) == (mine, len(mine))
    pairs = [(getattr(one, part)[mine.start : mine.stop], getattr(other, part)) for part in ("x", "y")]
    pairs += [(one.mean_x, other.mean_x), (one.mean_y, other.mean_y)]
    pairs += [(one.metrics[key], other.metrics[key]) for key in one.metrics]
    return max(_relative(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _relative(one: np.ndarray, other: np.ndarray) -> float:
    assert np.array_equal(np.isnan(one), np.isnan(other))
    scale = max(np.nanmax(np.abs(one), initial=0.0), 1e-3)  # a residual of 1e-16 is nothing but rounding
    return float(np.nanmax(np.abs(one - other), initial=0.0) / scale)


if __name__ == "__main__":
    main(*map(int, filter(str.isdigit, sys.argv[1:])))
