"""A run over four processes of which one is killed: it goes on by itself to the bits of an unbroken one.

At random moments and more often by hand: see faults.py.
"""

import os
import signal

import faults
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a run of 60 iterations has ended undisturbed."""
    folder = tmp_path_factory.mktemp("faults")
    with faults.launched(folder, "unbroken", steps=60) as launcher:
        faults.until(launcher, faults.NOTHING, told := [])
        assert launcher.wait() == 0, "\n".join(told)
    return folder


def test_a_killed_process_is_named_and_the_run_goes_on_to_the_same_bits(folder):
    told = []
    with faults.launched(folder, "killed", "--restarts", "1", steps=60) as launcher:
        assert faults.until(launcher, r"\[2\] [2-5]\d$", told)
        os.kill(faults.processes(launcher)[2], signal.SIGKILL)
        assert faults.until(launcher, "Process 2", told)
        assert told[-1].endswith(", agent 2) was killed by signal 9 (SIGKILL).")
        faults.until(launcher, faults.NOTHING, told)
        assert launcher.wait() == 0, "\n".join(told)
    assert any("restart 1 of 1" in line for line in told)
    assert not any("Gloo collective" in line for line in told)  # what the others saw of it
    again = told.index(next(line for line in told if "restart 1 of 1" in line))
    steps = [int(line[4:]) for line in told[again:] if line.startswith("[2] ") and line[4:].isdigit()]
    assert steps[0] > 1  # not from the start
    assert faults.same(faults.end(folder, "killed"), faults.end(folder, "unbroken"))
