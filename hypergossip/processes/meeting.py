"""What the processes of a run tell each other on the host's side, before and between computations.

The messages go through the coordination service of JAX's distributed runtime, a store of keys and
values in process 0. Waiting has no time limit of its own: a process that died or fell silent is
noticed by the same service, which ends those that wait for it; one that failed, or has ended well,
leaves word here.
"""

from __future__ import annotations

import atexit
import itertools
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
from jax._src import distributed  # the store has no public name

from ..errors import ProcessLost
from . import faults

_KEPT = 8
"""So many of its last messages a process leaves in the store; whoever makes the next exchange has heard this one."""
_PATIENCE_MS = 5_000
"""After so long a question is asked anew."""

_numbers: defaultdict[tuple[int, ...], Iterator[int]] = defaultdict(itertools.count)
"""Number the exchanges among these processes: the same in each, as all make the same ones in the same order."""
_said: defaultdict[tuple[int, ...], deque[str]] = defaultdict(deque)
"""The keys of this process's messages to these processes that are in the store."""


@dataclass(frozen=True)
class Meeting:
    """The processes that run together; alone, everything here is immediate.

    All processes make the same exchanges in the same order; `what` names one, so that it shows where they do not.
    """

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

    @property
    def alone(self) -> bool:
        return len(self.processes) == 1

    def gather(self, what: str, value: Any = None) -> list[Any]:
        """Every process's value, in their order; a value is what JSON can hold."""
        if self.alone:
            return [value]
        number = next(_numbers[self.processes])
        self._say(number, what=what, value=value)
        return [self._heard(number, what, one) for one in self.processes]

    def decided(self, what: str, value: Any) -> Any:
        """The first process's value, at all, once all are here."""
        if self.alone:
            return value
        number, (first, *others) = next(_numbers[self.processes]), self.processes
        if self.process != first:
            self._say(number, what=what)
            return self._heard(number, what, first)
        try:
            for other in others:
                self._heard(number, what, other)
        except ProcessLost as lost:
            self._say(number, **vars(lost))
            raise
        self._say(number, what=what, value=value)
        return value

    @contextmanager
    def telling_errors(self) -> Iterator[None]:
        """An error in here ends what all do together: the others, wherever they wait for this process, hear of it."""
        try:
            yield
        except ProcessLost:
            raise  # they know
        except Exception as error:
            if not self.alone:
                reason = f"{type(error).__name__}: {error}"
                self._say(
                    next(_numbers[self.processes]), process=self.process, reason=reason, fault=faults.is_fault(error)
                )
            raise

    def _say(self, number: int, **message: Any) -> None:
        say_when_over()
        store, said = _store(), _said[self.processes]
        store.key_value_set(key := self._key(number, self.process), json.dumps(message))
        said.append(key)
        while len(said) > _KEPT:
            store.key_value_delete(said.popleft())

    def _heard(self, number: int, what: str, process: int) -> Any:
        message = json.loads(_waited_for(self._key(number, process), process))
        if "reason" in message:
            raise ProcessLost(**message)
        if message["what"] != what:
            raise ProcessLost(
                f"Process {process} is at {message['what']} where this one is at {what}: they are not in step. Every "
                "process must call hg.run with the same arguments, as often as the others and in the same order."
            )
        return message.get("value")

    def _key(self, number: int, process: int) -> str:
        return f"hypergossip/{'-'.join(map(str, self.processes))}/{number}/{process}"


def _waited_for(key: str, process: int) -> str:
    while True:
        try:
            return _store().blocking_key_value_get(key, _PATIENCE_MS)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        if _is_over(process):
            raise ProcessLost(
                f"Process {process} has ended its script, and this one waits for it: every process must call hg.run as "
                "often as the others."
            )


@cache
def say_when_over() -> None:
    """Leaves word when this process ends well: then the runtime in it waits for the others, and seems alive."""

    def say() -> None:
        if (store := _store()) is not None:
            store.key_value_set(_over(distributed.global_state.process_id), "")

    atexit.register(say)


def _is_over(process: int) -> bool:
    try:
        _store().key_value_try_get(_over(process))
    except jax.errors.JaxRuntimeError as error:
        if "NOT_FOUND" not in str(error):
            raise
        return False
    return True


def _over(process: int) -> str:
    return f"hypergossip/over/{process}"


def _store() -> Any:
    return distributed.global_state.client
