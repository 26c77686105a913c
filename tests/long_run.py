"""A run of some seconds that saves itself, for test_faults.py to disturb: python long_run.py CHECKPOINT END STEPS."""

import importlib
import os
import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import problems  # noqa: E402

import hypergossip as hg  # noqa: E402

N = 4
checkpoint, end, steps = sys.argv[1:]
importlib.import_module("hypergossip.run")._SECONDS_PER_CHUNK = 0.0  # saves itself after every iteration

agents = hg.Distributed().agents(N)
problem = problems.SampledQuadratic(problems.Quadratic(n=N, p=2, q=3, heterogeneous=True), examples=6, spread=0.1)
trace = hg.run(
    hg.DSBO(0.02, 0.1, 1, hg.HIGP(0.1, 1), carry=False, batch_size=2),
    problems.of_agents(problem.hg_problem, agents),
    hg.ring(N),
    int(steps),
    metrics=[hg.movement()],
    record_every=5,
    checkpoint=checkpoint,
    callback=lambda progress: print(progress.step, flush=True),
)
arrays = {str(i): leaf for i, leaf in enumerate(jax.tree.leaves(trace.state))}
part = Path(f"{end}.{agents.start}.{os.getpid()}")
with part.open("wb") as file:
    np.savez(file, **arrays, **trace.metrics)
part.replace(f"{end}.{agents.start}.npz")
