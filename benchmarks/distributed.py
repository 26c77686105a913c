"""Several processes beside one: seconds per outer iteration, seconds per gossip round, and bytes on the wire.

    python benchmarks/distributed.py iterations   # Simulated, and 1, 2 and 4 processes
    python benchmarks/distributed.py rounds       # one exchange against the size of the message
    python benchmarks/distributed.py wire         # what trace.communication states, and what the interface counts

`wire` measures in a network namespace of its own, for which it needs root and iproute2: nothing else
is counted there. Two runs of different lengths are compared, so that what comes once, the start and
the connections, cancels. Agents are one to a process, so that every message is on the wire.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import hypergossip as hg

DIMENSIONS = (5, 20, 50, 100)
SIZES = tuple(8 * 4**k for k in range(9))
"""Bytes of a message."""


def main() -> None:
    """Measures, or is one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["iterations", "rounds", "wire"])
    parser.add_argument("--in-process", nargs="+", type=int, help="be one of the processes that are measured")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.in_process:
        {"iterations": _iterations, "rounds": _rounds, "wire": _run}[given.what](*given.in_process)
    else:
        {"iterations": _compare_iterations, "rounds": _compare_rounds, "wire": _compare_wire}[given.what]()


def _launched(processes: int, *arguments: object, inside: tuple[str, ...] = ()) -> dict:
    """What process 0 of a launch of this script prints last, as JSON."""
    launch = [*inside, sys.executable, "-m", "hypergossip.cli", "launch", "-n", processes, __file__, *arguments]
    done = subprocess.run([str(word) for word in launch], capture_output=True, text=True, check=True)
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("[0] {")][-1][4:])


def _quadratic(n: int, dimension: int, agents: range) -> hg.Problem:
    """f_i and g_i quadratic, p = q; the data of these of the n agents."""
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((n, 2, dimension, dimension)) / np.sqrt(dimension)
    data = {"H": roots[:, 0] @ roots[:, 0].swapaxes(1, 2) + np.eye(dimension), "J": roots[:, 1]}
    data["b"] = rng.standard_normal((n, dimension))
    mine = {name: leaf[agents.start : agents.stop, None] for name, leaf in data.items()}

    def upper(x, y, batch):
        return 0.5 * jnp.sum((y - batch["b"][0]) ** 2) + 0.5 * jnp.sum(x**2)

    def lower(x, y, batch):
        return 0.5 * y @ batch["H"][0] @ y + x @ batch["J"][0] @ y

    start = jnp.zeros(dimension)
    return hg.Problem(upper, lower, upper_data=mine, lower_data=mine, x0=start, y0=start, each=False)


def _timed(n: int, dimension: int, steps: int, backend: hg.Simulated | hg.Distributed) -> hg.Trace:
    algorithm = hg.DBOGT(0.01, 0.05, 10, hg.JHIP(0.05, 20))
    problem = _quadratic(n, dimension, backend.agents(n))
    return hg.run(algorithm, problem, hg.ring(n), steps, record_every=steps, backend=backend)


def _iterations(n: int, dimension: int, steps: int) -> None:
    trace = _timed(n, dimension, steps, hg.Distributed())
    if jax.process_index() == 0:
        print(json.dumps({"seconds": trace.seconds["run"] / steps}))


def _compare_iterations() -> None:
    print("DBOGT with JHIP, T = 10, N = 20, ring of 20, p = q: milliseconds per outer iteration")
    for dimension in (5, 50):
        steps = 100
        simulated = [_timed(20, dimension, steps, hg.Simulated()).seconds["run"] / steps for _ in range(5)]
        line = [f"Simulated {1e3 * float(np.median(simulated)):.2f}"]
        for processes in (1, 2, 4):
            found = [_launched(processes, "iterations", "--in-process", 20, dimension, steps) for _ in range(3)]
            median = float(np.median([one["seconds"] for one in found]))
            line.append(f"{processes} process{'es' if processes > 1 else ''} {1e3 * median:.2f}")
        print(f"  p = q = {dimension}: {', '.join(line)}", flush=True)


def _rounds(times: int) -> None:
    """Seconds of one round over a ring of all processes: to the right, or to the left."""
    backend, topology, found = hg.Distributed(), hg.ring(jax.process_count()), {}
    exchange, rounds = backend.exchange(topology), len(topology.rounds)
    for size in SIZES:

        def gossip(v, common):
            return jax.lax.fori_loop(0, times, lambda _, v: exchange(v), v), common

        program = jax.jit(lambda v: backend.parallel(gossip)(v, None)[0])
        v = backend.place(jnp.ones((1, size // 8)))
        jax.block_until_ready(program(v))
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            jax.block_until_ready(program(v))
            seconds.append((time.perf_counter() - began) / times / rounds)
        found[size] = float(np.median(seconds))
    if jax.process_index() == 0:
        print(json.dumps(found))


def _compare_rounds() -> None:
    print("One round of a ring, each process sending one message: microseconds")
    for processes in (2, 4):
        found = _launched(processes, "rounds", "--in-process", 50)
        times = ", ".join(f"{int(size):,} bytes {1e6 * seconds:.0f}" for size, seconds in found.items())
        print(f"  {processes} processes: {times}", flush=True)


def _run(dimension: int, steps: int) -> None:
    trace = _timed(jax.process_count(), dimension, steps, hg.Distributed())
    if jax.process_index() == 0:
        print(json.dumps({"messages": trace.communication.messages, "bytes": trace.communication.bytes}))


def _compare_wire() -> None:
    network = f"hypergossip-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", network], check=True)
    try:
        subprocess.run(["ip", "-n", network, "link", "set", "lo", "up"], check=True)
        print("A ring of 4 processes, one agent each: bytes per outer iteration, stated and counted on the interface")
        for dimension in DIMENSIONS:
            counted, (short, long) = [], (20, 120)
            for steps in (short, long):
                before = _counted(network)
                inside = ("ip", "netns", "exec", network)
                stated = _launched(4, "wire", "--in-process", dimension, steps, inside=inside)
                counted.append(_counted(network) - before)
            per_iteration = np.diff(counted)[0] / (long - short)
            print(
                f"  p = q = {dimension}: {stated['messages']} messages, {stated['bytes']:,} bytes stated, "
                f"{per_iteration:,.0f} counted: {per_iteration / stated['bytes']:.3f} times as many, "
                f"{(per_iteration - stated['bytes']) / stated['messages']:.0f} more per message",
                flush=True,
            )
    finally:
        subprocess.run(["ip", "netns", "delete", network], check=True)


def _counted(network: str) -> int:
    """Bytes that the loopback interface of a network namespace has carried."""
    show = ["ip", "-n", network, "-s", "-json", "link", "show", "lo"]
    told = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    return json.loads(told)[0]["stats64"]["tx"]["bytes"]


if __name__ == "__main__":
    main()
