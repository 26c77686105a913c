"""Figures of runs for papers and talks, by matplotlib's objects alone: no pyplot, no global state."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

from ..trace import Trace
from . import COLOURS, in_words, is_positive, replace_file, without_zeros

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LEAST_DECADES = 0.1
"""What the height of a panel of log₁₀‖∇Φ‖ spans at least."""
_INK, _FAINT = "#262626", "#d9d9d9"


def curves(traces: Mapping[str, Trace], names: Sequence[str] | None = None) -> Figure:
    """Metrics against the outer iteration: a panel for each, a line for each trace.

    `names` chooses the metrics; without it, all that a person looks at (`trace.plotted()`). A log
    scale where the values are positive, a legend where the traces have names.
    """
    chosen = _chosen(traces, names)
    columns = min(2, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = Figure(figsize=(6.4 * columns, 4.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, name in zip(panels, chosen, strict=False):
        _panel(panel, {label: trace for label, trace in traces.items() if name in trace.metrics}, name)
    for unused in panels[len(chosen) :]:
        unused.remove()
    if any(traces):
        lines = {label: line for panel in panels[: len(chosen)] for line in panel.lines if (label := line.get_gid())}
        _legend(figure, lines, loc="outside upper center", ncols=min(4, len(lines)))
    return figure


def gradient_norm(
    panels: Mapping[str, Mapping[str, Trace]], references: Mapping[str, np.ndarray] | None = None
) -> Figure:
    """log₁₀‖∇Φ(x̄)‖ against the outer iteration, the form of the paper's Figures 1a and 2.

    `panels`: by title, and in each of them the traces by name. `references`: ‖∇Φ‖ of something that
    is no run, one value per iteration, such as exact gradient descent.
    """
    series = {
        title: {
            name: (trace.metrics["step"], np.log10(without_zeros(trace.metrics["hypergradient_norm"])))
            for name, trace in traces.items()
        }
        for title, traces in panels.items()
    }
    logs = {name: np.log10(without_zeros(values)) for name, values in (references or {}).items()}
    figure = lines(series, r"$\log_{10}\,\Vert\nabla\Phi(\bar{x})\Vert$", references=logs)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        if high - low < _LEAST_DECADES:  # differences that nobody should see are not blown up to the full height
            axes.set_ylim((low + high - _LEAST_DECADES) / 2, (low + high + _LEAST_DECADES) / 2)
    return figure


Series = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Lines by name: (where, what)."""


def lines(
    panels: Mapping[str, Series],
    ylabel: str,
    xlabel: str = "outer iteration",
    references: Mapping[str, np.ndarray] | None = None,
    log: bool = False,
) -> Figure:
    """Panels side by side on one scale, each with a legend of its own; `log` makes both axes logarithmic.

    `references` are drawn in every panel as grey dotted lines, one value per iteration.
    """
    width = 8 if len(panels) == 1 else 6.2 * len(panels)
    figure = Figure(figsize=(width, 5.2), layout="constrained")
    row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, series) in zip(row, panels.items(), strict=True):
        drawn = {}
        for name, values in (references or {}).items():
            (drawn[name],) = axes.plot(np.arange(len(values)), values, color="#7a7a7a", lw=1.6, ls=(0, (1, 1)))
        for i, (name, (where, values)) in enumerate(series.items()):
            drawn[name] = _line(axes, i, name, where, values)
        _dress(axes, ylabel if axes is row[0] else "", xlabel)
        if log:
            axes.set(xscale="log", yscale="log")
            axes.xaxis.set(major_locator=LogLocator(base=2, numticks=20), major_formatter=ScalarFormatter())
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_title(title, fontsize=14, color=_INK, parse_math=False)
        named = {name: line for name, line in drawn.items() if name}
        if len(panels) > 1:
            _legend(axes, named)
        else:
            _legend(figure, named, loc="outside upper center", ncols=2 if len(named) > 3 else len(named))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes the figure as an image of the kind that the path's ending names, whole or not at all.

    The same figure gives the same file: no date in it, and no identifiers drawn at random.
    """
    buffer = io.BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "hypergossip"}):
        figure.savefig(buffer, format=path.suffix.lstrip("."), dpi=160, metadata=metadata)
    replace_file(path, buffer.getvalue())


def _chosen(traces: Mapping[str, Trace], names: Sequence[str] | None) -> list[str]:
    if not traces:
        raise ValueError("There are no traces to plot; expected at least one.")
    possible = list(dict.fromkeys(name for trace in traces.values() for name in trace.plotted()))
    if names is None:
        return possible
    recorded = {name for trace in traces.values() for name in trace.metrics} - {"step"}
    for name in names:
        if name not in recorded:
            raise ValueError(f"Unknown metric {name!r}; possible are {', '.join(possible)}.")
    if not names:
        raise ValueError(f"No metric is named; possible are {', '.join(possible)}.")
    return list(names)


def _panel(axes: Axes, traces: Mapping[str, Trace], name: str) -> None:
    log = is_positive(trace.metrics[name] for trace in traces.values())
    for i, (label, trace) in enumerate(traces.items()):
        values = trace.metrics[name]
        _line(axes, i, label, trace.metrics["step"], without_zeros(values) if log else values)
    _dress(axes, "")
    if log:
        _log_scale(axes, [trace.metrics[name] for trace in traces.values()])
    axes.set_title(in_words(name), fontsize=14, color=_INK, parse_math=False)


def _log_scale(axes: Axes, series: list[np.ndarray]) -> None:
    """A log scale; within half a decade, where there is no room for powers of ten, with ticks as on a linear one."""
    axes.set_yscale("log")
    values = np.concatenate([without_zeros(one) for one in series])
    if np.nanmax(values) < 3 * np.nanmin(values):
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())


def _line(axes: Axes, i: int, label: str, steps: np.ndarray, values: np.ndarray) -> Line2D:
    """Line i, told from the others by colour, dashes and marker; about eight markers, out of step with each other."""
    every = max(1, len(steps) // 8)
    (line,) = axes.plot(
        steps,
        values,
        color=COLOURS[i % len(COLOURS)],
        ls=_DASHES[i % len(_DASHES)],
        lw=2.4,
        marker=_MARKERS[i % len(_MARKERS)],
        markersize=7,
        markeredgecolor="white",
        markevery=((i * every) // 3 % every, every),
        gid=label,
    )
    return line


def _dress(axes: Axes, ylabel: str, xlabel: str = "outer iteration") -> None:
    axes.set_xlabel(xlabel, fontsize=14, color=_INK)
    axes.set_ylabel(ylabel, fontsize=14, color=_INK)
    axes.tick_params(labelsize=12, colors=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, steps=[1, 2, 5, 10]))
    axes.grid(color=_FAINT, lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(where: Axes | Figure, lines: Mapping[str, Line2D], **placement: Any) -> None:
    """Names as they are: no sign in them hides a line or starts a formula."""
    if lines:
        legend = where.legend(
            list(lines.values()), ["-"] * len(lines), fontsize=13, frameon=False, handlelength=3.2, **placement
        )
        for text, label in zip(legend.get_texts(), lines, strict=True):
            text.set_parse_math(False)
            text.set_text(label)
