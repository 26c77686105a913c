"""One HTML file about some runs: opens without a network, for a talk, a phone or a printer."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jinja2
import markupsafe
import numpy as np
from bokeh.resources import Resources

from .. import __version__
from ..metrics import CONVERGED
from ..topology import Topology
from ..trace import Trace
from . import human_bytes, in_words, replace_file
from .charts import charts
from .network import picture

_NORM = "hypergradient_norm"


def write_report(
    path: str | Path,
    title: str,
    traces: Mapping[str, Trace],
    topology: Topology,
    configuration: Mapping[str, object],
    *,
    summary: Sequence[str] = (),
    remarks: Mapping[str, str] | None = None,
) -> Path:
    """Writes a report of runs on one network, and returns its path.

    - `traces`: by name, as the lines and the rows of the table are called.
    - `configuration`: what was run; a value that is a mapping becomes a table of its own.
    - `summary`: sentences for the top of the page.
    - `remarks`: by the traces' names, what a reader must know of a run, such as that it diverged.

    The file holds everything it shows, and forbids the browser to load anything else. All strings
    are text: none of them can become markup. It appears under its name only when it is complete.
    """
    if not traces:
        raise ValueError("There are no traces to report; expected at least one.")
    remarks = remarks or {}
    if unknown := [name for name in remarks if name not in traces]:
        raise ValueError(f"A remark on {unknown[0]!r}, which is none of the traces: {', '.join(traces)}.")
    script, metrics = charts(traces)
    page = _template().render(
        title=title,
        summary=summary,
        warnings=[*(f"{_named(name)}: {text}" for name, text in remarks.items()), *_distrust(traces)],
        table=_table(traces, remarks),
        charts=metrics,
        named=any(traces),
        network=_network(topology),
        graph=picture(topology),
        configuration=_sections({**configuration, "Versions": _versions()}),
        bokeh=_raw(_bokeh()),
        plots=_raw(script),
    )
    path = Path(path)
    replace_file(path, page.encode())
    return path


def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("hypergossip.report", package_path=".")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        "report.html.jinja"
    )


@cache
def _bokeh() -> str:
    """bokeh's core. It would fetch a typesetter for labels with formulas; ours have none, and it gets no address."""
    core = "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)
    return re.sub(r'src="https?://[^"]*"', 'src="data:,"', core)


def _raw(script: str) -> Any:
    """A program for the page. It must not be able to end the element that it stands in."""
    return markupsafe.Markup(script.replace("</script", "<\\/script"))


def _named(label: str) -> str:
    return label or "run"


def _table(traces: Mapping[str, Trace], remarks: Mapping[str, str]) -> dict[str, Any]:
    normed = any(_NORM in trace.metrics for trace in traces.values())
    heads = ["", "iterations"]
    heads += ["‖∇Φ(x̄)‖, start", "‖∇Φ(x̄)‖, end"] if normed else []
    heads += ["consensus error", "sent", "running", "compiling"]
    rows = [
        {"label": _named(label), "cells": _cells(trace, normed), "remark": remarks.get(label, "")}
        for label, trace in traces.items()
    ]
    return {"heads": [*heads, "remark"] if remarks else heads, "rows": rows, "remarks": bool(remarks)}


def _cells(trace: Trace, normed: bool) -> list[str]:
    steps = int(trace.metrics["step"][-1])
    norms = trace.metrics.get(_NORM, np.array([np.nan]))
    return [
        str(steps),
        *([f"{norms[0]:.4g}", f"{norms[-1]:.4g}"] if normed else []),
        f"{trace.metrics['consensus'][-1]:.3g}",
        human_bytes(steps * trace.communication.bytes),
        f"{trace.seconds['run']:.1f} s",
        f"{trace.seconds['compile']:.1f} s",
    ]


def _distrust(traces: Mapping[str, Trace]) -> list[str]:
    """A sentence for every metric whose own solves failed somewhere."""
    said = []
    for label, trace in traces.items():
        for name in (name for name in trace.metrics if name.endswith(CONVERGED)):
            failed = np.flatnonzero(~(trace.metrics[name] >= 1))
            if failed.size:
                of, first = len(trace.metrics[name]), int(trace.metrics["step"][failed[0]])
                said.append(
                    f"{_named(label)}: do not trust “{in_words(name.removesuffix(CONVERGED))}” at {failed.size} of "
                    f"{of} records, the first at outer iteration {first}: the exact solves behind it did not converge."
                )
    return said


def _network(topology: Topology) -> str:
    edges = len(topology.edges) // 2
    return f"{topology.name}: {topology.n} agents, {edges} edges, ρ = {topology.rho:.4g}."


def _sections(configuration: Mapping[str, object]) -> list[dict[str, Any]]:
    """Single values first; then one section for each mapping."""
    single = [(name, str(value)) for name, value in configuration.items() if not isinstance(value, Mapping)]
    sections = [{"heading": "General", "rows": single}] if single else []
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            sections.append({"heading": name, "rows": [(str(key), str(item)) for key, item in value.items()]})
    return sections


def _versions() -> dict[str, str]:
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib", "equinox", "numpy", "bokeh")}
    precision = "double" if jax.config.jax_enable_x64 else "single"  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "hypergossip": __version__,
        "Python": platform.python_version(),
        **versions,
        "device": jax.devices()[0].platform,
        "precision": precision,
    }
