"""The paper's synthetic experiment over the processes that run together, and beside it the same in one process.

    hypergossip launch -n 4 examples/distributed.py [ITERATIONS]

Every process has a quarter of the 20 agents. A process whose data are its own would read them where
this one draws them; nothing else in the script would change.
"""

import sys

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import hypergossip as hg  # noqa: E402
from hypergossip.experiments.synthetic import DEFAULT  # noqa: E402

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30  # the paper's experiment has 100

backend, topology = hg.Distributed(), DEFAULT.topology()
agents = backend.agents(topology.n)  # of this process
mine = DEFAULT.problem(agents)  # with the data of no others

given = {"steps": STEPS, "record_every": STEPS, "metrics": [hg.hypergradient_norm()]}
for name, algorithm in DEFAULT.algorithms().items():
    together = hg.run(algorithm, mine, topology, backend=backend, **given)
    alone = hg.run(algorithm, DEFAULT.problem(), topology, backend=hg.Simulated(), **given)
    if jax.process_index() == 0:
        norms = [trace.metrics["hypergradient_norm"][-1] for trace in (together, alone)]
        print(
            f"{name}: ‖∇Φ‖ after {STEPS} iterations {norms[0]:.12f} over {jax.process_count()} processes, "
            f"{norms[1]:.12f} in one; {1e3 * together.seconds['run'] / STEPS:.1f} and "
            f"{1e3 * alone.seconds['run'] / STEPS:.1f} ms per iteration; together they send "
            f"{together.communication.bytes:,} bytes in each",
            flush=True,
        )
    difference = np.abs(together.x - alone.x[agents.start : agents.stop]).max() / np.abs(alone.x).max()
    print(f"{name}, agents {agents[0]} to {agents[-1]}: x differs from Simulated by {difference:.1e}", flush=True)
