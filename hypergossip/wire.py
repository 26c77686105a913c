"""What a step sends, read off the traced program: no algorithm declares it, so none can be wrong about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from .network import AXIS, MIX
from .topology import Topology


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes."""

    messages: int
    bytes: int

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.bytes + other.bytes)

    def __rmul__(self, times: int) -> Traffic:
        return Traffic(times * self.messages, times * self.bytes)


@dataclass(frozen=True)
class Communication:
    """What one outer iteration sends over the whole network.

    In every gossip step each agent sends its variable to each neighbour: one message along each
    edge in each direction, the same for all edges. Protocol overhead is not counted.
    """

    along_edge: dict[str, Traffic]
    """By variable: what goes along one edge in one direction."""
    edges: tuple[tuple[int, int], ...]
    """(sender, receiver), both directions of every edge."""

    @property
    def per_variable(self) -> dict[str, Traffic]:
        """By variable, over the whole network."""
        return {name: len(self.edges) * traffic for name, traffic in self.along_edge.items()}

    @property
    def per_edge(self) -> dict[tuple[int, int], Traffic]:
        """By (sender, receiver), all variables together."""
        total = sum(self.along_edge.values(), Traffic(0, 0))
        return dict.fromkeys(self.edges, total)

    @property
    def messages(self) -> int:
        """Messages of one outer iteration, over the whole network."""
        return sum(traffic.messages for traffic in self.per_variable.values())

    @property
    def bytes(self) -> int:
        """Bytes of one outer iteration, over the whole network."""
        return sum(traffic.bytes for traffic in self.per_variable.values())

    def __str__(self) -> str:
        lines = [f"{self.messages:,} messages and {self.bytes:,} bytes per outer iteration"]
        lines += [f"  {name}: {t.messages:,} messages, {t.bytes:,} bytes" for name, t in self.per_variable.items()]
        return "\n".join(lines)


def read(program: Callable[..., Any], arguments: tuple, topology: Topology) -> Communication:
    """The communication of `program(*arguments)`, one agent's outer iteration on one agent's shapes."""
    jaxpr = jax.make_jaxpr(program, axis_env=[(AXIS, topology.n)])(*arguments)
    along_edge: dict[str, Traffic] = {}
    for name, traffic in _exchanges(jaxpr.jaxpr):
        along_edge[name] = along_edge.get(name, Traffic(0, 0)) + traffic
    edges = tuple((int(j), int(i)) for i, j in topology.edges)
    return Communication(along_edge, edges)


def _exchanges(jaxpr: core.Jaxpr) -> Iterator[tuple[str, Traffic]]:
    """(variable, traffic along one edge) of every exchange in a traced program, loops multiplied out."""
    for equation in jaxpr.eqns:
        name = equation.params.get("name")
        if isinstance(name, str) and name.startswith(MIX):
            size = sum(_bytes(variable.aval) for variable in equation.outvars)
            yield name.removeprefix(MIX), Traffic(1, size)
            continue
        for inner in _jaxprs_in(equation.params):
            found = list(_exchanges(inner))
            if found and equation.primitive.name in ("while", "cond"):
                raise NotImplementedError(
                    f"An exchange of {found[0][0]!r} stands inside a {equation.primitive.name!r} whose number of turns "
                    "is not known beforehand; use a loop of fixed length so that what is sent can be counted."
                )
            times = equation.params["length"] if equation.primitive.name == "scan" else 1
            yield from ((name, times * traffic) for name, traffic in found)


def _bytes(aval: Any) -> int:
    return aval.size * aval.dtype.itemsize


def _jaxprs_in(params: dict[str, Any]) -> Iterator[core.Jaxpr]:
    for value in jax.tree.leaves(
        tuple(params.values()), is_leaf=lambda leaf: isinstance(leaf, (core.ClosedJaxpr, core.Jaxpr))
    ):
        if isinstance(value, core.ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, core.Jaxpr):
            yield value
