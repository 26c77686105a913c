"""The one loop: chunks on the host, each one call of a compiled program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .algorithms import Algorithm
from .arguments import check_arguments
from .backends import Backend, Simulated
from .checkpoint import Checkpoints, identity
from .compiled import Setup, advance, read_wire, start
from .errors import Diverged, UnconvergedWarning
from .loop import Common, Own, variables
from .messages import announce
from .metrics import CONVERGED, name_of
from .precautions import check_sums
from .problem import Problem
from .steps import whole
from .topology import Topology
from .trace import Trace

_CAPACITY = 4096
"""The most records that one chunk can hold."""
_SECONDS_PER_CHUNK = 0.5


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every chunk."""

    step: int
    """Completed outer iterations."""
    steps: int
    """Outer iterations in all."""
    metrics: dict[str, np.ndarray]
    """The records so far."""


def run(
    algorithm: Algorithm,
    problem: Problem,
    topology: Topology,
    steps: int,
    *,
    record_every: int = 1,
    metrics: Sequence[Any] = (),
    seed: int = 0,
    backend: Backend | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[Progress], object] | None = None,
    growth_limit: float = 1e10,
) -> Trace:
    """Runs `steps` outer iterations of an algorithm on a problem over a network.

    - `record_every`: records are made at the start, every so many outer iterations, and at the end.
    - `metrics`: what is recorded besides "step" and "consensus"; see `hypergossip.metrics`.
    - `seed`: the same seed gives the same numbers, however a run is cut into pieces.
    - `checkpoint`: a folder. The run saves itself there and, called again, goes on from where it
      was; the result is bitwise that of an unbroken run.
    - `callback`: called with a `Progress` after every chunk, about twice a second.
    - `growth_limit`: a run whose x or y grows beyond this many times its start (or one) is ended
      with `hg.Diverged`, like one that leaves the finite numbers.
    """
    backend = Simulated() if backend is None else backend
    check_arguments(
        algorithm, problem, topology, steps, record_every, metrics, seed, backend, checkpoint, callback, growth_limit
    )
    check_sums()
    steps, record_every, seed = whole(steps), whole(record_every), whole(seed)
    setup = Setup.of(algorithm, problem, topology, tuple(metrics), seed, backend, growth_limit)
    saved = None
    if checkpoint is not None:
        saved = Checkpoints(checkpoint, identity(algorithm, problem, topology, setup.functions, seed, record_every))
    return _Host(setup, problem, topology, steps, record_every, saved, callback).run()


@dataclass
class _Host:
    """The host's side of a run: what to compute next, what has been recorded, when to save."""

    setup: Setup
    problem: Problem
    topology: Topology
    steps: int
    record_every: int
    saved: Checkpoints | None
    callback: Callable[[Progress], object] | None

    def run(self) -> Trace:
        began = time.perf_counter()
        own, common = start(self.setup, *self.problem.flat_start())
        k, records = 0, {}
        if self.saved and (found := self.saved.latest(own, common)):
            k, own, common, records = found
            records = self._on_grid(records)
        if k > self.steps:
            raise ValueError(f"The checkpoint in {self.saved} is at outer iteration {k}, beyond steps = {self.steps}.")
        jax.block_until_ready(self._call(own, common, k, []))  # compiles; computes nothing
        compiled = time.perf_counter()
        wanted = 1
        while targets := self._next(k, records, wanted):
            chunk_began = time.perf_counter()
            own, common, new = jax.block_until_ready(self._call(own, common, k, targets))
            all_of_chunk = _extended(records, targets, self._in_order(new))
            records = self._on_grid(all_of_chunk)
            self._raise_if_diverged(own, records, all_of_chunk, compiled - began, chunk_began - compiled)
            _warn_if_unconverged(records, len(targets))
            rate = (targets[-1] - k) / (time.perf_counter() - chunk_began)
            wanted = max(1, min(8 * wanted, int(rate * _SECONDS_PER_CHUNK)))
            k = targets[-1]
            if self.saved:
                self.saved.save(k, own, common, records)
            if self.callback:
                self.callback(Progress(k, self.steps, records))
        return self._trace(own, records, compiled - began, time.perf_counter() - compiled)

    def _call(self, own: Own, common: Common, k: int, targets: list[int]):
        padded = np.zeros(_CAPACITY, np.int32)
        padded[: len(targets)] = targets
        own, (common, records) = advance(
            self.setup, own, common=common, k=jnp.int32(k), targets=jnp.asarray(padded), count=jnp.int32(len(targets))
        )
        return own, common, records

    def _next(self, k: int, records: dict[str, np.ndarray], wanted: int) -> list[int]:
        """Where the next chunk makes its records, the last of which is its end; empty when all is done."""
        first = 0 if not records else k + 1
        if first > self.steps:
            return []
        end = min(k + wanted, self.steps)
        on_grid = list(range(first + -first % self.record_every, end + 1, self.record_every)[:_CAPACITY])
        if len(on_grid) == _CAPACITY or (on_grid and on_grid[-1] == end):
            return on_grid
        return [*on_grid, end]

    def _on_grid(self, records: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The records without those that only mark the end of a chunk."""
        if not records:
            return records
        step = records["step"]
        keep = (step % self.record_every == 0) | (step == self.steps)
        return {name: values[keep] for name, values in records.items()}

    def _in_order(self, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Consensus first, then the metrics in the order in which they were asked for, then the rest."""
        order = ["consensus", *map(name_of, self.setup.loop.metrics)]
        rank = {name: i for i, name in enumerate(order)}
        return dict(sorted(values.items(), key=lambda item: rank.get(item[0].split(".")[0], len(order))))

    def _raise_if_diverged(
        self,
        own: Own,
        records: dict[str, np.ndarray],
        all_of_chunk: dict[str, np.ndarray],
        compiling: float,
        running: float,
    ) -> None:
        """`all_of_chunk` has the record that only marks the chunk's end, too: the oracle's failure may show there."""
        iterations = np.asarray(own.fate.iteration)
        if not iterations.any():
            return
        first = int(iterations[iterations > 0].min())
        hit = np.flatnonzero(iterations == first)
        positions = np.asarray(own.fate.variable)[hit]
        agent, variable = int(hit[np.argmin(positions)]), variables(own.state)[int(positions.min())]
        before = {name: values[records["step"] < first] for name, values in records.items()}
        trace = self._trace(own, before, compiling, running)
        advice = _advice(self.setup.loop.algorithm, variable, _around(all_of_chunk, first))
        raise Diverged(agent, first, variable, advice, trace)

    def _trace(self, own: Own, records: dict[str, np.ndarray], compiling: float, running: float) -> Trace:
        losses, state = self.setup.loop.losses, own.state
        x, y = eqx.filter_vmap(losses.x.unravel)(state.x), eqx.filter_vmap(losses.y.unravel)(state.y)
        seconds = {"compile": compiling, "run": running}
        return Trace(
            x, y, self.problem.own, records, seconds, state, partial(read_wire, self.setup, own, self.topology)
        )


def _extended(records: dict[str, np.ndarray], targets: list[int], new: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    chunk = {"step": np.array(targets), **{name: np.asarray(values)[: len(targets)] for name, values in new.items()}}
    return {name: np.concatenate([records[name], values]) if records else values for name, values in chunk.items()}


def _around(records: dict[str, np.ndarray], iteration: int) -> dict[str, np.ndarray]:
    """The records just before an iteration, and the first that it shows in."""
    end = int(np.searchsorted(records["step"], iteration)) + 1
    return {name: values[max(0, end - 3) : end] for name, values in records.items()}


def _advice(algorithm: Algorithm, variable: str, records: dict[str, np.ndarray]) -> str:
    """What to try when this variable leaves the finite numbers; an oracle that fails takes the others along."""
    worst = {name: np.nanmax([0, *records[name]]) for name in algorithm.reports if name in records}
    unsolved = [name for name, value in worst.items() if value > 100]
    advice, for_oracle = _advice_on(algorithm, variable), _advice_on(algorithm, "z")
    if not unsolved or variable == "z":
        return advice
    oracle = f"The oracle may have failed first, {unsolved[0]} reached {worst[unsolved[0]]:.1e}: {for_oracle}"
    return oracle if advice == for_oracle else f"{oracle} Else: {advice}"


def _advice_on(algorithm: Algorithm, variable: str) -> str:
    step = algorithm.driver(variable)
    if step is None:
        return "Try smaller steps, or scale the losses."
    value = attrgetter(step)(algorithm)
    now = "" if callable(value) else f" (now {float(value):g})"
    return f"Try a smaller {step}{now}, or scale the losses."


def _warn_if_unconverged(records: dict[str, np.ndarray], new: int) -> None:
    solved = (name.removesuffix(CONVERGED) for name in records if name.endswith(CONVERGED))
    for name in (name for name in solved if f"{name}.residual" in records):  # else it is a user's value of that name
        flag = f"{name}{CONVERGED}"
        failed = np.flatnonzero(records[flag] < 1)
        if failed.size and failed[0] >= len(records[flag]) - new:  # the first failure is in this chunk: say it once
            at, residual = int(records["step"][failed[0]]), records[f"{name}.residual"][failed[0]]
            announce(
                f"{name} at outer iteration {at} rests on an exact solve that stopped at relative residual "
                f"{residual:.1e}, short of its tolerance: do not trust the value. trace.metrics[{flag!r}] tells for "
                "every record. Allow more newton_steps or cg_steps, or a larger tolerance.",
                UnconvergedWarning,
            )
