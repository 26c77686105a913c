"""The experiments by the names under which they are reproduced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .base import Experiment
from .cleaning import Cleaning
from .hypercleaning import HyperCleaning
from .newsgroups import Newsgroups
from .rates import Rates
from .synthetic import Synthetic

NAMES = ("fig1a", "fig1b", "fig2a", "fig2b", "cleaning", "rates")


def experiment(name: str, *, small: bool = False, folder: Path | None = None, seed: int = 0) -> Experiment:
    """The experiment of that name, at full size or in small; `folder` is where its data may lie."""
    if name not in NAMES:
        raise ValueError(f"Unknown experiment {name!r}; possible are {', '.join(NAMES)}.")
    full, in_small = _makers(folder, seed)[name]
    return in_small() if small else full()


def _makers(folder: Path | None, seed: int) -> dict[str, tuple[Callable[[], Experiment], Callable[[], Experiment]]]:
    real = {"seed": seed, "folder": folder}
    return {
        "fig1a": (lambda: Synthetic(seed=seed, letter=True), lambda: Synthetic.small(seed=seed, letter=True)),
        "fig1b": (lambda: Newsgroups(**real), lambda: Newsgroups.small(seed=seed)),
        "fig2a": (lambda: HyperCleaning.short_steps(**real), lambda: HyperCleaning.small(seed=seed, long=False)),
        "fig2b": (lambda: HyperCleaning.long_steps(**real), lambda: HyperCleaning.small(seed=seed, long=True)),
        "cleaning": (lambda: Cleaning.full(**real), lambda: Cleaning.small(seed=seed)),
        "rates": (lambda: Rates(seed=seed), lambda: Rates.small(seed=seed)),
    }
