"""Watches over the processes of one attempt until all have ended."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence

from .interruption import Interruption
from .process import Process
from .roster import Roster

_ROUND = 0.1
"""Seconds between two looks at the processes where they print nothing."""

_SETTLE = 0.5
"""Seconds in which others that end for the same reason may say so."""

_CONSEQUENCES = 5.0
"""Seconds in which the cause shows itself after the first process has lost another, and all others have noticed."""

_ASKED = 3.0
"""Seconds from the request to end to the end by force."""

_FORCED = 10.0
"""Seconds after which a process that even force does not end is left to the system."""

_LATE = 10.0
"""Seconds beyond `wait` in which the runtime itself gives up joining; and seconds before people are told."""


class Watch:
    """One attempt: it ends when all processes have ended, well or because one of them did not."""

    def __init__(
        self,
        processes: Sequence[Process],
        roster: Roster,
        interruption: Interruption,
        timeout: float,
        wait: float,
        waiting: Callable[[], None],
    ):
        self._processes, self._roster, self._interruption = processes, roster, interruption
        self._timeout, self._wait, self._waiting = timeout, wait, waiting
        self._selector = selectors.DefaultSelector()
        self._trouble: float | None = None
        self._asked: float | None = None

    def run(self) -> None:
        """Returns when all have ended."""
        self._interruption.concerns(self._processes)
        with self._selector:
            for process in self._processes:
                self._listen_to(process)
            while any(process.life.runs for process in self._processes):
                self._pump()
                for process in self._processes:
                    self._look_at(process)
                self._end_if_it_is_time()
        self._interruption.concerns(())

    def _listen_to(self, process: Process) -> None:
        # What a process tells comes before what it prints: what it tells can be that the print is not to be shown.
        sources = [(process.line, lambda: process.listen(self._roster))]
        sources += [(stream.source, stream.pump) for stream in (process.out, process.err)]
        for rank, (source, take) in enumerate(sources):
            self._selector.register(source, selectors.EVENT_READ, (rank, take))

    def _pump(self) -> None:
        ready = self._selector.select(_ROUND)
        for key, _ in sorted(ready, key=lambda item: item[0].data[0]):
            if not key.data[1]():
                self._selector.unregister(key.fileobj)

    def _look_at(self, process: Process) -> None:
        life = process.life
        if not life.runs:
            return
        process.poll()
        if not life.runs:
            self._part_from(process)
            return
        process.err.relent()
        if not life.joined and process.age() > _LATE:
            self._waiting()
        life.frozen = life.frozen or process.silence() >= self._timeout
        life.late = life.late or (not life.joined and process.age() > self._wait + 2 * _LATE)

    def _part_from(self, process: Process) -> None:
        registered = self._selector.get_map()
        for source in (process.line, process.out.source, process.err.source):
            if source in registered:
                self._selector.unregister(source)
        process.close(self._roster)

    def _end_if_it_is_time(self) -> None:
        now = time.monotonic()
        if self._asked is None:
            if self._interruption.caught is not None or self._cause_is_clear(now):
                self._asked = now
                self._ask()
        elif now - self._asked > _ASKED:
            for process in self._processes:
                process.signal(signal.SIGKILL)
            if now - self._asked > _FORCED:
                for process in self._processes:
                    process.abandon()

    def _cause_is_clear(self, now: float) -> bool:
        """Whether something has gone wrong, and no more is to be learnt by waiting."""
        if not any(process.life.is_in_trouble for process in self._processes):
            return False
        self._trouble = self._trouble or now
        known = len(self._processes) == 1 or any(process.life.is_a_cause for process in self._processes)
        return now - self._trouble >= (_SETTLE if known else _CONSEQUENCES)

    def _ask(self) -> None:
        for process in self._processes:
            if process.life.runs:
                process.life.ended_by_launcher = True
                process.signal(signal.SIGKILL if process.stopped_at is not None else signal.SIGTERM)
