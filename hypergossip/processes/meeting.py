"""What the processes of a run tell each other on the host's side, before and between computations.

The messages go through the coordination service of JAX's distributed runtime, a small store of keys
and values in process 0. Waiting has no time limit of its own: the same service notices processes
that died or fell silent, and ends those that wait for them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from jax._src import distributed  # the store has no public name

from ..errors import ProcessLost

Result = TypeVar("Result")

_numbers = itertools.count()
"""Numbers the exchanges; the same in every process, as all of them make the same ones in the same order."""
_KEPT = 8
"""So many of its last values a process leaves in the store."""
_PATIENCE_MS = 10_000
"""After so long a question is asked anew."""


@dataclass(frozen=True)
class Meeting:
    """The processes that run together; alone, everything here is immediate."""

    process: int
    """This one."""
    processes: tuple[int, ...]
    """All, this one among them."""

    @staticmethod
    def of(processes: Sequence[int]) -> Meeting:
        return Meeting(jax.process_index(), tuple(processes))

    @property
    def place(self) -> int:
        """The position of this process among all."""
        return self.processes.index(self.process)

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in their order. All processes ask, each with a value that JSON can hold."""
        if len(self.processes) == 1:
            return [value]
        number = next(_numbers)
        self._say(number, value)
        return [_heard(number, one) for one in self.processes]

    def decided(self, value: Any) -> Any:
        """The first process's value, at all."""
        if len(self.processes) == 1:
            return value
        number, first = next(_numbers), self.processes[0]
        if self.process == first:
            self._say(number, value)
        return _heard(number, first)

    def everyone(self) -> None:
        """Waits until all processes are here."""
        self.gather(None)

    def each(self, function: Callable[[], Result]) -> Result:
        """What `function` returns here; if it raises in one of the processes, none goes on."""
        result: list[Result] = []
        error = None
        try:
            result.append(function())
        except Exception as raised:
            error = raised
        told = self.gather(error and f"{type(error).__name__}: {error}")
        if error:
            raise error
        for process, other in zip(self.processes, told, strict=True):
            if other:
                raise ProcessLost(f"Process {process} ends with an error, and with it the run: {other}")
        return result[0]

    def _say(self, number: int, value: Any) -> None:
        store = _store()
        store.key_value_set(_key(number, self.process), json.dumps(value))
        # What was said that long ago has been heard: between two decisions stands a computation of all processes.
        if number >= _KEPT:
            store.key_value_delete(_key(number - _KEPT, self.process))


def _store() -> Any:
    return distributed.global_state.client


def _key(number: int, process: int) -> str:
    return f"hypergossip/{number}/{process}"


def _heard(number: int, process: int) -> Any:
    store = _store()
    while True:
        try:
            return json.loads(store.blocking_key_value_get(_key(number, process), _PATIENCE_MS))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
