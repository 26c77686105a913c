"""What can go wrong in a run, as classes to catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .trace import Trace


class Diverged(ArithmeticError):
    """A run left the finite numbers, or grew beyond its limit; nothing recorded before is lost."""

    def __init__(self, agent: int, iteration: int, variable: str, advice: str, trace: Trace | None = None):
        self.agent = agent
        """The first agent at which it happened."""
        self.iteration = iteration
        """The outer iteration, counted from 1, in which it happened."""
        self.variable = variable
        """The state's field that was hit first within the iteration."""
        self.trace = trace
        """The run up to there."""
        super().__init__(
            f"Diverged at agent {agent} in outer iteration {iteration}: "
            f"{variable} is not finite, or grew without bound. {advice}"
        )


class ProcessesDiffer(ValueError):
    """The processes that run together were given things that must be the same and are not."""


class ProcessLost(RuntimeError):
    """Another process of the run has ended, or cannot be reached."""

    def __init__(self, message: str = "", process: int | None = None, reason: str = "", fault: bool = False):
        self.process = process
        """The process that ended with an error, where it could tell."""
        self.reason = reason
        """That error, in words."""
        self.fault = fault
        """Whether it may not come again: a full disk, say."""
        super().__init__(message or f"Process {process} ended with an error, and with it the run: {reason}")


class CheckpointMismatch(ValueError):
    """The checkpoint belongs to another run."""


class CheckpointDamaged(Exception):
    """A checkpoint file is not what was written."""


class UnconvergedWarning(RuntimeWarning):
    """A recorded value rests on an exact solve that did not converge."""


class DataUnavailable(OSError):
    """A data set is in none of the places where it is looked for, and cannot be downloaded there."""


class DataDamaged(Exception):
    """A data file is not the one that was published."""
