"""The command line: one function for each command; its parameters are the options.

What only commands need (tyro, rich, matplotlib, bokeh) is imported inside them, so that the library
works without.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from .algorithms import Algorithm
    from .errors import Diverged
    from .experiments.synthetic import Synthetic
    from .problem import Problem
    from .trace import Trace

_EXTRAS = ("tyro", "rich", "matplotlib", "bokeh", "jinja2")


def main() -> None:
    """Runs the command that the command line names."""
    _forgive_terminals_without_unicode()
    try:
        from tyro.conf import FlagCreatePairsOff
        from tyro.extras import SubcommandApp

        app = SubcommandApp()
        for command in (demo,):
            app.command(command)
        description = "Bilevel optimisation over a network without a server."
        app.cli(prog="hypergossip", description=description, config=(FlagCreatePairsOff,))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _end(2, f"This command needs {package}, which is not installed: pip install 'hypergossip[cli,report]'")
    except KeyboardInterrupt:
        _end(130, "Interrupted.")


def demo(
    output: Path = Path("demo"),
    seed: int = 0,
    steps: int = 100,
    quiet: bool = False,
    small: bool = False,
    letter: bool = False,
) -> None:
    """The paper's synthetic experiment: DBO, DBOGT and DSBO on a ring of 20 agents.

    Prints a table, and writes a figure and a report.

    Args:
        output: The folder for synthetic.png and report.html.
        seed: Of the data and of all draws.
        steps: Outer iterations.
        quiet: Print nothing but the paths of what was written.
        small: A few agents with little data, for a run of seconds.
        letter: The paper's figures to the letter, which diverge: say where, and write nothing.
    """
    _check_options(output, seed, steps)
    import jax
    from rich.console import Console

    from .experiments.synthetic import DEFAULT, SMALL

    jax.config.update("jax_enable_x64", True)
    experiment = dataclasses.replace(SMALL if small else DEFAULT, seed=seed, spread="i" if letter else "i/n")
    if letter:
        _show_letter(experiment, steps, Console(highlight=False), quiet)
        return
    for module in (".report.figures", ".report.html"):  # what is missing is said now, not after the runs
        import_module(module, __package__)
    console = Console(quiet=quiet, highlight=False)
    console.print(_opening(experiment, steps))
    problem = experiment.problem()
    runs = _run_all(experiment, problem, steps, console)
    exact = experiment.exact_descent(problem, steps)
    sentences = _findings(runs, exact)
    console.print(_table(runs))
    console.print(*sentences)
    for path in _write(output, experiment, steps, runs, exact, sentences):
        print(path)


@dataclasses.dataclass(frozen=True)
class _Run:
    """What a run gave, ended or not."""

    trace: Trace
    diverged: Diverged | None = None

    @property
    def remark(self) -> str:
        if self.diverged:
            return f"diverged in outer iteration {self.diverged.iteration}"
        failed = int((self.trace.metrics["hypergradient_norm.converged"] < 1).sum())
        return f"exact solves failed at {failed} records" if failed else ""


def _run_all(experiment: Synthetic, problem: Problem, steps: int, console: Console) -> dict[str, _Run]:
    with _progress(console) as progress:
        return {
            name: _run(name, algorithm, experiment, problem, steps, progress)
            for name, algorithm in experiment.algorithms().items()
        }


def _run(
    name: str, algorithm: Algorithm, experiment: Synthetic, problem: Problem, steps: int, progress: Progress
) -> _Run:
    from .errors import Diverged, UnconvergedWarning
    from .metrics import hypergradient_norm
    from .run import run

    task = progress.add_task(name, total=None, now="compiling")

    def show(state: Any) -> None:
        norm = state.metrics["hypergradient_norm"][-1]
        progress.update(task, total=steps, completed=state.step, now=f"‖∇Φ‖ {norm:.4g}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnconvergedWarning)  # the table says so
        try:
            metrics = [hypergradient_norm()]
            trace = run(
                algorithm, problem, experiment.topology(), steps, metrics=metrics, seed=experiment.seed, callback=show
            )
        except Diverged as diverged:
            progress.update(task, total=steps, completed=diverged.iteration, now="diverged")
            return _Run(cast("Trace", diverged.trace), diverged)
    return _Run(trace)


def _progress(console: Console) -> Progress:
    """Bars with the current value and the time left; nothing where nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]:<14}"),
        TimeRemainingColumn(compact=True),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or console.quiet)


def _table(runs: Mapping[str, _Run]) -> Table:
    from rich import box
    from rich.table import Table

    from .report import human_bytes

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    for head in ("‖∇Φ‖ start", "end", "log10", "consensus", "sent", "run", "compile"):
        table.add_column(head, justify="right", no_wrap=True)
    remarked = any(run.remark for run in runs.values())
    if remarked:
        table.add_column("", style="bold")
    for name, run in runs.items():
        metrics, seconds = run.trace.metrics, run.trace.seconds
        norms = metrics["hypergradient_norm"]
        sent = int(metrics["step"][-1]) * run.trace.communication.bytes
        cells = [f"{norms[0]:.4g}", f"{norms[-1]:.4g}", f"{math.log10(norms[-1]):.3f}"]
        cells += [f"{metrics['consensus'][-1]:.3g}", human_bytes(sent)]
        cells += [f"{seconds['run']:.1f} s", f"{seconds['compile']:.1f} s"]
        table.add_row(name, *cells, *([run.remark] if remarked else []))
    return table


def _write(
    output: Path,
    experiment: Synthetic,
    steps: int,
    runs: Mapping[str, _Run],
    exact: np.ndarray,
    sentences: Sequence[str],
) -> tuple[Path, Path]:
    """The figure and the report, in the folder."""
    from .report import figures, html

    traces = {name: run.trace for name, run in runs.items()}
    image = output / "synthetic.png"
    figures.save(figures.gradient_norm(traces, exact), image)
    report = html.write_report(
        output / "report.html",
        "Synthetic logistic regression over a ring",
        traces,
        experiment.topology(),
        _configuration(experiment, steps),
        summary=[_opening(experiment, steps), *sentences],
        remarks={name: run.remark for name, run in runs.items() if run.diverged},
    )
    return image, report


def _findings(runs: Mapping[str, _Run], exact: np.ndarray) -> list[str]:
    from .experiments.synthetic import findings

    diverged = {name: run.diverged.iteration for name, run in runs.items() if run.diverged}
    return findings({name: run.trace for name, run in runs.items()}, exact, diverged)


def _opening(experiment: Synthetic, steps: int) -> str:
    e = experiment
    return (
        f"{e.agents} agents on a ring, each with {e.training} training and {e.validation} validation examples of "
        f"{e.dimension} features of standard deviation {e.spread}; {steps} outer iterations."
    )


def _configuration(experiment: Synthetic, steps: int) -> dict[str, object]:
    algorithms = {name: _settings(algorithm) for name, algorithm in experiment.algorithms().items()}
    return {"outer iterations": steps, "Experiment": dataclasses.asdict(experiment), **algorithms}


def _settings(module: Any, prefix: str = "") -> dict[str, object]:
    """Every field of an algorithm, those of its oracle included."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(module):
        value, name = getattr(module, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            found |= {name: type(value).__name__, **_settings(value, f"{name}.")}
        else:
            found[name] = value
    return found


def _show_letter(experiment: Synthetic, steps: int, console: Console, quiet: bool) -> None:
    """Where each algorithm breaks down with features of standard deviation i."""
    from rich.console import Console

    console.print("The paper's figures to the letter:", _opening(experiment, steps))
    runs = _run_all(experiment, experiment.problem(), steps, Console(quiet=quiet))
    for name, run in runs.items():
        if run.diverged:
            where = f"({run.diverged.variable} at agent {run.diverged.agent} first)"
            console.print(f"  {name:<6} diverged in outer iteration {run.diverged.iteration} {where}")
        else:
            console.print(f"  {name:<6} reached outer iteration {steps}")
    if all(run.diverged for run in runs.values()):
        console.print(
            "Steps of 0.01 are too long for sums of examples with features this large. The default preset takes "
            "standard deviation i/n, and everything else as printed."
        )


def _check_options(output: Path, seed: int, steps: int) -> None:
    if steps < 1:
        _end(2, f"--steps {steps}: expected at least 1.")
    if seed < 0:
        _end(2, f"--seed {seed}: expected 0 or more.")
    if output.exists() and not output.is_dir():
        _end(2, f"--output {output} is a file; expected a folder, or a name for a new one.")


def _forgive_terminals_without_unicode() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _end(status: int, message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
