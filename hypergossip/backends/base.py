"""What a backend is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
from jaxtyping import PyTree

from ..network import Exchange
from ..topology import Topology


class Backend(eqx.Module):
    """A way to make n agents of one agent's program."""

    @abstractmethod
    def axes(self, n: int) -> dict[str, int]:
        """The named axes over which n agents lie, and their lengths."""

    @abstractmethod
    def exchange(self, topology: Topology) -> Exchange:
        """The gossip step of this backend over this topology."""

    @abstractmethod
    def parallel(self, program: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """`program(own, common) -> (own, common)` of one agent, as a program of all.

        `own` has an agents' axis in front of every leaf, in and out; `common` is known to, and the
        same at, every agent.
        """

    @abstractmethod
    def place(self, own: PyTree) -> PyTree:
        """Arrays with an axis of this process's agents in front, where the agents are: an axis of all agents."""

    @abstractmethod
    def here(self, own: PyTree) -> PyTree:
        """Of arrays with an axis of all agents in front, the part of this process's agents."""

    @abstractmethod
    def share(self, common: PyTree) -> PyTree:
        """Arrays that are the same in every process, where the agents are; what is no array stays as it is."""

    @abstractmethod
    def agents(self, n: int) -> range:
        """Those of n agents that this process has; its part of the data is theirs."""

    @abstractmethod
    def processes(self) -> tuple[int, ...]:
        """The processes over which the agents lie, this one among them."""

    def connect(self) -> None:
        """Makes the connections between processes, while all of them are known to be here."""

    def check(self, n: int) -> None:
        """Refuses a number of agents that this backend cannot hold."""
