"""A process's end of the line to the launcher that started it; without a launcher, nothing here does anything.

The line is a pair of connected sockets: the process tells, the launcher listens. When the launcher is
gone, however it went, the line breaks and the process ends, so that nothing is left running alone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import MutableMapping, Sequence

from ..errors import ProcessLost

VARIABLE = "HYPERGOSSIP_SUPERVISOR"
"""The environment variable with the number of the inherited socket."""

_LAUNCHERS_TIME = 60
"""Seconds in which a launcher that was told of a loss ends this process."""

_line: socket.socket | None = None


def begin(environment: MutableMapping[str, str]) -> None:
    """Takes up the line, if the environment names one, and hides it from processes that this one starts."""
    global _line
    number = environment.pop(VARIABLE, None)
    if number is not None:
        _line = socket.socket(fileno=int(number))
        _line.set_inheritable(False)
        threading.Thread(target=_end_with_the_launcher, args=(_line,), daemon=True).start()


def present() -> bool:
    """Whether a launcher listens."""
    return _line is not None


def joined(processes: Sequence[dict]) -> None:
    """All processes have found one another: {"process": 0, "host": "a", "address": "10.0.0.1"} for each."""
    _tell(event="joined", processes=list(processes))


def report(roster: Sequence[dict]) -> None:
    """Who has which agents, half-open: {"process": 0, "host": "a", "agents": [0, 5]} for each process."""
    _tell(event="roster", processes=list(roster))


def goes_on(folder: str, step: int) -> None:
    """A run that saves itself goes on from so many outer iterations; from 0 where it begins."""
    _tell(event="goes on", folder=folder, step=step)


def failed(error: BaseException) -> None:
    """This process is about to end with an error."""
    _tell(event="failed", error=_in_a_line(error))


def lost(error: BaseException) -> None:
    """Another process cannot be reached: tells the launcher, and leaves it the time to end this one."""
    if _tell(event="lost", error=_in_a_line(error)):
        threading.Event().wait(_LAUNCHERS_TIME)


def losing(error: BaseException, told: ProcessLost | None) -> None:
    """The same, from a process that ends by itself, with what the other one has told of its end."""
    reason = told and {"process": told.process, "reason": told.reason, "fault": told.fault}
    _tell(event="lost", error=_in_a_line(error), told=reason)


def _tell(**message: object) -> bool:
    if _line is None:
        return False
    try:
        _line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:  # the launcher is gone, and this process will be in a moment
        return False
    return True


def _in_a_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _end_with_the_launcher(line: socket.socket) -> None:
    try:
        while line.recv(1024):  # a launcher says nothing; this waits for it to be gone
            pass
    except OSError:
        pass
    if os.getpgrp() == os.getpid():  # what this process has started goes with it
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
