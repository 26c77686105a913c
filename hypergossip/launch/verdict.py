"""From how the processes ended to what happened, in a sentence, and what to do about it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from . import codes, noise
from .life import Life
from .roster import Roster


@dataclass(frozen=True)
class Verdict:
    """What became of an attempt."""

    kind: Literal["done", "own", "fault", "apart"]
    """All ended well; the script ended it; something failed; the processes did not find one another."""

    sentence: str = ""
    status: int = 0
    """What the launcher ends with, if this is the end."""


def judge(processes: Sequence[Life], roster: Roster, timeout: int, wait: int) -> Verdict:
    """Looks for the process that ended for a reason of its own; the others' ends follow from it."""
    if all(process.status == 0 for process in processes):
        return Verdict("done")
    missing = _missing(processes)
    causes = [process for process in processes if process.is_a_cause or process in missing]
    faults = [process for process in causes if _is_fault(process)]
    if faults:
        return Verdict("fault", _each(faults, lambda p: _fault(p, timeout, wait), roster), codes.FAULT)
    if causes:
        return Verdict("own", _each(causes, _own, roster), causes[0].status or codes.ERROR)
    if any(process.never_met for process in processes):
        reasons = [process.error for process in processes if process.error]
        return Verdict("apart", reasons[0] if reasons else "", codes.APART)
    if told := next((process.told for process in processes if process.told), None):
        return _as_told(told, roster)
    done = [process for process in processes if process.status == 0]
    if done and len(processes) > 1:
        return Verdict("own", _each(done, lambda _: "ended while others still needed it", roster), codes.ERROR)
    return Verdict("fault", _without_a_cause(processes, roster, timeout), codes.FAULT)


def _as_told(told: dict, roster: Roster) -> Verdict:
    """A process of another host told the others why it ended."""
    sentence = _sentence([roster.name(told["process"])], f"ended with an error ({told['reason']})")
    return Verdict("fault", sentence, codes.FAULT) if told["fault"] else Verdict("own", sentence, codes.ERROR)


def _missing(processes: Sequence[Life]) -> list[Life]:
    """Those for whom others on this host have waited in vain."""
    if not any(process.never_met for process in processes):
        return []
    return [process for process in processes if process.ended_by_launcher and not process.joined]


def _is_fault(process: Life) -> bool:
    assert process.status is not None
    external = process.frozen or process.late or process.ended_by_launcher
    return external or process.status < 0 or process.status == codes.FAULT


def _fault(process: Life, timeout: int, wait: int) -> str:
    assert process.status is not None
    if process.frozen:
        return f"has not answered for {timeout} seconds; it is ended"
    if process.late or process.ended_by_launcher:
        return f"has not found the others within {wait} seconds; it is ended"
    if process.status < 0:
        return f"was killed by signal {-process.status} ({_signal(-process.status)})"
    return f"failed ({process.error})" if process.error else f"failed (status {process.status})"


def _own(process: Life) -> str:
    if process.error:
        return f"ended with an error of the script's own ({process.error})"
    return f"was ended by the script with status {process.status}"


def _without_a_cause(processes: Sequence[Life], roster: Roster, timeout: int) -> str:
    """No process here has a reason of its own: what the runtime told, and who was left over, must say it."""
    local = len(processes) > 1
    told = "\n".join([p.held for p in processes] + [p.lost for p in processes if p.lost])
    ended = "; it is ended" if local else ""
    silent = noise.silent(told) or [p.number for p in processes if local and p.ended_by_launcher and p.lost is None]
    if silent and any(process.was_aborted for process in processes):
        return _sentence([roster.name(number) for number in silent], f"has not answered for {timeout} seconds{ended}")
    name = roster.name(processes[0].number)
    address = noise.peer(told)
    there = roster.at(address) if address else []
    if not local and there:
        lost = roster.name(there[0]) if len(there) == 1 else f"one of {_list([roster.name(p) for p in there])}"
        return _sentence([name], f"lost its connection to {lost}")
    if not local and noise.is_about_the_coordinator(told):
        return _sentence([name], f"lost its connection to {roster.name(0)}, the coordinator")
    if local:
        return "The processes lost their connections to one another."
    return _sentence([name], "lost its connection to another process")


def _each(processes: Sequence[Life], what: Callable[[Life], str], roster: Roster) -> str:
    """One sentence for all of whom the same is to be said."""
    told: dict[str, list[str]] = {}
    for process in processes:
        told.setdefault(what(process), []).append(roster.name(process.number))
    return " ".join(_sentence(names, happened) for happened, names in told.items())


def _sentence(names: Sequence[str], happened: str) -> str:
    subject = _list(names)
    if len(names) > 1:
        happened, bracket, quoted = happened.partition(" (")  # what a process said stays as it is
        for one, several in ((" was ", " were "), (" has ", " have "), ("; it is", "; they are")):
            happened = f" {happened}".replace(one, several).strip()
        happened += bracket + quoted
    return f"{subject[0].upper()}{subject[1:]} {happened}."


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
