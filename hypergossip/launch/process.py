"""One process that the launcher has started: its streams, what it tells, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..processes import Place, supervisor
from .life import Life
from .output import Log, Stream, Terminal, say
from .roster import Roster


class Process:
    """A running or ended process. It leads a session of its own, so that the terminal's Ctrl-C does not reach it."""

    def __init__(
        self,
        place: Place,
        command: Sequence[str],
        more: Mapping[str, str],
        logs: Path | None,
        terminals: tuple[Terminal, Terminal],
    ):
        self.life = Life(place.process or 0)
        """What it has told, and how it has ended."""
        self.stopped_at: float | None = None
        """Since when it has been stopped by a signal."""
        self._began = time.monotonic()
        self._log = Log(logs, self.life.number) if logs else None
        self.line, theirs = socket.socketpair()
        self.line.setblocking(False)
        environment = {**os.environ, **more, **place.environment(), supervisor.VARIABLE: str(theirs.fileno())}
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "hypergossip.launch.child", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                bufsize=0,
            )
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        prefix = f"[{self.life.number}] "
        self.out = Stream(self._popen.stdout, terminals[0], prefix, self._log, withholds=False)
        self.err = Stream(self._popen.stderr, terminals[1], prefix, self._log, withholds=True)
        self._told = b""

    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    def silence(self) -> float:
        """Seconds for which it has been stopped."""
        return 0.0 if self.stopped_at is None else time.monotonic() - self.stopped_at

    def poll(self) -> None:
        """Sees whether it has ended, been stopped or been continued."""
        while self.life.runs:
            pid, status = os.waitpid(self._popen.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.stopped_at = time.monotonic()
            elif os.WIFCONTINUED(status):
                self.stopped_at = None
            else:
                self._end(os.waitstatus_to_exitcode(status))

    def signal(self, number: int) -> None:
        """Sends a signal to it and to what it has started."""
        if self.life.runs:
            self._signal_group(number)

    def abandon(self) -> None:
        """Counts it as ended although the system has not ended it."""
        if self.life.runs:
            self._end(-signal.SIGKILL)

    def listen(self, roster: Roster) -> bool:
        """Takes in what it tells the launcher; False at the end of the line."""
        try:
            data = self.line.recv(1 << 16)
        except OSError:
            return False
        *lines, self._told = (self._told + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line), roster)
        return bool(data)

    def close(self, roster: Roster) -> None:
        """After its end: the last of what it told and printed."""
        while self.listen(roster):
            pass
        self.line.close()
        self.out.drain()
        self.err.drain()
        self.life.held = self.err.held
        if not self.life.is_a_consequence and not self.life.ended_by_launcher:
            self.err.release()
        if self._log:
            self._log.close()

    def _end(self, status: int) -> None:
        self.life.status = self._popen.returncode = status
        if status != 0:
            self._signal_group(signal.SIGKILL)  # what it has started would be in the way of the next attempt

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
            os.killpg(self._popen.pid, number)

    def _hear(self, told: dict, roster: Roster) -> None:
        event = told["event"]
        if event == "failed":
            self.life.error = told["error"]
        elif event == "lost":
            self.life.lost, self.life.told = told["error"], told.get("told")
            self.err.hold()
        elif event == "goes on":
            where = f"goes on from outer iteration {told['step']}" if told["step"] else "begins; no checkpoint is there"
            say(f"The run that saves itself into {told['folder']} {where}.")
        else:
            self.life.joined = True
            roster.learn(told["processes"])
