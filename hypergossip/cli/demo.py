"""`hypergossip demo`: the paper's synthetic experiment, with a table, a figure and a report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .terminal import carry_out_all, check_count, check_output

if TYPE_CHECKING:
    from rich.table import Table

    from ..experiments.base import Outcome
    from ..experiments.synthetic import Synthetic


def demo(
    output: Path = Path("demo"),
    seed: int = 0,
    steps: int = 100,
    quiet: bool = False,
    small: bool = False,
    letter: bool = False,
) -> None:
    """The paper's synthetic experiment: DBO, DBOGT and DSBO on a ring of 20 agents.

    Prints a table and what the numbers say of the paper's claims, and writes a figure and a report.

    Args:
        output: The folder for synthetic.png and report.html.
        seed: Of the data and of all draws.
        steps: Outer iterations.
        quiet: Print nothing but the paths of what was written.
        small: A few agents with little data, for a run of seconds.
        letter: Also the paper's figures to the letter, which diverge.
    """
    check_count("--steps", steps, 1)
    check_count("--seed", seed, 0)
    check_output(output)
    import jax
    from rich.console import Console

    from ..experiments.synthetic import Synthetic

    for module in (".report.figures", ".report.html"):  # what is missing is said now, not after the runs
        import_module(module, "hypergossip")
    settings = {"seed": seed, "steps": steps, "letter": letter}
    experiment = Synthetic.small(**settings) if small else Synthetic(**settings)
    console = Console(quiet=quiet, highlight=False)
    with jax.enable_x64(experiment.double):
        console.print(_opening(experiment))
        outcomes = carry_out_all(experiment.cases(), console)
        verdicts = [f"{verdict}." for verdict in experiment.verdicts(outcomes)]
        outcomes = experiment.drawn(outcomes)
        console.print(_table(outcomes))
        console.print("\n".join(verdicts))
        for path in _write(output, experiment, outcomes, verdicts):
            print(path)


def _table(outcomes: Mapping[str, Outcome]) -> Table:
    from rich import box
    from rich.table import Table

    from ..report import human_bytes

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("", no_wrap=True)
    for head in ("‖∇Φ‖ start", "end", "log10", "consensus", "sent", "run", "compile"):
        table.add_column(head, justify="right", no_wrap=True)
    remarked = any(outcome.remark for outcome in outcomes.values())
    if remarked:
        table.add_column("", style="bold")
    for name, outcome in outcomes.items():
        metrics, seconds = outcome.trace.metrics, outcome.trace.seconds
        norms = metrics["hypergradient_norm"]
        sent = int(metrics["step"][-1]) * outcome.trace.communication.bytes
        cells = [f"{norms[0]:.4g}", f"{norms[-1]:.4g}", f"{math.log10(norms[-1]):.3f}"]
        cells += [f"{metrics['consensus'][-1]:.3g}", human_bytes(sent)]
        cells += [f"{seconds['run']:.1f} s", f"{seconds['compile']:.1f} s"]
        table.add_row(name, *cells, *([outcome.remark] if remarked else []))
    return table


def _write(
    output: Path, experiment: Synthetic, outcomes: Mapping[str, Outcome], verdicts: Sequence[str]
) -> tuple[Path, Path]:
    """The figure and the report, in the folder."""
    from ..report import figures, html

    image = output / "synthetic.png"
    figures.save(experiment.figure(outcomes), image)
    report = html.write_report(
        output / "report.html",
        experiment.title,
        {name: outcome.trace for name, outcome in outcomes.items()},
        experiment.topology(),
        _configuration(experiment),
        summary=[_opening(experiment), *verdicts],
        remarks={name: outcome.remark for name, outcome in outcomes.items() if outcome.diverged},
    )
    return image, report


def _opening(experiment: Synthetic) -> str:
    e = experiment
    return (
        f"{e.agents} agents on a ring, each with {e.training} training and {e.validation} validation examples of "
        f"{e.dimension} features of standard deviation {e.spread}; {e.steps} outer iterations."
    )


def _configuration(experiment: Synthetic) -> dict[str, object]:
    from ..experiments.results import settings

    algorithms = {name: settings(algorithm) for name, algorithm in experiment.algorithms().items()}
    return {"Experiment": dataclasses.asdict(experiment), **algorithms}
