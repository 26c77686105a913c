"""What an experiment of the paper is: runs, a figure, and claims that the measured numbers decide."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..algorithms import Algorithm
from ..errors import Diverged, UnconvergedWarning
from ..metrics import CONVERGED
from ..problem import Problem
from ..run import Progress, run
from ..topology import Topology
from ..trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Case:
    """One run of an experiment."""

    algorithm: Algorithm
    problem: Problem
    topology: Topology
    steps: int
    metrics: Sequence[Any] = ()
    record_every: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a case came to, ended or not."""

    trace: Trace
    diverged: Diverged | None = None

    @property
    def remark(self) -> str:
        """What a reader must know of the run; empty if there is nothing."""
        if self.diverged:
            return f"diverged in outer iteration {self.diverged.iteration}"
        flags = [values for name, values in self.trace.metrics.items() if name.endswith(CONVERGED)]
        failed = sum(int((values < 1).sum()) for values in flags)
        return f"exact solves failed at {failed} records" if failed else ""

    @property
    def trusted(self) -> bool:
        """Whether the run reached its end and all exact solves behind its records converged."""
        return not self.remark


Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, and what the numbers say of it."""

    claim: str
    holds: bool | None
    """None where the numbers, or the paper's text, do not decide it."""
    because: str
    """The measured numbers, or what is missing."""

    @property
    def word(self) -> str:
        return {True: "holds", False: "does not hold", None: "cannot be judged"}[self.holds]

    def __str__(self) -> str:
        return f"{self.claim}: {self.word}, because {self.because}"


def failures(outcomes: Outcomes) -> str:
    """What keeps numbers from being compared, in words; empty if nothing does."""
    return "; ".join(f"{name} {one.remark}" for name, one in outcomes.items() if not one.trusted)


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A figure of the paper: its runs as data, its claims as functions of what they came to."""

    seed: int = field(default=0)
    """Of the data and of all draws."""

    title: ClassVar[str]
    choices: ClassVar[tuple[str, ...]] = ()
    """What the paper's text leaves open, and what is taken here."""
    double: ClassVar[bool] = False
    """Whether it runs in double precision."""

    @classmethod
    @abstractmethod
    def small(cls, **settings: Any) -> Experiment:
        """The same on little data that needs no download, for a run of seconds."""

    @abstractmethod
    def cases(self) -> dict[str, Case]:
        """The runs, by the names of their lines in the figure."""

    @abstractmethod
    def verdicts(self, outcomes: Outcomes) -> list[Verdict]:
        """The paper's claims, one by one."""

    @abstractmethod
    def figure(self, outcomes: Outcomes) -> Figure:
        """The paper's figure."""


def carry_out(case: Case, watch: Callable[[Progress], object] | None = None) -> Outcome:
    """Runs a case; one that diverges is an outcome like others, and an exact solve that failed is a remark on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnconvergedWarning)
        try:
            trace = run(
                case.algorithm,
                case.problem,
                case.topology,
                case.steps,
                metrics=case.metrics,
                record_every=case.record_every,
                seed=case.seed,
                callback=watch,
            )
        except Diverged as diverged:
            return Outcome(cast("Trace", diverged.trace), diverged)
    return Outcome(trace)
