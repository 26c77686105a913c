"""What commands share: how they end, what they refuse, and the bars that show how far they are."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from ..experiments.base import Case, Outcome


def end(status: int, message: str) -> NoReturn:
    """Ends the command with a sentence on standard error."""
    print(message, file=sys.stderr)
    raise SystemExit(status)


def check_output(output: Path) -> None:
    """Refuses, before anything is computed, what cannot hold the results: a file, or a folder closed to writing."""
    if output.exists() and not output.is_dir():
        end(2, f"--output {output} is a file; expected a folder, or a name for a new one.")
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        end(2, f"--output {output} cannot be written to: {error.strerror}; expected a folder of yours.")


def check_count(option: str, value: int, least: int) -> None:
    """Refuses counts below `least`."""
    if value < least:
        end(2, f"{option} {value}: expected {f'at least {least}' if least else '0 or more'}.")


def carry_out_all(cases: Mapping[str, Case], console: Console) -> dict[str, Outcome]:
    """Runs every case, with a bar for each."""
    from ..experiments.base import carry_out

    width = max(map(len, cases), default=0)
    with _bars(console, width) as progress:
        outcomes = {}
        for name, case in cases.items():
            task = progress.add_task(name, total=case.steps, now="compiling")

            def show(state, task=task):
                progress.update(task, completed=state.step, now=_now(state.metrics))

            outcomes[name] = carry_out(case, show)
            progress.update(task, now=outcomes[name].remark or "done")
    return outcomes


def _now(metrics: Mapping) -> str:
    """The current value of what is watched first."""
    shown = {"hypergradient_norm": "‖∇Φ‖", "test_accuracy": "accuracy"}
    for name, words in shown.items():
        if name in metrics:
            return f"{words} {metrics[name][-1]:.4g}"
    return f"consensus {metrics['consensus'][-1]:.3g}"


def _bars(console: Console, width: int) -> Progress:
    """Bars with the current value and the time left; nothing where nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(f"{{task.description:<{width}}}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]:<16}"),
        TimeRemainingColumn(compact=True),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or console.quiet)


def forgive_terminals_without_unicode() -> None:
    """Characters that the terminal cannot show become question marks instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
