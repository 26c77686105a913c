"""Two processes as one run: only what agrees runs, each has its own agents, and a checkpoint is one of both.

What happens in the processes stands in together.py.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import problems
import pytest

import hypergossip as hg

HERE = Path(__file__).parent
N = 4
QUADRATIC = problems.Quadratic(n=N, p=2, q=3, heterogeneous=True).hg_problem
ALGORITHM = hg.DBOGT(0.05, 0.1, 2, hg.HIGP(0.1, 2))


def alone(steps, **changed):
    return hg.run(ALGORITHM, QUADRATIC, hg.ring(N), steps, metrics=[hg.movement()], **changed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where both processes save; a checkpoint of a run in one process is there already."""
    folder = tmp_path_factory.mktemp("runs")
    alone(3, checkpoint=folder / "from one")
    return folder


@pytest.fixture(scope="module")
def found(folder):
    """What either process found, in their order."""
    launch = [sys.executable, "-m", "hypergossip.cli", "launch", "-n", "2", HERE / "together.py", folder]
    done = subprocess.run(launch, capture_output=True, text=True, check=False, timeout=300, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if re.match(r"\[[01]\] \{", line))
    return [json.loads(line[4:]) for line in lines]


DIFFERING = {
    "steps": "steps: 4 there, 3 in process 0",
    "seed": "seed: 1 there, 0 in process 0",
    "a step size": r"algorithm\.inner_step: 0\.2 there, 0\.1 in process 0",
    "an algorithm": "algorithm: DBO there, DBOGT in process 0",
    "the graph": r"graph: 4 agents, 3 edges, \w+ there, 4 agents, 4 edges, \w+ in process 0",
    "x0": r"x0 and y0: \w+ there, \w+ in process 0",
    "a loss": r"lower loss: formula \w+ there, formula \w+ in process 0",
    "a metric": r"metrics: \['_upper_loss.*\] there, \['Movement.*\] in process 0",
    "shapes": r"upper_data\['A'\]: float64\[2, 2, 2\] there, float64\[1, 2, 2\] in process 0",
    "a checkpoint in one": "checkpoint: none there, a folder in process 0",
}


@pytest.mark.parametrize("what", DIFFERING)
def test_what_differs_between_processes_is_refused_in_both_by_process_and_field(found, what):
    for one in found:
        said = one["refusals"][what]
        assert re.match(r"ProcessesDiffer: What process 1 \(host .+, agents 2 to 3\) was given differs", said)
        assert re.search(DIFFERING[what], said)


def test_what_one_process_cannot_run_none_does(found):
    said = [one["refusals"]["a bad argument in one"] for one in found]
    assert said[1] == "TypeError: steps is 'three'; expected a whole number."
    assert said[0].startswith(
        "ProcessLost: Process 1 ended with an error, and with it the run: TypeError: steps is 'thr"
    )


def test_a_process_is_given_the_data_of_its_own_agents_and_no_others(found):
    for one, agents in zip(found, ("0 to 1", "2 to 3"), strict=True):
        said = one["refusals"]["all agents' data"]
        assert f"has data of 4 agents; this process has agents {agents} of 4" in said
        assert "hg.Distributed().agents(4) says which they are" in said


@pytest.mark.parametrize("what", ["unequal rows", "own starts"])
def test_two_processes_find_what_one_finds(found, what):
    assert all(one[what] < 1e-12 for one in found)


def test_divergence_is_told_alike_by_all(found):
    with pytest.raises(hg.Diverged) as diverged:
        hg.run(hg.DBOGT(0.05, 50.0, 2, hg.HIGP(0.1, 2)), QUADRATIC, hg.ring(N), 200)
    expected = [diverged.value.agent, diverged.value.iteration, diverged.value.variable, 2]
    assert [one["divergence"] for one in found] == [expected, expected]


def test_an_error_in_a_callback_of_one_process_reaches_the_other_and_they_stay_in_step(found):
    assert found[0]["one gives up"]["said"] == "TimeoutError: time is up"
    told = "ProcessLost: Process 0 ended with an error, and with it the run: TimeoutError: time is up"
    assert found[1]["one gives up"]["said"] == told
    assert all(one["one gives up"]["after it"] < 1e-12 for one in found)


EARLY = """
import jax, together
if jax.process_index() == 0:
    print(together.refusal(), flush=True)
"""


def test_a_process_that_ends_early_leaves_none_waiting(tmp_path):
    script = tmp_path / "early.py"
    script.write_text(EARLY)
    launch = [sys.executable, "-m", "hypergossip.cli", "launch", "-n", "2", script, tmp_path]
    done = subprocess.run(launch, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": HERE})
    assert "[0] ProcessLost: Process 1 has ended its script, and this one waits for it" in done.stdout


def test_an_interrupted_run_goes_on_to_the_same_bits_from_the_last_checkpoint_that_all_have(found):
    ends = ("", ".sha256")
    shards = [f"step-000000000{k}.{process}-of-2.npz{end}" for k in (1, 2) for process in (0, 1) for end in ends]
    for one in found:
        interrupted = one["interrupted"]
        assert interrupted["shards"] == shards
        assert interrupted["same"] == [True, True]
        assert interrupted["first steps"] == [3, 3]  # goes on from 2; then, the last being damaged, from 2 again
    assert found[0]["interrupted"]["said"] == []
    (said,) = found[1]["interrupted"]["said"]
    assert "step-0000000003.1-of-2.npz is damaged" in said


def test_a_full_disk_of_one_process_ends_the_run_in_all_and_loses_nothing(found):
    for one in found:
        assert one["full disk"]["same"]
        assert one["full disk"]["first step"] == 3
    full = "OSError: [Errno 28] No space left on device: "
    assert found[1]["full disk"]["said"].startswith(full)
    assert "step-0000000003.1-of-2.npz" in found[1]["full disk"]["said"]
    assert found[0]["full disk"]["said"].startswith(
        f"ProcessLost: Process 1 ended with an error, and with it the run: {full}"
    )


def test_processes_may_have_folders_of_their_own(found):
    for process, one in enumerate(found):
        assert one["own folders"]["same"]
        assert one["own folders"]["first step"] == 3
        assert all(f".{process}-of-2." in name for name in one["own folders"]["files"])


def test_where_a_process_lacks_its_shards_nothing_begins_anew_over_the_others(found):
    for one, left in zip(found, (4, 0), strict=True):
        said = one["own folders"]["without one"]
        assert re.match(r"CheckpointDamaged: The checkpoint of outer iteration 2 in .* is not all there", said)
        assert one["own folders"]["left"] == left


def test_a_run_goes_on_in_another_number_of_processes(found, folder):
    for one in found:
        assert one["other layouts"]["steps"] == [0, 1, 2, 3, 4, 5]
        assert one["other layouts"]["apart"] < 1e-12
    seen = []
    resumed, unbroken = alone(6, checkpoint=folder / "from two", callback=seen.append), alone(6)
    assert seen[0].step == 5
    np.testing.assert_allclose(resumed.x, unbroken.x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(resumed.metrics["E_K"], unbroken.metrics["E_K"], rtol=0, atol=1e-14)
