"""Hyper-cleaning in the form that is of use: agent i has weights for its own rows, and sends none of them.

The upper variable is λ = (λ_1, …, λ_n), agent i's part belonging to its own training rows. To the
letter every agent has a copy of all of it: 50,000 numbers in every message. But no other agent's loss
depends on λ_i; its hypergradient is −J_i z with z = H⁻¹ mean_j ∇_y f_j, of which agent i knows J_i, and
the vector z, which the HIGP oracle finds by gossip. So agent i can do every update of λ_i by itself,
with the gradient that the network's mean of all copies would take: it is the same algorithm, with the
one copy of λ_i that matters kept, and the others, which would only lag behind it, left out
(`hypergossip.parts`). Nothing of x is left to mix: DBO and DBOGT are then the same.

The lower level is the heterogeneous branch, τ and z by tracked gossip: the model is one for all agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..algorithms import DBO, DBOGT, Algorithm
from ..hypergradient import HIGP
from ..topology import complete, ring
from .base import Case, Experiment, Outcomes, Verdict
from .corruption import Corruption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RING, UNTRACKED, ALONE, UNWEIGHTED = "DBOGT over the ring", "DBO over the ring", "one machine", "no cleaning"
_NO_STEP = 1e-30
_CLOSE, _AUROC, _ROUNDING = 0.01, 0.97, 1e-3


@dataclass(frozen=True, kw_only=True)
class Cleaning(Experiment):
    """The task's steps and sizes."""

    corruption: Corruption
    outer_step: float = 2e4
    """η_x, on means over all rows of all agents."""
    inner_step: float = 0.1
    """η_y and γ."""
    inner_iterations: int = 10
    """T."""
    oracle_iterations: int = 20
    """N."""
    steps: int = 200
    """K."""
    self_weight: float = 0.5
    """The ring's w_ii."""

    title: ClassVar[str] = "Hyper-cleaning over a ring, every agent with weights for its own rows"
    choices: ClassVar[tuple[str, ...]] = (
        "λ never leaves its agent; z = H⁻¹ mean ∇_y f, which every update of λ needs, is found by gossip (HIGP).",
        "η_x = 20,000 on mean losses, with which one machine does well; η_y = γ = 0.1; λ = τ = 0 at the start.",
        "One machine runs the same algorithm on all rows; 'no cleaning' leaves every weight at one half.",
    )

    @classmethod
    def full(cls, *, seed: int = 0, folder: Path | None = None) -> Cleaning:
        return cls(corruption=Corruption(seed=seed, folder=folder), seed=seed)

    @classmethod
    def small(cls, *, seed: int = 0, **settings: Any) -> Cleaning:
        corruption = Corruption(dataset="digits", agents=5, training=1000, validation=200, seed=seed)
        return cls(**{"corruption": corruption, "outer_step": 500.0, "steps": 60, "seed": seed, **settings})

    def cases(self) -> dict[str, Case]:
        over_ring = (self.corruption.own(), ring(self.corruption.agents, self_weight=self.self_weight))
        alone = (replace(self.corruption, agents=1).own(), complete(1))
        metrics = [self.corruption.test_accuracy]
        runs = {
            RING: (DBOGT, self.outer_step, over_ring),
            UNTRACKED: (DBO, self.outer_step, over_ring),
            ALONE: (DBOGT, self.outer_step, alone),
            UNWEIGHTED: (DBOGT, _NO_STEP, over_ring),
        }
        return {
            name: Case(self._algorithm(kind, step), problem, network, self.steps, metrics, seed=self.seed)
            for name, (kind, step, (problem, network)) in runs.items()
        }

    def _algorithm(self, kind: type[DBO] | type[DBOGT], step: float) -> Algorithm:
        oracle = HIGP(step=self.inner_step, iterations=self.oracle_iterations)
        return kind(
            outer_step=step, inner_step=self.inner_step, inner_iterations=self.inner_iterations, hypergradient=oracle
        )

    def verdicts(self, outcomes: Outcomes) -> list[Verdict]:
        if diverged := ", ".join(f"{name} {one.remark}" for name, one in outcomes.items() if one.diverged):
            return [Verdict("Cleaning without sending weights", None, diverged)]
        end = {name: float(one.trace.metrics["test_accuracy"][-1]) for name, one in outcomes.items()}
        accuracies = ", ".join(f"{value:.3f} ({name})" for name, value in end.items())
        x, other = (np.asarray(outcomes[name].trace.x) for name in (RING, UNTRACKED))
        apart = float(np.abs(x - other).max() / np.abs(x).max())
        found = self.corruption.found(outcomes[RING].trace)
        return [
            Verdict(
                f"The ring is within {_CLOSE:g} of one machine with all rows, and better than no cleaning",
                end[RING] > max(end[ALONE] - _CLOSE, end[UNWEIGHTED]),
                f"the test accuracies after {self.steps} iterations are {accuracies}",
            ),
            Verdict(
                f"σ(λ) finds the mislabelled rows with an AUROC of {_AUROC:g}",
                found["AUROC"] >= _AUROC,
                _in_words(found),
            ),
            Verdict(
                "With no λ sent, DBO and DBOGT are the same",
                apart < _ROUNDING,
                f"the largest difference in λ is {apart:.1g} of the largest λ, in single precision",
            ),
        ]

    def figure(self, outcomes: Outcomes) -> Figure:
        from ..report.figures import lines

        first = self.steps // 20  # before, every curve climbs from guessing
        metrics = {name: one.trace.metrics for name, one in outcomes.items()}
        curves = {name: (m["step"][first:], m["test_accuracy"][first:]) for name, m in metrics.items()}
        return lines({"": curves}, "test accuracy")


def _in_words(found: Mapping[str, float]) -> str:
    return "it gives " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
