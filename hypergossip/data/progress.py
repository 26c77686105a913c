"""How far a download is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there, and all of its bytes."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The function given; otherwise a bar, where rich is installed and somebody watches."""
    if progress is not None:
        yield progress
    elif sys.stderr.isatty() and importlib.util.find_spec("rich"):
        with _bar() as update:
            yield update
    else:
        yield lambda name, done, total: None


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda name, done, total: bars.update(task, description=name, completed=done, total=total)
