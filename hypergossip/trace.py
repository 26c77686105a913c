"""What a run leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PyTree

from .metrics import CONVERGED
from .wire import Communication

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Trace:
    """The end of a run and the records along it."""

    x: PyTree
    """Every agent's x, leaves (agents, ...); of a run over several processes, those of this one's agents."""
    y: PyTree
    """Every agent's y, in the same way."""
    mean_x: PyTree
    """x̄, over all agents; leaves that belong to each agent alone stay as they are, (agents, ...)."""
    mean_y: PyTree
    """ȳ."""
    metrics: dict[str, np.ndarray]
    """One value per record; "step" counts the completed outer iterations, record 0 is the start."""
    seconds: dict[str, float]
    """"compile" and "run", of this call."""
    state: Any
    """The algorithm's state, leaves (agents, ...)."""
    agents: range
    """Which agents' x, y and state are here."""
    read_wire: Callable[[], Communication]

    @cached_property
    def communication(self) -> Communication:
        """Messages and bytes of one outer iteration, by variable and by edge, read off the traced program."""
        return self.read_wire()

    def to_frame(self) -> polars.DataFrame:
        """The records as a table, one row each."""
        try:
            import polars
        except ImportError:
            raise ImportError("trace.to_frame() needs polars; pip install 'hypergossip[report]'.") from None
        return polars.DataFrame(self.metrics)

    def plot(self, names: str | Sequence[str] | None = None) -> Figure:
        """The metrics, or those named, against the outer iteration: a panel each, on log scales if positive."""
        try:
            from .report.figures import curves
        except ImportError:
            raise ImportError("trace.plot() needs matplotlib; pip install 'hypergossip[report]'.") from None
        return curves({"": self}, [names] if isinstance(names, str) else names)

    def plotted(self) -> list[str]:
        """The metrics that a person looks at: not the step, nor the flags that say whether solves converged."""
        return [name for name in self.metrics if name != "step" and not name.endswith(CONVERGED)]

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {self.metrics[name][-1]:.4g}" for name in self.plotted())
        return f"Trace({int(self.metrics['step'][-1])} outer iterations; {last})"
