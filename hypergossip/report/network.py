"""A report's picture of the network."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from ..topology import Topology

_MOST_AGENTS, _MOST_EDGES = 400, 3000
"""Beyond these a picture is a blot."""
_ARRANGED = 64
"""Up to so many agents the layout shows the graph's form; beyond, all stand on a circle."""


def picture(topology: Topology) -> dict[str, Any] | None:
    """Where agents and edges stand in a square of 240 by 240; None where there are too many of them."""
    n, edges = topology.n, [(int(i), int(j)) for i, j in topology.edges if i < j]
    if n > _MOST_AGENTS or len(edges) > _MOST_EDGES:
        return None
    at = _places(n, edges)
    neighbours = [f"{len(others)} neighbour{'s' if len(others) != 1 else ''}" for others in topology.neighbours]
    return {
        "agents": [{"index": i, "x": x, "y": y, "neighbours": neighbours[i]} for i, (x, y) in enumerate(at)],
        "edges": [{"x1": at[i][0], "y1": at[i][1], "x2": at[j][0], "y2": at[j][1]} for i, j in edges],
        "radius": 9 if n <= 40 else max(1.5, 300 / n),
        "stroke": 1.4 if n <= 40 else 0.6,
        "numbered": n <= 40,
    }


def _places(n: int, edges: list[tuple[int, int]]) -> list[tuple[float, float]]:
    graph = nx.empty_graph(n)
    graph.add_edges_from(edges)
    circle = nx.circular_layout(graph)
    layout = nx.kamada_kawai_layout(graph, pos=circle) if 2 < n <= _ARRANGED else circle
    places = np.array([layout[i] for i in range(n)])
    places = places - (places.max(axis=0) + places.min(axis=0)) / 2
    scale = 105 / max(float(np.abs(places).max()), 1e-9)
    return [(round(120 + scale * float(x), 1), round(120 - scale * float(y), 1)) for x, y in places]
