"""The paper's hyper-cleaning of MNIST (its Figure 2): a weight per training row, by DBO and DBOGT.

n = 20 agents on a ring with self-weight 0.5, T = 10, K = 30, C = 0.001; the curve is log₁₀‖∇Φ(λ̄)‖.
`corruption.py` has the losses. What the paper leaves open, and what is taken here:

- *Who has λ.* "x̄, the average of the hyperparameters" means that every agent has a copy of all
  λ ∈ R^50,000 and mixes it. That is the form here; `cleaning.py` has the one in which λ stays at home,
  where nothing is left to mix, and DBO and DBOGT are the same algorithm.
- *Homogeneous or not.* JHIP would need a matrix of 7,840 × 50,000 at every agent. So the paper's
  curves must be of the homogeneous branch: AID on each agent's own system, τ never mixed.
- *The data.* 50,000 training images, half of the labels redrawn from all classes, drawn once and
  kept, and 5,000 validation images with their true labels; both dealt out at random.
- *The steps.* Short: 0.1 inside and out, as in the code that the paper follows. The gradient of a
  mean over 50,000 rows moves no weight by more than 1e-5 then, so 1,000 is run beside it. Longer ones:
  the paper names none; here 20,000, with which one machine does well, and ten times that.
- *The start.* λ = 0, τ = 0 at every agent. N = 20 steps of conjugate gradients, warm-started.
- *The judge.* ‖∇Φ(λ̄)‖ of the global problem, exact to a relative residual of 1e-3.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..algorithms import DBO, DBOGT, Algorithm
from ..hypergradient import AID
from ..metrics import hypergradient_norm
from ..topology import ring
from .base import Case, Experiment, Outcomes, Verdict, failures
from .corruption import Corruption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: dict[str, type[DBO] | type[DBOGT]] = {"DBO": DBO, "DBOGT": DBOGT}
_ALIKE, _FASTER = 0.05, 0.5
_STILL = 0.005
"""Decades of ‖∇Φ‖ below which nothing is said to move."""


@dataclass(frozen=True, kw_only=True)
class HyperCleaning(Experiment):
    """The experiment's steps and sizes; see the module for where they come from."""

    corruption: Corruption
    outer_steps: tuple[float, ...]
    """η_x of the runs, each with DBO and with DBOGT."""
    long: bool
    """Whether these are the paper's relatively large steps (Figure 2b) or its small ones (2a)."""
    inner_step: float = 0.1
    """η_y."""
    inner_iterations: int = 10
    """T."""
    oracle_iterations: int = 20
    """N."""
    steps: int = 30
    """K."""
    self_weight: float = 0.5
    """The ring's w_ii."""
    tolerance: float = 1e-3
    """Relative residual of the exact solves behind ‖∇Φ‖."""

    title: ClassVar[str] = "Hyper-cleaning over a ring, a copy of all weights at every agent"
    choices: ClassVar[tuple[str, ...]] = (
        "Every agent has and mixes a copy of all λ, as the paper's average of the hyperparameters implies.",
        "The homogeneous branch (AID on each agent's own system, τ never mixed): JHIP's Z has 7,840 × 50,000 numbers.",
        "Half of the labels redrawn from all classes, once; 5,000 validation images; dealt out at random.",
        "η = 0.1 is that of the code that the paper follows and hardly moves anything here; longer ones are not named.",
    )

    @classmethod
    def short_steps(cls, *, seed: int = 0, folder: Path | None = None) -> HyperCleaning:
        """Figure 2a."""
        return cls(corruption=Corruption(seed=seed, folder=folder), outer_steps=(0.1, 1e3), long=False, seed=seed)

    @classmethod
    def long_steps(cls, *, seed: int = 0, folder: Path | None = None) -> HyperCleaning:
        """Figure 2b."""
        return cls(corruption=Corruption(seed=seed, folder=folder), outer_steps=(2e4, 2e5), long=True, seed=seed)

    @classmethod
    def small(cls, *, long: bool = False, seed: int = 0, **settings: Any) -> HyperCleaning:
        corruption = Corruption(dataset="digits", agents=5, training=1000, validation=200, seed=seed)
        steps = (1e3, 1e4) if long else (0.1, 20.0)
        return cls(**{"corruption": corruption, "outer_steps": steps, "long": long, "seed": seed, **settings})

    def cases(self) -> dict[str, Case]:
        problem = self.corruption.shared()
        network = ring(self.corruption.agents, self_weight=self.self_weight)
        metrics = [hypergradient_norm(tolerance=self.tolerance), self.corruption.test_accuracy]
        return {
            self._name(kind, step): Case(
                self._algorithm(KINDS[kind], step), problem, network, self.steps, metrics, seed=self.seed
            )
            for step in self.outer_steps
            for kind in KINDS
        }

    def _algorithm(self, kind: type[DBO] | type[DBOGT], step: float) -> Algorithm:
        oracle = AID(iterations=self.oracle_iterations)
        return kind(step, self.inner_step, self.inner_iterations, oracle, homogeneous=True)

    @staticmethod
    def _name(kind: str, step: float) -> str:
        return f"{kind}, η = {step:,g}"

    def verdicts(self, outcomes: Outcomes) -> list[Verdict]:
        claim = "DBOGT converges much faster at long steps" if self.long else "DBO and DBOGT are alike at short steps"
        return [self._judged(f"{claim} (η = {step:,g})", outcomes, step) for step in self.outer_steps]

    def _judged(self, claim: str, outcomes: Outcomes, step: float) -> Verdict:
        both = {kind: outcomes[self._name(kind, step)] for kind in KINDS}
        if failed := failures(both):
            return Verdict(claim, None, failed)
        dbo, dbogt = (np.log10(one.trace.metrics["hypergradient_norm"].astype(float)) for one in both.values())
        numbers = f"log10 ‖∇Φ‖ goes from {dbo[0]:.3f} to {dbo[-1]:.3f} (DBO) and {dbogt[-1]:.3f} (DBOGT)"
        holds, because = (_faster if self.long else _alike)(dbo, dbogt)
        return Verdict(claim, holds, f"{numbers}; {because}")

    def figure(self, outcomes: Outcomes) -> Figure:
        from ..report.figures import gradient_norm

        return gradient_norm({"": {name: outcome.trace for name, outcome in outcomes.items()}})


def _alike(dbo: np.ndarray, dbogt: np.ndarray) -> tuple[bool | None, str]:
    """Whether the ends of log₁₀‖∇Φ‖ lie closer than a twentieth of what DBO gains."""
    gain, apart = abs(dbo[0] - dbo[-1]), abs(dbo[-1] - dbogt[-1])
    if max(gain, apart) < _STILL:
        return None, "neither moves by what could be compared"
    return bool(apart < _ALIKE * gain), f"the ends are {apart:.2g} apart, {apart / gain:.0%} of what DBO gains"


def _faster(dbo: np.ndarray, dbogt: np.ndarray) -> tuple[bool | None, str]:
    """Whether DBOGT gets to where DBO ends, and stays there, in half of the iterations."""
    if dbo[-1] >= dbo[0]:
        return None, "DBO does not descend, so there is no pace to compare with"
    last_above = np.flatnonzero(dbogt > dbo[-1]).max(initial=-1)
    steps = len(dbo) - 1
    if last_above == steps:
        return False, "DBOGT does not end below DBO"
    reached = int(last_above) + 1
    return (
        reached <= _FASTER * steps,
        f"DBOGT is where DBO ends, and stays below, from iteration {reached} of {steps}",
    )
