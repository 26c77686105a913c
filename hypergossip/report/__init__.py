"""Figures and reports of runs; what both kinds share stands here and needs nothing installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, told apart by colour-blind people, in the order of their contrast to white and to black."""

_WORDS = {
    "hypergradient_norm": "Gradient norm ‖∇Φ(x̄)‖",
    "hypergradient_norm.residual": "Residual of the exact solves behind ‖∇Φ(x̄)‖",
    "consensus": "Consensus error of x",
    "oracle_residual": "Residual of the hypergradient oracle",
    "upper_loss": "Upper loss at (x̄, ȳ)",
    "lower_residual": "Lower gradient norm at (x̄, ȳ)",
}


def in_words(name: str) -> str:
    """A metric's name as a heading."""
    return _WORDS.get(name, name)


def is_positive(series: Iterable[np.ndarray]) -> bool:
    """Whether a log scale suits all of these: nothing finite is negative, and more than half of it positive.

    A zero here and there, such as the consensus error of a common start, is left out of the line.
    """
    values = np.concatenate([np.asarray(one, float).ravel() for one in series] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    return bool(values.size and (values >= 0).all() and (values > 0).mean() > 0.5)


def without_zeros(values: np.ndarray) -> np.ndarray:
    """The values with gaps where a log scale has no place for them."""
    values = np.asarray(values, float)
    return np.where(values > 0, values, np.nan)


def human_bytes(count: int | float) -> str:
    """1234567 as "1.23 MB"."""
    unit, scale = byte_unit(count)
    return f"{count:.0f} B" if scale == 1 else f"{count / scale:.3g} {unit}"


def byte_unit(most: int | float) -> tuple[str, int]:
    """The unit, and its size in bytes, in which a number of bytes reads well."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if most >= 1000**power:
            return unit, 1000**power
    return "B", 1


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that its name never stands for half of it: a temporary name, then a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
