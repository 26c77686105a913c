"""Ctrl-C and its relatives: the first one asks all processes to end, the second one ends them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType

from .process import Process

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Within it, these signals reach the processes, even while the launcher waits for a terminal that does not read."""

    def __init__(self) -> None:
        self.caught: int | None = None
        """The signal that came first."""
        self._processes: Sequence[Process] = ()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interruption:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # so nohup keeps its meaning
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # pyright: ignore[reportArgumentType]

    def concerns(self, processes: Sequence[Process]) -> None:
        """These run now."""
        self._processes = processes
        if self.caught is not None:
            self._tell(signal.SIGTERM)

    def nobody_reads(self) -> None:
        """The terminal, or what stands after a pipe, is gone."""
        self._take(signal.SIGPIPE)

    def _take(self, number: int, _: FrameType | None = None) -> None:
        if self.caught is None:
            self.caught = number
            self._tell(signal.SIGTERM)
        elif number != signal.SIGPIPE:
            self._tell(signal.SIGKILL)
            os._exit(128 + self.caught)  # the launcher itself may hang in a line that nobody reads

    def _tell(self, number: int) -> None:
        for process in self._processes:
            process.signal(number)
