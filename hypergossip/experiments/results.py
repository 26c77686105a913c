"""What an experiment leaves in a folder: its figure, its numbers, and a page that tells what holds."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..report import human_bytes, replace_file
from .base import Experiment, Outcome, Verdict
from .catalogue import NAMES

PAGE = "README.md"
_TITLE = "# What holds here"
_KEPT = 101
"""The most values of a metric that a JSON file has of a run."""
SMALL = "-small"
"""Ends the name of what was run in small."""
_LISTED = 12
"""The most runs that the page lists."""


def write(
    folder: Path,
    name: str,
    experiment: Experiment,
    outcomes: Mapping[str, Outcome],
    verdicts: Sequence[Verdict],
    seconds: float,
) -> list[Path]:
    """Writes name.png, name.svg and name.json, and the folder's page anew from all that lie there."""
    from ..report.figures import save

    check_page(folder)
    figure, paths = experiment.figure(outcomes), [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        save(figure, path)
    numbers = folder / f"{name}.json"
    content = json.dumps(summary(experiment, outcomes, verdicts, seconds), indent=1, ensure_ascii=False)
    replace_file(numbers, f"{content}\n".encode())
    replace_file(folder / PAGE, page(folder).encode())
    return [*paths, numbers, folder / PAGE]


def summary(
    experiment: Experiment, outcomes: Mapping[str, Outcome], verdicts: Sequence[Verdict], seconds: float
) -> dict[str, Any]:
    """Everything that a reader needs to judge, or to repeat, what was run."""
    return {
        "title": experiment.title,
        "settings": _plain(dataclasses.asdict(experiment)),
        "choices": list(experiment.choices),
        "verdicts": [{"claim": v.claim, "verdict": v.word, "because": v.because} for v in verdicts],
        "seconds": round(seconds, 1),
        "peak memory of the process": "unknown" if (peak := peak_memory()) is None else human_bytes(peak),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
        "runs": {name: _run(outcome) for name, outcome in outcomes.items()},
    }


def check_page(folder: Path) -> None:
    """Refuses a folder whose page somebody else wrote."""
    path = folder / PAGE
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_TITLE):
        raise FileExistsError(f"{path} is not a page of hypergossip's; expected a folder for results alone.")


def page(folder: Path) -> str:
    """The page of all experiments whose numbers lie in the folder."""
    paths = [folder / f"{name}{form}.json" for name in NAMES for form in ("", SMALL)]
    sections = [_section(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in paths if path.exists()]
    opening = (
        f"{_TITLE}\n\n`hypergossip reproduce` wrote this page. Every claim stands with the numbers that decide it; the "
        f"JSON files have the settings and the curves, of long ones {_KEPT} values.\n"
    )
    return "\n".join([opening, *sections])


def settings(module: Any, prefix: str = "") -> dict[str, object]:
    """Every field of an algorithm, those of its oracle included."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(module):
        value, name = getattr(module, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            found |= {name: type(value).__name__, **settings(value, f"{name}.")}
        else:
            found[name] = value
    return found


def peak_memory() -> int | None:
    """The most bytes that this process has held so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _run(outcome: Outcome) -> dict[str, Any]:
    trace, metrics = outcome.trace, outcome.trace.metrics
    iterations = int(metrics["step"][-1])
    return {
        "remark": outcome.remark,
        "compile seconds": round(trace.seconds["compile"], 2),
        "seconds per outer iteration": float(f"{trace.seconds['run'] / iterations:.3g}") if iterations else None,
        "bytes per outer iteration": trace.communication.bytes,
        "metrics": {name: _plain(_thinned(values)) for name, values in metrics.items()},
    }


def _thinned(values: np.ndarray) -> np.ndarray:
    """At most so many of a metric's values, the first and the last among them, as even as whole numbers allow."""
    if len(values) <= _KEPT:
        return values
    return values[np.linspace(0, len(values) - 1, _KEPT).round().astype(int)]


def _section(name: str, numbers: Mapping[str, Any]) -> str:
    claims = "\n".join(f"| {v['claim']} | **{v['verdict']}** | {v['because']} |" for v in numbers["verdicts"])
    choices = "\n".join(f"- {choice}" for choice in numbers["choices"])
    runs = _table(numbers["runs"]) if len(numbers["runs"]) <= _LISTED else f"{len(numbers['runs'])} runs, in the JSON."
    return f"""## {name}: {numbers["title"]}

![{numbers["title"]}]({name}.png)

| claim | verdict | because |
| --- | --- | --- |
{claims}

What the paper's text leaves open, and what was taken{" (at full size; this was run in small)" * name.endswith(SMALL)}:

{choices}

{runs}

{numbers["seconds"]:g} seconds in all, compilation and metrics included; at most {numbers["peak memory of the process"]}
of memory; {numbers["machine"]}, jax {numbers["versions"]["jax"]}. `{_command(name, numbers["settings"]["seed"])}`
"""


def _command(name: str, seed: int) -> str:
    small = " --small" if name.endswith(SMALL) else ""
    return f"hypergossip reproduce {name.removesuffix(SMALL)}{small}" + (f" --seed {seed}" if seed else "")


def _table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    rows = ["| run | seconds per outer iteration, metrics included | sent per outer iteration | remark |"]
    rows += ["| --- | ---: | ---: | --- |"]
    for name, run in runs.items():
        seconds, sent = run["seconds per outer iteration"], human_bytes(run["bytes per outer iteration"])
        rows += [f"| {name} | {'' if seconds is None else f'{seconds:g}'} | {sent} | {run['remark']} |"]
    return "\n".join(rows)


def _plain(value: Any) -> Any:
    """As JSON has it: arrays as lists with six digits, what is not finite as None, all else as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, str, type(None))):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return str(value)
