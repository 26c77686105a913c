"""What other readings of the synthetic experiment's text give, beside the preset.

    python benchmarks/synthetic_choices.py

Each row changes one choice of `hypergossip.experiments.synthetic` and says where log₁₀‖∇Φ‖ ends after
100 outer iterations, or where the run diverged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np

import hypergossip as hg
from hypergossip.experiments.base import Case, carry_out
from hypergossip.experiments.synthetic import DEFAULT, LETTER, Synthetic


@dataclass(frozen=True)
class Means:
    """A loss that takes means where the paper has sums: each of them divided by its number of examples."""

    loss: Callable
    examples: int

    def __call__(self, x, y, batch):
        return self.loss(x, y, batch) / self.examples


def main() -> None:
    """Prints the table."""
    jax.config.update("jax_enable_x64", True)
    variants: dict[str, tuple[Synthetic, dict]] = {
        "the preset": (DEFAULT, {}),
        "100 + 100 examples": (replace(DEFAULT, training=100, validation=100), {}),
        "2,000 + 2,000 examples": (replace(DEFAULT, training=2000, validation=2000), {}),
        "nothing carried on": (DEFAULT, {"carry": False}),
        "JHIP carried on in DSBO too": (DEFAULT, {"carry": True}),
        "batches of 20": (replace(DEFAULT, batch_size=20), {}),
        "batches of 500": (replace(DEFAULT, batch_size=500), {}),
        "another seed": (replace(DEFAULT, seed=1), {}),
        "standard deviation i": (LETTER, {}),
        "standard deviation i, 20 + 20 examples": (replace(LETTER, training=20, validation=20), {}),
    }
    print("| choice | start | DBO | DBOGT | DSBO |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (experiment, changes) in variants.items():
        _row(name, experiment, experiment.problem(), changes)
    _row("standard deviation i, means for sums", LETTER, _means(LETTER), {})


def _row(name: str, experiment: Synthetic, problem: hg.Problem, changes: dict) -> None:
    cells, start = [], ""
    for algorithm in experiment.algorithms().values():
        changed = replace(algorithm, **changes)
        case = Case(changed, problem, experiment.topology(), 100, [hg.hypergradient_norm()], record_every=100)
        outcome = carry_out(case)
        norms = np.log10(outcome.trace.metrics["hypergradient_norm"])
        start = f"{norms[0]:.3f}"
        cells.append(outcome.remark or f"{norms[-1]:.3f}")
    print(f"| {name} | {start} | {' | '.join(cells)} |", flush=True)


def _means(experiment: Synthetic) -> hg.Problem:
    sums = experiment.problem()
    return hg.Problem(
        Means(sums.upper, experiment.validation),
        Means(sums.lower, experiment.training),
        upper_data=sums.upper_data,
        lower_data=sums.lower_data,
        x0=sums.x0,
        y0=sums.y0,
    )


if __name__ == "__main__":
    main()
