"""The three theorems' rates: how the average of ‖∇Φ(x̄_k)‖², k ≤ K, falls as K grows.

Each theorem ties the steps to K. On random quadratics over a ring, with those steps, the average is
measured for several K; its slope in a log-log plot is to be at least as steep as the theorem's:
−2/3 for DBO, −1 for DBOGT, −1/2 for DSBO, each where agents share one g and where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import stats

from ..algorithms import DBO, DBOGT, DSBO, Algorithm
from ..hypergradient import AID, JHIP, Neumann
from ..metrics import hypergradient_norm
from ..problem import Problem
from ..topology import ring
from .base import Case, Experiment, Outcome, Outcomes, Verdict
from .quadratic import random_quadratics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVATURE = 0.01
"""What finite K bends a log-log line: orders hold in the limit only."""
_SCATTER = 0.05
"""A slope with a larger standard error proves nothing."""


@dataclass(frozen=True)
class Rule:
    """A theorem's steps as functions of K, and the order that it promises for them."""

    algorithm: Callable[[int], Algorithm]
    order: float
    lengths: tuple[int, ...]
    """The K at which it is measured."""
    homogeneous: bool
    repeats: int = 1
    """Seeds for each K: more than one where draws are random."""


LENGTHS = (128, 256, 512, 1024, 2048, 4096)
SHORT = (64, 196, 576)
"""For inner loops of √K iterations."""


def _diminishing(t: Array) -> Float[Array, ""]:
    """O(1/t)."""
    return 2.0 / (jnp.asarray(t, float) + 10.0)


def _deterministic(kind: type[DBO] | type[DBOGT], step: Callable[[int], float], homogeneous: bool) -> Rule:
    oracle = AID(iterations=20) if homogeneous else JHIP(step=0.1, iterations=20)
    settings: dict[str, Any] = {"inner_step": 0.1, "hypergradient": oracle, "homogeneous": homogeneous}
    order = -2 / 3 if kind is DBO else -1.0
    return Rule(lambda K: kind(outer_step=step(K), **settings), order, LENGTHS, homogeneous)


def _homogeneous_dsbo(K: int) -> DSBO:
    scale = (K / 64) ** -0.5
    return DSBO(0.1 * scale, 0.2 * scale, 5, Neumann(step=0.2, terms=14), homogeneous=True, batch_size=2)


def _heterogeneous_dsbo(K: int) -> DSBO:
    oracle = JHIP(step=_diminishing, iterations=int(2 * math.log2(K)))
    return DSBO(0.05 * (K / 64) ** -0.5, _diminishing, int(math.sqrt(K)), oracle, batch_size=2)


RULES: dict[str, Rule] = {
    "DBO, one g": _deterministic(DBO, lambda K: 0.03 * (K / 32) ** (-1 / 3), homogeneous=True),
    "DBO": _deterministic(DBO, lambda K: 0.03 * (K / 32) ** (-1 / 3), homogeneous=False),
    "DBOGT, one g": _deterministic(DBOGT, lambda K: 0.05, homogeneous=True),
    "DBOGT": _deterministic(DBOGT, lambda K: 0.05, homogeneous=False),
    "DSBO, one g": Rule(_homogeneous_dsbo, -1 / 2, LENGTHS, homogeneous=True, repeats=3),
    "DSBO": Rule(_heterogeneous_dsbo, -1 / 2, SHORT, homogeneous=False, repeats=3),
}
"""By theorem and branch.

Where DBO and DBOGT carry their trackers on, T and N are constant: the theorems' Θ(log K) is for starting
anew in every outer iteration. So is M, whose truncation is below the noise. DSBO's T = √K and N = Θ(log K)
where agents differ are as in its theorem.
"""


@dataclass(frozen=True, kw_only=True)
class Rates(Experiment):
    """The measurement on quadratics with 8 agents; see the module."""

    agents: int = 8
    """n."""
    rules: tuple[str, ...] = tuple(RULES)
    """Which of `RULES`."""
    longest: int = 4096
    """K beyond this are left out."""

    title: ClassVar[str] = "The theorems' rates on random quadratics over a ring"
    double: ClassVar[bool] = True
    choices: ClassVar[tuple[str, ...]] = (
        "Quadratics with p = 5 and q = 6 on a ring of 8 with self-weight 0.5; the paper measures no rates.",
        "The theorems give orders, no constants: steps are constants of ours times the stated powers of K.",
        "Trackers are carried on, so T and N are constant for DBO and DBOGT; DSBO has T = √K where agents differ.",
        "A slope counts as steep enough if it is so within two standard errors of the fit, and 0.01 for finite K.",
    )

    @classmethod
    def small(cls, **settings: Any) -> Rates:
        return cls(**{"longest": 512, "rules": ("DBO, one g", "DBOGT, one g"), **settings})

    def cases(self) -> dict[str, Case]:
        return {
            self._name(name, K, repeat): Case(
                rule.algorithm(K),
                self._problems[rule.homogeneous, rule.repeats > 1],
                ring(self.agents, self_weight=0.5),
                K,
                [hypergradient_norm()],
                seed=self.seed + repeat,
            )
            for name, rule, K, repeat in self._grid()
        }

    @cached_property
    def _problems(self) -> dict[tuple[bool, bool], Problem]:
        """By (one g for all, with noise in the rows)."""
        return {
            (homogeneous, noisy): random_quadratics(
                self.agents,
                5,
                6,
                homogeneous=homogeneous,
                examples=8 if noisy else 1,
                spread=0.5 if noisy else 0.0,
                seed=self.seed,
            )
            for homogeneous in (True, False)
            for noisy in (True, False)
        }

    def _grid(self) -> list[tuple[str, Rule, int, int]]:
        chosen = ((name, RULES[name]) for name in self.rules)
        return [
            (name, rule, K, repeat)
            for name, rule in chosen
            for K in rule.lengths
            if self.longest >= K
            for repeat in range(rule.repeats)
        ]

    @staticmethod
    def _name(name: str, K: int, repeat: int) -> str:
        return f"{name}, K = {K}" + (f", again ({repeat})" if repeat else "")

    def _averages(self, outcomes: Outcomes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(K, average of ‖∇Φ‖²) of every run, by rule; NaN for runs that diverged."""
        found: dict[str, list[tuple[int, float]]] = {name: [] for name in self.rules}
        for name, _, K, repeat in self._grid():
            found[name].append((K, _average(outcomes[self._name(name, K, repeat)])))
        return {name: (np.array([K for K, _ in rows]), np.array([a for _, a in rows])) for name, rows in found.items()}

    def verdicts(self, outcomes: Outcomes) -> list[Verdict]:
        verdicts = []
        for name, (lengths, averages) in self._averages(outcomes).items():
            order = RULES[name].order
            claim = (
                f"{name.partition(',')[0]} with {'one g for all' if RULES[name].homogeneous else 'agents that differ'}"
            )
            claim = f"{claim}: the average of ‖∇Φ‖² falls at least like K^{order:.3g}"
            if not np.isfinite(averages).all():
                verdicts.append(Verdict(claim, False, "a run diverged"))
                continue
            slope, error = fit(lengths, averages)
            steep = slope <= order + 2 * error + CURVATURE if error < _SCATTER else None
            verdicts.append(Verdict(claim, steep, f"the slope is {slope:.3f} ± {error:.3f}"))
        return verdicts

    def figure(self, outcomes: Outcomes) -> Figure:
        from ..report.figures import lines

        panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {"one g for all agents": {}, "agents differ": {}}
        for name, (lengths, averages) in self._averages(outcomes).items():
            panel = panels["one g for all agents" if RULES[name].homogeneous else "agents differ"]
            K = np.unique(lengths)
            means = np.array([averages[lengths == length].mean() for length in K])
            panel[f"{name.partition(',')[0]}, slope {fit(lengths, averages)[0]:.2f}"] = (K, means)
        shown = {title: series for title, series in panels.items() if series}
        return lines(shown, r"average of $\Vert\nabla\Phi(\bar{x}_k)\Vert^2$, $k \leq K$", "K", log=True)


def fit(lengths: np.ndarray, averages: np.ndarray) -> tuple[float, float]:
    """(slope, its standard error) of log average against log K."""
    line = stats.linregress(np.log(lengths), np.log(averages))
    return float(line.slope), float(line.stderr)


def _average(outcome: Outcome) -> float:
    return math.nan if outcome.diverged else float(np.mean(outcome.trace.metrics["hypergradient_norm"] ** 2))
