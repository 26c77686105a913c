"""Attempt after attempt, until the run is done or there is no more to try."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from signal import SIGPIPE

from ..processes import Place, addresses, runtime
from . import gpus
from .interruption import Interruption
from .options import LOOPBACK, Options, Refusal, check
from .output import Terminal, say
from .process import Process
from .roster import Roster
from .verdict import Verdict, judge
from .watch import Watch

_PAUSE = 1.0
"""Seconds between two attempts to find the others."""


def launch(options: Options) -> int:
    """Runs a script on several processes; the status to end with."""
    check(options)
    return Launcher(options).run()


class Launcher:
    """The processes that this host has of a run, over all attempts."""

    def __init__(self, options: Options):
        self._options = options
        self._places = _places(options)
        on_cpu = options.n is None or options.devices is not None
        self._more = [{}] * len(self._places) if on_cpu else gpus.split(len(self._places))
        self._restarts = 0
        self._apart_since = time.monotonic()
        self._said_so = False
        self._interruption = Interruption()

    def run(self) -> int:
        """The status to end with."""
        with self._interruption:
            while True:
                verdict = self._attempt()
                if (signal := self._interruption.caught) is not None:
                    gone = "Nobody reads the output any more" if signal == SIGPIPE else "Interrupted"
                    say(f"{gone}; all processes are ended.")
                    return 128 + signal
                if not self._goes_on(verdict):
                    return verdict.status

    def _attempt(self) -> Verdict:
        options, roster = self._options, Roster()
        left = max(1, round(self._apart_since + options.wait - time.monotonic()))
        places = [replace(place, wait=left) for place in self._places]
        if options.n is not None:
            coordinator = addresses.paste(LOOPBACK, addresses.free_port(LOOPBACK))
            places = [replace(place, coordinator=coordinator) for place in places]
        processes = self._start(places, roster)
        Watch(processes, roster, self._interruption, options.timeout, left, self._say_what_is_waited_for).run()
        if any(process.life.joined for process in processes):
            self._apart_since, self._said_so = time.monotonic(), False
        return judge([process.life for process in processes], roster, options.timeout, options.wait)

    def _start(self, places: Sequence[Place], roster: Roster) -> list[Process]:
        command = [str(self._options.script), *self._options.arguments]
        gone = self._interruption.nobody_reads
        terminals = Terminal(sys.stdout, gone), Terminal(sys.stderr, gone)
        processes = []
        for place, more in zip(places, self._more, strict=True):
            processes.append(Process(place, command, more, self._options.logs, terminals))
            roster.add_own(processes[-1].life.number)
        return processes

    def _goes_on(self, verdict: Verdict) -> bool:
        """Says what happened, and whether there is another attempt."""
        if verdict.sentence and verdict.kind != "apart":
            say(verdict.sentence)
        if verdict.kind == "fault":
            return self._starts_again()
        if verdict.kind == "own":
            say("It would end in the same way again, so nothing is started again.")
        elif verdict.kind == "apart":
            return self._tries_to_meet_again(verdict.sentence)
        return False

    def _starts_again(self) -> bool:
        restarts = self._options.restarts
        if self._restarts == restarts:
            again = "Run the same command again to go on from the last complete checkpoint"
            say(f"{again}; --restarts 3 would do so by itself." if not restarts else f"No restart is left. {again}.")
            return False
        self._restarts += 1
        say(f"Starting again from the last complete checkpoint: restart {self._restarts} of {restarts}.")
        return True

    def _tries_to_meet_again(self, reason: str) -> bool:
        because = f" ({reason})" if reason else ""
        if time.monotonic() - self._apart_since + _PAUSE >= self._options.wait:
            say(
                f"The processes have not found one another within {self._options.wait} seconds{because}. See that all "
                "of them are started and reach the coordinator, and run the same command again; --wait lets them wait "
                "longer."
            )
            return False
        self._say_what_is_waited_for(because)
        time.sleep(_PAUSE)
        return True

    def _say_what_is_waited_for(self, because: str = "") -> None:
        if not self._said_so:
            self._said_so = True
            coordinator = self._places[0].coordinator
            where = f" at {coordinator}" if coordinator else ""
            whom = "the processes to find one another" if self._options.n else f"the other processes{where}"
            say(f"Waiting for {whom}, for up to {self._options.wait} seconds{because}.")


def _places(options: Options) -> list[Place]:
    """This host's places, as far as they stay the same from attempt to attempt."""
    place = Place(options.coordinator, options.processes, options.process_id, options.listen, options.timeout)
    place = replace(place, devices=options.devices)
    if options.n is not None:
        return [replace(place, processes=options.n, process=i, listen=LOOPBACK) for i in range(options.n)]
    if options.coordinator is None:
        process = runtime.detected_process()
        if process is None:
            raise Refusal(
                "How many processes there are was not said before the script's name, and none of Slurm, Open MPI and "
                "Kubernetes is seen here: "
                "give -n for processes on this host, or --coordinator, --process-id and --processes on every host."
            )
        place = replace(place, process=process)
    return [place]
