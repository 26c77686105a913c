"""How JAX's runtime speaks of lost processes, from C++: what to read of it, and what not to show."""

from __future__ import annotations

import re

_LOG_LINE = re.compile(rb"[EFWI]\d{4} [\d:.]+ +\d+ (coordination_service\w*\.cc|client\.h):\d+\]")
_CHATTER = re.compile(rb"\[Gloo\] Rank |\d+ is connected to \d+ peer ranks")  # threads write it into each other's lines
_ABORT = "Terminating process because the JAX distributed service detected fatal errors"
_SILENT = re.compile(r"stopped sending heartbeats\):?\s*\n((?:[^\n]*\b\d+\s*\n)+)")
_COORDINATOR = re.compile(r"CoordinationService/Heartbeat|Failed to send RPC to coordination service|Socket closed")
_PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")


def begins(line: bytes) -> bool:
    """Whether the runtime begins to report an error of its own, which goes on to the end of the process."""
    return bool(_LOG_LINE.match(line))


def is_chatter(line: bytes) -> bool:
    """Whether a line tells nothing to anybody."""
    return bool(_CHATTER.match(line))


def is_abort(text: str) -> bool:
    """Whether the runtime has ended a process because of another one."""
    return _ABORT in text


def silent(text: str) -> list[int]:
    """The processes that the coordinator calls silent."""
    found = _SILENT.search(text)
    return [int(number) for number in re.findall(r"(\d+)\s*\n", found.group(1))] if found else []


def is_about_the_coordinator(text: str) -> bool:
    """Whether it is the coordinator, process 0, that does not answer."""
    return bool(_COORDINATOR.search(text))


def peer(text: str) -> str | None:
    """The address at the other end of a broken connection."""
    found = _PEER.search(text)
    return found.group(1) if found else None
