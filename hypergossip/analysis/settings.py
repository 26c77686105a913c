"""Settings of an algorithm, every value with a label that says where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..algorithms import DoubleLoop
from ..hypergradient import AID, HIGP, JHIP, Neumann, Oracle


class Decaying(NamedTuple):
    """t ↦ first / (1 + t/delay): O(1/t). Equal where its numbers are, so that a run with it resumes."""

    first: float
    delay: float

    def __call__(self, t: Any) -> Any:
        return self.first / (1 + jnp.asarray(t, jnp.result_type(float)) / self.delay)

    def __str__(self) -> str:
        return f"{self.first:.4g}/(1 + t/{self.delay:.4g})"


class Choice(NamedTuple):
    """A value and its source."""

    value: Any
    source: str

    def __str__(self) -> str:
        if isinstance(self.value, type):
            return f"hg.{self.value.__name__}"
        return f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)


@dataclass(frozen=True)
class Settings:
    """One choice for every field of DBO, DBOGT or DSBO."""

    kind: type[DoubleLoop]
    homogeneous: bool
    outer_step: Choice
    """η_x."""
    inner_step: Choice
    """η_y."""
    inner_iterations: Choice
    """T."""
    oracle: Choice
    """The oracle's class."""
    oracle_step: Choice
    """γ or ε; None for `hg.AID`."""
    oracle_iterations: Choice
    """N, or M for `hg.Neumann`."""
    carry: Choice
    batch_size: Choice | None = None
    """DSBO's."""

    def algorithm(self, **others: Any) -> DoubleLoop:
        """The algorithm, ready to run; `others` are further fields, or replace these."""
        values = {
            "outer_step": self.outer_step.value,
            "inner_step": self.inner_step.value,
            "inner_iterations": self.inner_iterations.value,
            "hypergradient": _built(self.oracle.value, self.oracle_step.value, self.oracle_iterations.value),
            "homogeneous": self.homogeneous,
            "carry": self.carry.value,
            **({} if self.batch_size is None else {"batch_size": self.batch_size.value}),
        }
        return self.kind(**{**values, **others})

    def choices(self) -> dict[str, Choice]:
        """The choices by name."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Choice)}


def carry_for(kind: type[DoubleLoop], homogeneous: bool) -> Choice:
    """Whether trackers go on from one outer iteration to the next; the theorems say nothing of it."""
    if kind.stochastic and not homogeneous:
        return Choice(False, "the oracle is fragile carried on in DSBO, where y has no tracker")
    return Choice(True, "trackers that go on leave no floor")


def batch_size_for(kind: type[DoubleLoop], batch_size: int | None) -> Choice | None:
    return Choice(batch_size, "as hg.analyse took it") if kind.stochastic else None


def _built(kind: type[Oracle], step: Any, iterations: int) -> Oracle:
    builders: dict[type[Oracle], Callable[[], Oracle]] = {
        AID: lambda: AID(iterations=iterations),
        Neumann: lambda: Neumann(step=step, terms=iterations),
        JHIP: lambda: JHIP(step=step, iterations=iterations),
        HIGP: lambda: HIGP(step=step, iterations=iterations),
    }
    return builders[kind]()


def oracle_for(kind: type[DoubleLoop], homogeneous: bool, own_parts: bool) -> Choice:
    """The paper's oracle for the case, or the one that parts of x that are agents' own need."""
    if homogeneous:
        return Choice(Neumann if kind.stochastic else AID, "the paper's for agents alike")
    if own_parts:
        return Choice(HIGP, "the paper's JHIP cannot serve where parts of x are agents' own")
    return Choice(JHIP, "the paper's for agents that differ")
