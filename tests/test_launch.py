"""`hypergossip launch` with real processes: what it starts, what it does when they fail, and who can listen."""

import os
import re
import shutil
import signal
import socket
import subprocess

import pytest
from launching import RING, Launched, runs, wait_until

HOST = re.escape(socket.gethostname())
ABORTS = ("coordination_service", "Check failure stack trace", "absl::", "Gloo")
"""What JAX's runtime prints when it ends a process because of another one."""


@pytest.fixture
def exchanging(tmp_path):
    """Starts a ring of two processes and returns when values go around it; `stop` is the file that ends it."""
    begun = []

    def begin(*options, more=()):
        run = Launched(tmp_path, "-n", 2, *options, RING, tmp_path / "stop", *more)
        begun.append(run)
        run.wait_for("exchanged", 2) if "--logs" not in options else None
        return run

    yield begin
    for run in begun:
        run.__exit__()


def listeners(pids):
    """The local addresses to which processes listen, as the system lists them."""
    listed = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout
    ours = [line.split() for line in listed.splitlines() if any(f"pid={pid}," in line for pid in pids)]
    return [words[3].rpartition(":")[0] for words in ours]


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss (iproute2) is not installed")
def test_a_local_run_hears_itself_only_and_ends_well(exchanging, tmp_path):
    run = exchanging("--devices", 3, more=("-n", "7", "--logs", "--", "x"))
    found = listeners(run.children())
    assert len(found) == 3  # the coordinator, and each process for exchanges
    assert set(found) <= {"127.0.0.1", "[::ffff:127.0.0.1]"}
    (tmp_path / "stop").touch()
    assert run.end() == 0
    lines = [line for line in run.printed.splitlines() if line[4:]]  # gloo's threads leave an empty one at times
    assert len(lines) == 6
    for process in (0, 1):
        first, *others = [line.removeprefix(f"[{process}] ") for line in lines if line.startswith(f"[{process}] ")]
        assert re.fullmatch(r"__main__ scripts 3 -n 7 --logs -- x \d+", first)
        assert others == ["exchanged", "done"]


def test_a_killed_process_is_named_with_its_agents_and_the_run_starts_again(exchanging, tmp_path):
    logs = tmp_path / "logs"
    run = exchanging("--restarts", 1, "--logs", logs)
    files = [logs / "process-0.log", logs / "process-1.log"]
    assert wait_until(lambda: all(file.exists() and "exchanged" in file.read_text() for file in files))
    before = run.children()
    os.kill(before[1], signal.SIGKILL)
    assert wait_until(lambda: all(file.read_text().count("exchanged") == 2 for file in files))
    assert not set(before) & set(run.children())
    (tmp_path / "stop").touch()
    assert run.end() == 0
    named, restart = run.printed.splitlines()  # and nothing else: the rest is in the files
    assert re.fullmatch(rf"Process 1 \(host {HOST}, agents 2 to 3\) was killed by signal 9 \(SIGKILL\)\.", named)
    assert restart == "Starting again from the last complete checkpoint: restart 1 of 1."
    assert all(file.read_text().endswith("done\n") for file in files)


def test_a_frozen_process_is_named_and_everything_ends(exchanging):
    run = exchanging("--timeout", 2)
    processes = run.children()
    os.kill(processes[0], signal.SIGSTOP)
    assert run.end() == 75
    assert re.search(
        rf"\nProcess 0 \(host {HOST}, agents 0 to 1\) has not answered for 2 seconds; it is ended\.\n"
        r"Run the same command again to go on from the last complete checkpoint; --restarts 3 would do so.*\n$",
        run.printed,
    )
    assert not any(word in run.printed for word in ABORTS)
    assert not any(map(runs, processes))


def test_processes_end_with_a_launcher_that_is_killed(exchanging):
    run = exchanging()
    processes = run.children()
    run.process.kill()
    assert wait_until(lambda: not any(map(runs, processes)))


def test_ctrl_c_ends_all_processes(exchanging):
    run = exchanging()
    processes = run.children()
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    assert not any(map(runs, processes))
    assert run.printed.splitlines()[-1] == "Interrupted; all processes are ended."


def test_a_second_signal_ends_a_process_that_does_not_want_to_end(tmp_path):
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('no'))\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('begun', other.pid)\n"
        "while True: time.sleep(0.1)\n"
    )
    with Launched(tmp_path, "-n", 1, script) as run:
        run.wait_for("begun")
        processes = [*run.children(), int(re.findall(r"begun (\d+)", run.printed)[0])]
        run.process.send_signal(signal.SIGTERM)
        run.wait_for("no")
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 143
    assert wait_until(lambda: not any(map(runs, processes)))


def test_a_process_that_dies_before_the_meeting_is_named(tmp_path):
    with Launched(tmp_path, "-n", 2, RING, tmp_path / "stop") as run:
        assert wait_until(lambda: len(run.children()) == 2)
        os.kill(run.children()[1], signal.SIGKILL)
        assert run.end() == 75
        assert run.printed.startswith(f"Process 1 (host {socket.gethostname()}) was killed by signal 9 (SIGKILL).\n")


def test_the_scripts_own_error_is_shown_and_ends_everything(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "import jax\nif jax.process_index() == 1:\n    raise ValueError('wrong')\nimport time\ntime.sleep(60)\n"
    )
    with Launched(tmp_path, "-n", 2, "--restarts", 3, script) as run:
        assert run.end() == 1
        assert run.printed.splitlines() == [
            "[1] Traceback (most recent call last):",
            f'[1]   File "{script}", line 3, in <module>',
            "[1]     raise ValueError('wrong')",
            "[1] ValueError: wrong",
            f"Process 1 (host {socket.gethostname()}) ended with an error of the script's own (ValueError: wrong).",
            "It would end in the same way again, so nothing is started again.",
        ]


def test_a_full_disk_is_a_fault_after_which_the_run_starts_again(tmp_path):
    script = tmp_path / "full.py"
    script.write_text(
        "import errno, pathlib, sys\n"
        "if not pathlib.Path('tried').exists():\n"
        "    pathlib.Path('tried').touch()\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "print('went on')\n"
    )
    with Launched(tmp_path, "-n", 1, "--restarts", 1, script) as run:
        assert run.end() == 0
        assert "failed (OSError: [Errno 28] No space left on device).\nStarting again" in run.printed
        assert run.printed.endswith("[0] went on\n")


def test_slurms_word_on_who_is_who_is_enough(tmp_path):
    job = {
        "SLURM_JOB_ID": str(os.getpid()),  # of which JAX makes the port
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
    }
    (tmp_path / "stop").touch()
    tasks = [
        Launched(tmp_path, "--wait", 50, RING, tmp_path / "stop", SLURM_PROCID=task, SLURM_LOCALID=task, **job)
        for task in ("0", "1")
    ]
    with tasks[0], tasks[1]:
        assert [task.end() for task in tasks] == [0, 0]
        assert "[0] done" in tasks[0].printed
        assert "[1] done" in tasks[1].printed
