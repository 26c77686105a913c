"""A report's interactive charts, by bokeh: every metric against iterations and against bytes sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.embed import components
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Legend, LegendItem, Range
from bokeh.plotting import figure

from ..trace import Trace
from . import COLOURS, byte_unit, in_words, is_positive, without_zeros

_DASHES = ("solid", "dashed", "dotted", "dotdash")
_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star")
_MOST_POINTS = 1000
"""Of one line; longer ones are thinned, so that a report of long runs stays small."""
_LEGEND: dict[str, Any] = {
    "click_policy": "hide",
    "orientation": "horizontal",
    "background_fill_alpha": 0,
    "border_line_color": None,
    "label_text_font_size": "15px",
    "padding": 0,
    "margin": 4,
    "spacing": 18,
    "glyph_width": 34,
    "inactive_fill_alpha": 0,
    "stylesheets": [".bk-label { color: var(--ink) !important; } .bk-item.bk-inactive { opacity: 0.35; }"],
}
_FIRST = "hypergradient_norm"


def charts(traces: Mapping[str, Trace]) -> tuple[str, list[dict[str, Any]]]:
    """(the script that draws them, for every metric its heading and the two charts' elements)."""
    names = list(dict.fromkeys(name for trace in traces.values() for name in trace.plotted()))
    names.sort(key=lambda name: name != _FIRST)
    unit, scale = byte_unit(max(_sent(trace)[-1] for trace in traces.values()))
    sources = [_source(label, trace, names, traces, scale) for label, trace in traces.items()]
    figures: dict[str, Any] = {}
    for m, name in enumerate(names):
        log = _is_log(traces, name)
        lines = [(i, label) for i, (label, trace) in enumerate(traces.items()) if name in trace.metrics]
        by_steps = _chart(m, lines, sources, "step", "outer iteration", log, None)
        by_bytes = _chart(m, lines, sources, "sent", f"sent ({unit})", log, by_steps.y_range)
        figures |= {f"{m} step": by_steps, f"{m} sent": by_bytes}
    script, divs = components(figures, wrap_script=False)
    against = {"step": "against outer iterations", "sent": "against bytes sent"}
    return script, [
        {
            "heading": in_words(name),
            "pair": [{"against": text, "div": _Element(divs[f"{m} {x}"])} for x, text in against.items()],
        }
        for m, name in enumerate(names)
    ]


class _Element(str):
    """Markup of bokeh's own making, which holds nothing but ids."""

    def __html__(self) -> str:
        return self


def _sent(trace: Trace) -> np.ndarray:
    return trace.metrics["step"] * float(trace.communication.bytes)


def _is_log(traces: Mapping[str, Trace], name: str) -> bool:
    return is_positive(trace.metrics[name] for trace in traces.values() if name in trace.metrics)


def _source(label: str, trace: Trace, names: list[str], traces: Mapping[str, Trace], scale: int) -> ColumnDataSource:
    """A trace's columns: "step", "sent", and "m0", "m1", … for the metrics, whose names may be anything."""
    records = len(trace.metrics["step"])
    kept = (
        np.unique(np.linspace(0, records - 1, _MOST_POINTS).astype(int))
        if records > _MOST_POINTS
        else np.arange(records)
    )
    columns = {"step": trace.metrics["step"][kept], "sent": _sent(trace)[kept] / scale}
    for m, name in enumerate(names):
        if name in trace.metrics:
            values = trace.metrics[name][kept]
            columns[f"m{m}"] = without_zeros(values) if _is_log(traces, name) else values
    columns["label"] = [label] * len(kept)
    return ColumnDataSource(columns)


def _chart(
    m: int,
    lines: list[tuple[int, str]],
    sources: list[ColumnDataSource],
    x: str,
    x_label: str,
    log: bool,
    y_range: Range | None,
) -> figure:
    chart = figure(
        height=330,
        sizing_mode="stretch_width",
        y_axis_type="log" if log else "linear",
        tools="pan,box_zoom,wheel_zoom,reset,save",
        active_drag=None,  # a finger on a chart scrolls the page
        active_scroll=None,
        toolbar_location="below",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
    )
    if y_range is not None:
        chart.y_range = y_range
    chart.toolbar.logo = None
    chart.toolbar.autohide = True
    items = [(label, _line(chart, i, label, sources[i], x, f"m{m}")) for i, label in lines]
    _legend(chart, items)
    hover = [("run", "@label")] if any(label for _, label in lines) else []
    hover += [("iteration", "@step"), ("value", f"@m{m}{{%0.4e}}")]
    dots = [renderers[1] for _, renderers in items]
    chart.add_tools(HoverTool(renderers=dots, tooltips=hover, formatters={f"@m{m}": "printf"}, mode="mouse"))
    _dress(chart, x_label)
    if log:
        _ticks(chart, np.concatenate([sources[i].data[f"m{m}"] for i, _ in lines]))
    return chart


def _line(chart: figure, i: int, label: str, source: ColumnDataSource, x: str, y: str) -> list[Any]:
    """A line with marks on it: sparse ones to tell lines apart, and invisible ones to point at."""
    colour = COLOURS[i % len(COLOURS)]
    line = chart.line(x, y, source=source, line_color=colour, line_width=2.5, line_dash=_DASHES[i % len(_DASHES)])
    dots = chart.scatter(x, y, source=source, size=10, color=colour, alpha=0, hover_alpha=0.7)
    marks = chart.scatter(
        x,
        y,
        source=_sparse(source, i),
        size=8,
        marker=_MARKERS[i % len(_MARKERS)],
        fill_color=colour,
        line_color=None,
    )
    for renderer in (line, dots, marks):
        renderer.tags = [f"line {i}"]
        renderer.nonselection_glyph = None
    return [line, dots, marks]


def _sparse(source: ColumnDataSource, i: int) -> ColumnDataSource:
    """About eight of a line's points, out of step with the other lines'."""
    points = len(source.data["step"])
    every = max(1, points // 8)
    return ColumnDataSource({name: values[i * every // 3 % every :: every] for name, values in source.data.items()})


def _legend(chart: figure, items: list[tuple[str, list[Any]]]) -> None:
    if not any(label for label, _ in items):
        return
    entries = [LegendItem(label=value(_plain(label)), renderers=renderers) for label, renderers in items]
    chart.add_layout(Legend(items=entries, ncols=min(3, len(items)), **_LEGEND), "above")


def _plain(label: str) -> str:
    """The label at a length for a legend, without the signs that would make bokeh fetch a typesetter of formulas."""
    short = label if len(label) <= 32 else label[:31] + "…"
    return short.replace("$$", "$ $").replace("\\[", "\\ [").replace("\\(", "\\ (")


def _ticks(chart: figure, values: np.ndarray) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, for ranges of about a decade: bokeh's own stand evenly there."""
    values = values[np.isfinite(values)]
    low, high = np.log10(values.min()), np.log10(values.max())
    if 0.5 < high - low < 2.2:
        powers = np.arange(np.floor(low), np.ceil(high) + 1)
        ticks = [float(f"{mantissa}e{power:.0f}") for power in powers for mantissa in (1, 2, 5)]
        chart.yaxis.ticker = FixedTicker(ticks=ticks)
        chart.yaxis.major_label_overrides = {tick: f"{tick:g}" for tick in ticks}


def _dress(chart: figure, x_label: str) -> None:
    chart.xaxis.axis_label = x_label
    for axis in (chart.xaxis, chart.yaxis):
        axis.axis_label_text_font_size = "15px"
        axis.axis_label_text_font_style = "normal"
        axis.major_label_text_font_size = "13px"
        axis.minor_tick_line_color = None
