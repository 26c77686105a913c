"""A run over four processes, disturbed: killed and frozen at random moments, by hand as often as one likes.

    python tests/faults.py kills 20
    python tests/faults.py freezes 5

prints a line for each, and the seconds from the fault to the line that names the process.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
N = 4
STEPS = 250
NOTHING = r"(?!)"
"""Matches no line: until the end."""


@contextmanager
def launched(folder: Path, name: str, *options: str, steps: int = STEPS) -> Iterator[subprocess.Popen]:
    """`hypergossip launch` with long_run.py, which saves itself in the folder, and its end there under this name."""
    script = [HERE / "long_run.py", folder / f"{name}.runs", folder / name, steps]
    command = [sys.executable, "-m", "hypergossip.cli", "launch", "-n", N, *options, *script]
    launcher = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE
    )
    watchdog = threading.Timer(300, launcher.terminate)
    watchdog.start()
    try:
        yield launcher
    finally:
        watchdog.cancel()
        launcher.terminate()
        for _ in launcher.stdout:  # else it might wait for somebody to read
            pass
        launcher.wait()
        launcher.stdout.close()


def processes(launcher: subprocess.Popen) -> dict[int, int]:
    """The numbers of the processes that a launcher has started ↦ their ids."""
    found = {}
    for child in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
        place = next((line.partition("=")[2] for line in environment if line.startswith("HYPERGOSSIP_PLACE=")), None)
        if place:
            found[json.loads(place)["process"]] = int(child)
    return found


def send(launcher: subprocess.Popen, which: int, signal: signal.Signals) -> None:
    """A signal to a process; on a busy machine it may not have been started yet."""
    while which not in (started := processes(launcher)):
        time.sleep(0.05)
    os.kill(started[which], signal)


def until(launcher: subprocess.Popen, pattern: str, told: list[str]) -> bool:
    """Reads what the launcher prints until a line matches; false if it ends before."""
    for line in launcher.stdout:
        told.append(line.rstrip())
        if re.match(pattern, line):
            return True
    return False


def end(folder: Path, name: str) -> list[dict[str, np.ndarray]]:
    """What all processes ended with."""
    return [dict(np.load(folder / f"{name}.{agent}.npz")) for agent in range(N)]


def same(one: list[dict[str, np.ndarray]], other: list[dict[str, np.ndarray]]) -> bool:
    """To the bit."""
    return all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)
        for a, b in zip(one, other, strict=True)
    )


def unbroken(folder: Path) -> float:
    """A run that nothing disturbs, and how many seconds it took."""
    began = time.monotonic()
    with launched(folder, "unbroken") as launcher:
        told: list[str] = []
        until(launcher, NOTHING, told)
        assert launcher.wait() == 0, "\n".join(told)
    return time.monotonic() - began


def disturbed(
    folder: Path, name: str, which: int, by: signal.Signals, after: float, *options: str
) -> tuple[float, list[str]]:
    """A run of which a process gets a signal after so many seconds: seconds until it is named, and what was said."""
    told: list[str] = []
    with launched(folder, name, *options) as launcher:
        threading.Timer(after, send, (launcher, which, by)).start()
        until(launcher, f"Process {which}", told)
        seconds = time.monotonic()
        until(launcher, NOTHING, told)
        assert launcher.wait() == 0, "\n".join(told)
    return seconds, told


def main(what: str, times: int) -> None:
    random.seed(0)
    by, options = {
        "kills": (signal.SIGKILL, ("--restarts", "1")),
        "freezes": (signal.SIGSTOP, ("--restarts", "1", "--timeout", "10")),
    }[what]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        length = unbroken(folder)
        expected = end(folder, "unbroken")
        print(f"unbroken: {length:.1f} s", flush=True)
        for i in range(times):
            which, after = random.randrange(N), random.uniform(1, 0.9 * length)
            began = time.monotonic()
            named, told = disturbed(folder, str(i), which, by, after, *options)
            line = next((line for line in told if line.startswith("Process ")), "nobody was named")
            alike = "the same bits" if same(expected, end(folder, str(i))) else "OTHER BITS"
            print(
                f"{i}: process {which} after {after:.1f} s: {alike}; {named - began - after:.1f} s later: {line}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
