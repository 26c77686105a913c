"""Exchanges values around a ring until a file appears; started by test_launch.py on several processes.

Prints who it is, reports two agents per process, prints "exchanged" after the first round and "done" at the end.
"""

import os
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hypergossip.processes import supervisor

stop, process, processes = Path(sys.argv[1]), jax.process_index(), jax.process_count()
print(__name__, Path(sys.path[0]).name, jax.local_device_count(), *sys.argv[2:], os.getpid())
supervisor.report([{"process": p, "agents": [2 * p, 2 * p + 2]} for p in range(processes)])

n = jax.device_count()
mesh = Mesh(np.array(jax.devices()), ("ring",))
along = PartitionSpec("ring")
pairs = [(i, (i + 1) % n) for i in range(n)]


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=along, out_specs=(along, PartitionSpec()))
def exchange(values):
    """The values of the neighbours, and whether anyone wants to stop."""
    return jax.lax.ppermute(values, "ring", pairs), jax.lax.psum(values, "ring")


def stops(wanted: bool) -> bool:
    """Whether anyone wants to; the same answer for all."""
    here = np.full((jax.local_device_count(),), float(wanted), np.float32)
    return bool(exchange(jax.make_array_from_process_local_data(NamedSharding(mesh, along), here))[1][0] > 0)


stops(False)
print("exchanged")
while not stops(stop.exists()):
    pass
print("done")
