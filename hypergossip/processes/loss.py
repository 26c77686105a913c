"""What becomes of an error that says that another process is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ProcessLost
from . import faults, supervisor


@contextmanager
def telling_of_losses() -> Iterator[None]:
    """JAX's errors about lost processes become `hg.ProcessLost`; a launcher, which knows more, hears of them first."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not faults.is_loss(error):
            raise
        supervisor.lost(error)
        raise ProcessLost(
            "Another process of the run has ended, or cannot be reached; its own output says why. Start the processes "
            "again: with checkpoint=... the run goes on from the last checkpoint that all of them have written."
        ) from error
