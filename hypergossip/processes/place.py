"""Where a process stands among the others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "HYPERGOSSIP_PLACE"
"""The environment variable in which a place travels from the launcher to the process."""


@dataclass(frozen=True)
class Place:
    """Which process this is, where the others are, and for how long silence is borne."""

    coordinator: str | None = None
    """HOST:PORT of process 0; None: Slurm, Open MPI or Kubernetes say it, and say the next two."""

    processes: int | None = None
    """How many there are."""

    process: int | None = None
    """Which of them this one is, counted from 0."""

    listen: str | None = None
    """The IP address of this host to which everything here is bound; None: the one that faces the coordinator."""

    timeout: int = 60
    """Seconds of silence after which a process counts as lost."""

    wait: int = 300
    """Seconds to wait for the others to come."""

    devices: int | None = None
    """Virtual CPU devices of this process; None: the devices that JAX finds."""

    def environment(self) -> dict[str, str]:
        """What to add to a process's environment to put it into this place."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @staticmethod
    def inherited(environment: Mapping[str, str]) -> Place | None:
        """The place that an environment gives, if it gives one."""
        told = environment.get(VARIABLE)
        return Place(**json.loads(told)) if told else None
