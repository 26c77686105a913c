"""What is known of the processes: their hosts, their addresses, their agents."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping


class Roster:
    """Names processes as people know them; grows with what the processes tell."""

    def __init__(self) -> None:
        self._hosts: dict[int, str] = {}
        self._addresses: dict[int, str] = {}
        self._agents: dict[int, tuple[int, int]] = {}

    def add_own(self, process: int) -> None:
        """One that the launcher starts on this host."""
        self._hosts[process] = socket.gethostname()

    def learn(self, processes: Iterable[Mapping]) -> None:
        """What the processes told: {"process"}, and any of "host", "address" and "agents"."""
        for told in processes:
            process = int(told["process"])
            if "host" in told:
                self._hosts[process] = str(told["host"])
            if "address" in told:
                self._addresses[process] = str(told["address"])
            if "agents" in told:
                begin, end = told["agents"]
                self._agents[process] = (int(begin), int(end))

    def name(self, process: int) -> str:
        """Process 2 (host b, agents 10 to 14)."""
        known = [f"host {self._hosts[process]}"] if process in self._hosts else []
        begin, end = self._agents.get(process, (0, 0))
        if end - begin == 1:
            known.append(f"agent {begin}")
        elif end > begin:
            known.append(f"agents {begin} to {end - 1}")
        return f"process {process} ({', '.join(known)})" if known else f"process {process}"

    def at(self, address: str) -> list[int]:
        """The processes that listen at an address."""
        return sorted(process for process, known in self._addresses.items() if known == address)
