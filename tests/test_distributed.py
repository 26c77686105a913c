"""Agents over devices: the same numbers as on one, and nothing on the wire but what neighbours say to each other."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from table import NAMES

import hypergossip as hg
from hypergossip.backends.distributed import _plan

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": str(HERE.parent)}


def on_eight_devices(*arguments):
    """What Python prints in a process with eight virtual devices."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=ENVIRONMENT, cwd=HERE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def apart():
    return json.loads(on_eight_devices(HERE / "on_devices.py"))


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_gives_the_same_numbers_over_devices(apart, name):
    (found,) = [value for case, value in apart.items() if case.startswith(f"{name} ")]
    assert found < 1e-10


@pytest.mark.parametrize("processes", [2, 4])
def test_algorithms_give_the_same_numbers_over_processes(processes):
    """Some of them on two, others on four; all on all graphs by hand, see on_devices.py."""
    launch = ["-m", "hypergossip.cli", "launch", "-n", processes, "--devices", 8 // processes]
    every = ["on_devices.py", processes // 2, 7]
    (found,) = re.findall(r"^\[0\] ({.*})$", on_eight_devices(*launch, *every), re.MULTILINE)
    apart = json.loads(found)
    assert [name for name in NAMES for case in apart if case.startswith(f"{name} ")] == NAMES[processes // 2 :: 7]
    assert max(apart.values()) < 1e-10


TOPOLOGIES = [hg.ring(12), hg.star(12), hg.torus(3, 4), hg.erdos_renyi(12, 0.4, seed=3), hg.complete(12), hg.path(12)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=["ring", "star", "torus", "random", "complete", "path"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6, 12])
def test_a_plan_is_w_and_says_everything_once(topology, devices):
    """Followed by hand on numbers, the plan multiplies with W; no device talks or listens twice in a round."""
    plan, size = _plan(topology, devices), 12 // devices
    v = np.random.default_rng(0).standard_normal((12, 2))
    blocks = v.reshape(devices, size, 2)
    mixed = np.einsum("ij,ijk->ik", plan.inside, np.repeat(blocks, size, axis=0))
    said = []
    for r, pairs in enumerate(plan.pairs):
        assert len({sender for sender, _ in pairs}) == len(pairs) == len({receiver for _, receiver in pairs})
        heard = np.zeros((devices, 2))
        for sender, receiver in pairs:
            heard[receiver] = blocks[sender, plan.speaker[r, sender]]
            said.append((sender * size + plan.speaker[r, sender], receiver))
        mixed += plan.weight[r][:, None] * np.repeat(heard, size, axis=0)
    np.testing.assert_allclose(mixed, topology.W @ v, atol=1e-14)
    needed = {(j, i // size) for j, i in topology.edges if i // size != j // size}
    assert sorted(said) == sorted(needed)


PROGRAM = """
import jax, jax.numpy as jnp, hypergossip as hg
backend, topology = hg.Distributed(), hg.ring(16)
mix = backend.parallel(lambda v, common: (backend.exchange(topology)(v), None))
step = jax.jit(lambda v: mix(v, None)[0])
print(step.lower(backend.place(jnp.zeros((16, 5)))).compile().as_text())
"""


def test_a_gossip_step_compiles_to_messages_between_neighbours_alone():
    program = on_eight_devices("-c", PROGRAM)
    assert "all-gather" not in program
    assert "all-reduce" not in program
    pairs = re.findall(r"collective-permute.*source_target_pairs=\{(.*?)\}\}?,", program)
    assert len(pairs) == 2  # to the right, to the left
    for one in pairs:
        for sender, receiver in re.findall(r"(\d+),(\d+)", one):
            assert (int(receiver) - int(sender)) % 8 in (1, 7)


WHOLE = """
import re, jax, jax.numpy as jnp, problems, hypergossip as hg
from hypergossip.compiled import Setup, advance, start
problem, backend = problems.Quadratic(n=16, p=2, q=3, heterogeneous=True).hg_problem, hg.Distributed()
setup = Setup.of(hg.DBOGT(0.1, 0.1, 3, hg.JHIP(0.1, 3)), problem, hg.ring(16), (), 0, backend, 1e10)
own = start(setup, *backend.place(problem.flat_start()))
chunk = {"k": jnp.int32(0), "targets": jnp.zeros(9, jnp.int32), "count": jnp.int32(0)}
program = advance.lower(setup, own, **backend.share(chunk)).lowered.compile().as_text()
kinds = "all-gather|all-to-all|all-reduce|collective-permute"
for kind, name in re.findall(rf" ({kinds})[(].*op_name=.([^ ]*)", program):
    print(kind, name.count("while"))
"""


def test_a_whole_run_reduces_over_all_agents_for_records_and_chunks_only():
    """Loops lie in each other: chunk, records (1 deep), outer iterations (2 deep), inner iterations."""
    found = [line.split() for line in on_eight_devices("-c", WHOLE).splitlines()]
    assert {kind for kind, _ in found} == {"all-reduce", "collective-permute"}
    assert max(int(depth) for kind, depth in found if kind == "all-reduce") == 1
    assert min(int(depth) for kind, depth in found if kind == "collective-permute") == 2


MISFIT = """
import jax, hypergossip as hg
try:
    hg.Distributed().check(12)
except ValueError as error:
    print(error)
"""


def test_agents_that_do_not_fit_the_devices_are_refused_with_what_fits():
    assert "12 agents and 8 devices" in (said := on_eight_devices("-c", MISFIT))
    assert "hg.Distributed(jax.devices()[:6])" in said


def test_what_is_no_list_of_devices_is_refused():
    with pytest.raises(TypeError, match=r"expected a list of JAX's devices, such as jax\.devices\(\)\[:4\]"):
        hg.Distributed([0, 1])
    with pytest.raises(ValueError, match="names a device twice"):
        hg.Distributed([jax.devices()[0]] * 2)
