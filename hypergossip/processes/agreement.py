"""What must be the same in every process of a run, compared before its first step."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import ProcessesDiffer
from . import supervisor
from .meeting import Meeting


class Member(NamedTuple):
    """A process of a run, as people know it."""

    process: int
    host: str
    agents: list[int]
    """The first, and the one behind the last."""

    def __str__(self) -> str:
        first, end = self.agents
        agents = f"agent {first}" if end - first == 1 else f"agents {first} to {end - 1}"
        return f"process {self.process} (host {self.host}, {agents})"


def compare(meeting: Meeting, agents: range, fields: Callable[[], Mapping[str, Any]]) -> None:
    """Refuses processes of which a field differs from the first one's; tells a launcher who has which agents."""
    if meeting.alone:
        return
    here = Member(meeting.process, socket.gethostname(), [agents.start, agents.stop])
    found = [(Member(*who), given) for who, given in meeting.gather("what must agree", [here, dict(fields())])]
    (first, expected), *others = found
    for other, given in others:
        differing = [name for name in {**expected, **given} if expected.get(name) != given.get(name)]
        if differing:
            lines = [
                f"  {name}: {given.get(name, 'none')} there, {expected.get(name, 'none')} in process {first.process}"
                for name in differing
            ]
            raise ProcessesDiffer(
                f"What {other} was given differs; expected the same in every process:\n" + "\n".join(lines)
            )
    supervisor.report([who._asdict() for who, _ in found])
