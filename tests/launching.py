"""Runs of `hypergossip launch` in the background, for tests that do something to them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RING = HERE / "scripts" / "ring.py"
PATIENCE = 60
"""Seconds in which what is waited for happens, or the test fails."""


class Launched:
    """A launcher at work; what it prints, both streams together, goes to a file."""

    def __init__(self, folder: Path, *words: object, before: tuple[str, ...] = (), **environment: str):
        self.file = folder / f"printed-{len(list(folder.glob('printed-*')))}"
        command = [*before, sys.executable, "-m", "hypergossip.cli", "launch", *map(str, words)]
        paths = {"PYTHONPATH": str(HERE.parent), "XLA_FLAGS": ""}
        with self.file.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **paths, **environment}, cwd=folder
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()

    @property
    def printed(self) -> str:
        return self.file.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Until a pattern has been printed so often."""
        end = time.monotonic() + PATIENCE
        while len(re.findall(pattern, self.printed)) < times:
            assert time.monotonic() < end, f"{pattern} does not appear in:\n{self.printed}"
            assert self.process.poll() is None or len(re.findall(pattern, self.printed)) >= times, self.printed
            time.sleep(0.05)

    def end(self) -> int:
        """The status with which the launcher ends by itself."""
        return self.process.wait(PATIENCE)

    def children(self) -> list[int]:
        """The processes it has started, in order."""
        return children(self.process.pid)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are not reaped."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return sorted(map(int, listed.stdout.split()))


def runs(pid: int) -> bool:
    """Whether a process is there, and not merely waiting to be counted out."""
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(told.strip()) and not told.strip().startswith("Z")


def wait_until(condition) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
