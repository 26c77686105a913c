"""`hypergossip reproduce`: the paper's experiments, their figures, and what holds of their claims."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .terminal import carry_out_all, check_count, check_output, end

if TYPE_CHECKING:
    from rich.console import Console


def reproduce(
    what: Literal["fig1a", "fig1b", "fig2a", "fig2b", "cleaning", "rates", "all"],
    /,
    output: Path = Path("reproduction"),
    data: Path | None = None,
    seed: int = 0,
    small: bool = False,
    quiet: bool = False,
) -> None:
    """An experiment of the paper: runs it, draws its figure, and says of each claim whether it holds here.

    fig1a is synthetic, fig1b 20 Newsgroups, fig2a and fig2b MNIST hyper-cleaning with short and with
    long steps; cleaning is the same task with weights that are never sent; rates measures the slopes
    of the three theorems.

    Args:
        what: Which of them, or all.
        output: The folder for the figures, the numbers and the page about them.
        data: Where the data are; else HYPERGOSSIP_DATA, the user's cache and the public mirrors.
        seed: Of the data, their split and all draws.
        small: On little data that needs no download, for a run of seconds.
        quiet: Print nothing but the paths of what was written.
    """
    check_count("--seed", seed, 0)
    check_output(output)
    from rich.console import Console

    from ..data import DataUnavailable
    from ..errors import DataDamaged
    from ..experiments.catalogue import NAMES
    from ..experiments.results import check_page

    for module in ("hypergossip.report.figures", "sklearn.metrics"):  # what is missing is said now, not after the runs
        import_module(module)
    console = Console(quiet=quiet, highlight=False)
    try:
        check_page(output)
        for name in NAMES if what == "all" else (what,):
            _reproduce(name, output, data, seed, small, console)
    except (DataUnavailable, DataDamaged, OSError) as error:
        end(1, str(error))


def _reproduce(name: str, output: Path, data: Path | None, seed: int, small: bool, console: Console) -> None:
    import jax

    from ..experiments.catalogue import experiment
    from ..experiments.results import SMALL, write

    began, chosen = time.perf_counter(), experiment(name, small=small, folder=data, seed=seed)
    with jax.enable_x64(chosen.double):
        console.print(f"{name}: {chosen.title}")
        outcomes = carry_out_all(chosen.cases(), console)
        verdicts = chosen.verdicts(outcomes)
        for verdict in verdicts:
            console.print(f"  {verdict.claim}: [bold]{verdict.word}[/bold]", f"because {verdict.because}.", sep=", ")
        where = " at full size (this was run in small)" if small else ""
        console.print(f"What the text leaves open, and what was taken{where}:", *chosen.choices, sep="\n  - ")
        stem = f"{name}{SMALL}" if small else name
        for path in write(output, stem, chosen, outcomes, verdicts, time.perf_counter() - began):
            print(path)
