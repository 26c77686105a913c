"""What is known of one process's life, and what its end says about it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from . import codes, noise


@dataclass
class Life:
    """One process, from its start to its end."""

    number: int

    joined: bool = False
    """It has found the others."""

    lost: str | None = None
    """What it said of a connection that broke."""

    told: dict | None = None
    """What another process told it of its own end: {"process", "reason", "fault"}."""

    error: str | None = None
    """Its own error, in a line."""

    frozen: bool = False
    """It was stopped for longer than is borne."""

    late: bool = False
    """It has not found the others in the time given."""

    ended_by_launcher: bool = False
    """It still ran when the launcher ended everything."""

    status: int | None = None
    """How it ended: an exit status, or a signal's number below zero."""

    held: str = ""
    """What the runtime in it printed of lost processes."""

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.status is None

    @property
    def was_aborted(self) -> bool:
        """Whether the runtime ended it because of another process."""
        return self.status == -signal.SIGABRT and noise.is_abort(self.held)

    @property
    def is_a_consequence(self) -> bool:
        """Whether its end, or what it is about to end with, comes from another process."""
        return self.lost is not None or self.status == codes.LOST or self.was_aborted

    @property
    def never_met(self) -> bool:
        """Whether it ended without having found the others."""
        return not self.joined and (self.status == codes.APART or self.was_aborted)

    @property
    def is_a_cause(self) -> bool:
        """Whether it is in trouble for a reason of its own."""
        ended = self.status not in (None, 0) and not self.ended_by_launcher
        return self.frozen or self.late or (ended and not self.is_a_consequence and not self.never_met)

    @property
    def is_in_trouble(self) -> bool:
        """Whether the run cannot go on as it is."""
        return self.is_a_cause or self.is_a_consequence or self.never_met
