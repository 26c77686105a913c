"""What the processes print: whole lines with a prefix on the terminal, or everything as it is in a file for each."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TextIO

from . import noise

_LONGEST = 1 << 16
"""Bytes without an end of line that are shown as a line, and that are kept of a runtime's report."""

_PIECES = 32
"""Of `_LONGEST` bytes: more than a pipe can hold."""

_SOON = 10.0
"""Seconds in which the runtime ends a process after it began to say why."""


class Log:
    """One process's file, to which both of its streams go."""

    def __init__(self, folder: Path, process: int):
        self._path = folder / f"process-{process}.log"
        self._file = self._path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Appends; a disk that is full costs the log and not the run."""
        try:
            self._file.write(data)
        except OSError as error:
            say(f"{self._path} cannot be written to: {error.strerror}; the run goes on, this part of its log is lost.")

    def close(self) -> None:
        """Lets the file go."""
        self._file.close()


class Terminal:
    """The launcher's own standard output or error, where lines of all processes go."""

    def __init__(self, file: TextIO, gone: Callable[[], None]):
        self._file, self._gone = file, gone

    def write(self, line: bytes) -> None:
        """Writes a line at once; where nobody reads any more, as after `| head`, says so to the launcher."""
        try:
            self._file.buffer.write(line)
            self._file.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())  # or Python would try again at its end, and complain
            os.close(nowhere)
            self._gone()


class Stream:
    """Standard output or standard error of one process, on its way to the terminal or to a log."""

    def __init__(self, source: IO[bytes], target: Terminal, prefix: str, log: Log | None, withholds: bool):
        self.source = source
        """The reading end of the pipe."""
        self._target, self._prefix, self._log, self._withholds = target, prefix.encode(), log, withholds
        self._rest, self._held, self._holding = b"", b"", False
        self._since, self._until_the_end = 0.0, False
        os.set_blocking(source.fileno(), False)

    @property
    def held(self) -> str:
        """What the process told after it, or the runtime in it, began to speak of lost processes."""
        return self._held.decode(errors="replace")

    def hold(self) -> None:
        """From here on nothing is shown until `release`."""
        self._holding = self._until_the_end = self._withholds

    def pump(self) -> bool:
        """Takes a piece of what there is; False where nothing is left."""
        data = self.source.read(_LONGEST)
        if not data:
            return False
        if self._log:
            self._log.write(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._take(line)
        return True

    def drain(self) -> None:
        """The process has ended: takes the last of it, which is bounded should others still write to the pipe."""
        for _ in range(_PIECES):
            if not self.pump():
                break
        if self._rest:
            self._take(self._rest)
        self._rest = b""
        self.source.close()

    def relent(self) -> None:
        """The process goes on although the runtime in it began to speak of errors: they are shown after all."""
        if self._holding and not self._until_the_end and time.monotonic() - self._since > _SOON:
            self.release()

    def release(self) -> None:
        """Shows what was held."""
        self._holding = False
        for line in self._held.splitlines():
            self._show(line)
        self._held = b""

    def _take(self, line: bytes) -> None:
        if self._withholds and not self._holding and noise.begins(line):
            self._holding, self._since = True, time.monotonic()
        if self._holding:
            self._held = (self._held + line + b"\n")[-_LONGEST:]
        elif not noise.is_chatter(line):
            self._show(line)

    def _show(self, line: bytes) -> None:
        if self._log is None:
            self._target.write(self._prefix + line + b"\n")


def say(sentence: str) -> None:
    """A line of the launcher's own."""
    with contextlib.suppress(OSError):  # the terminal is gone; ending well matters more
        print(sentence, file=sys.stderr, flush=True)
