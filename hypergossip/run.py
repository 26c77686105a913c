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
from .arguments import check_arguments, check_backend
from .backends import Backend, Distributed, Simulated
from .checkpoint import Checkpoints, identity
from .compiled import Setup, advance, read_wire, start
from .errors import Diverged, UnconvergedWarning
from .loop import End, Own, variables
from .messages import announce
from .metrics import CONVERGED, name_of
from .precautions import check_sums
from .problem import Problem
from .processes import Meeting, compare, supervisor, telling_of_losses
from .steps import whole
from .together import largest_start, what_must_agree, with_shapes_alike
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


@telling_of_losses()
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
    - `backend`: `hg.Simulated()` if not given; in a run over several processes `hg.Distributed()`.
    - `growth_limit`: a run whose x or y grows beyond this many times its start (or one) is ended
      with `hg.Diverged`, like one that leaves the finite numbers.
    """
    backend = _where_to_run() if backend is None else backend
    check_backend(backend)
    meeting = Meeting.of(backend.processes())
    with meeting.telling_errors():
        check_arguments(
            algorithm,
            problem,
            topology,
            steps,
            record_every,
            metrics,
            seed,
            backend,
            checkpoint,
            callback,
            growth_limit,
        )
        check_sums()
        steps, record_every, seed, growth_limit = whole(steps), whole(record_every), whole(seed), float(growth_limit)
        problem, agents = with_shapes_alike(problem, meeting), backend.agents(topology.n)
        limit = growth_limit * largest_start(problem, meeting)
        setup = Setup.of(algorithm, problem, topology, tuple(metrics), seed, backend, limit)
        name = identity.of_run(algorithm, problem, topology, setup.functions, seed, record_every)
        settings = {
            "steps": steps,
            "growth_limit": growth_limit,
            "checkpoint": "none" if checkpoint is None else "a folder",
        }
        compare(meeting, agents, lambda: what_must_agree(problem, name, settings))
        backend.connect()
        saved = None
        if checkpoint is not None:
            saved = Checkpoints(checkpoint, name, identity.of_agents(problem), agents, meeting)
        return _Host(setup, problem, topology, steps, record_every, meeting, saved, callback).run()


def _where_to_run() -> Backend:
    """Over the processes, where there are several."""
    return Simulated() if jax.process_count() == 1 else Distributed()


@dataclass
class _Host:
    """The host's side of a run: what to compute next, what has been recorded, when to save."""

    setup: Setup
    problem: Problem
    topology: Topology
    steps: int
    record_every: int
    meeting: Meeting
    saved: Checkpoints | None
    callback: Callable[[Progress], object] | None

    def run(self) -> Trace:
        began, backend = time.perf_counter(), self.setup.backend
        own = start(self.setup, *backend.place(self.problem.flat_start()))
        k, records = 0, {}
        if self.saved and (found := self.saved.latest(backend.here(own))):
            k, here, records = found
            own, records = backend.place(here), self._on_grid(records)
        if self.saved and self.meeting.place == 0:
            supervisor.goes_on(str(self.saved), k)
        if k > self.steps:
            raise ValueError(
                f"The checkpoint in {self.saved} is at outer iteration {k}, beyond steps = "
                f"{self.steps}; ask for more steps, or use another folder."
            )
        own, _, end = jax.block_until_ready(self._call(own, k, []))  # compiles; computes nothing
        compiled = time.perf_counter()
        wanted = 1
        while targets := self._next(k, records, self.meeting.decided("the next chunk", wanted)):
            chunk_began = time.perf_counter()
            own, new, end = jax.block_until_ready(self._call(own, k, targets))
            all_of_chunk = _extended(records, targets, self._in_order(new))
            records = self._on_grid(all_of_chunk)
            seconds = {"compile": compiled - began, "run": chunk_began - compiled}
            self._raise_if_diverged(own, end, records, all_of_chunk, seconds)
            _warn_if_unconverged(records, len(targets))
            rate = (targets[-1] - k) / (time.perf_counter() - chunk_began)
            wanted = max(1, min(8 * wanted, int(rate * _SECONDS_PER_CHUNK)))
            k = targets[-1]
            if self.saved:
                self.saved.save(k, backend.here(own), records)
            if self.callback:
                self.callback(Progress(k, self.steps, records))
        return self._trace(own, end, records, {"compile": compiled - began, "run": time.perf_counter() - compiled})

    def _call(self, own: Own, k: int, targets: list[int]) -> tuple[Own, dict[str, jax.Array], End]:
        padded = np.zeros(_CAPACITY, np.int32)
        padded[: len(targets)] = targets
        chunk = {"k": jnp.int32(k), "targets": jnp.asarray(padded), "count": jnp.int32(len(targets))}
        own, (records, end) = advance(self.setup, own, **self.setup.backend.share(chunk))
        return own, records, end

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
        end: End,
        records: dict[str, np.ndarray],
        all_of_chunk: dict[str, np.ndarray],
        seconds: dict[str, float],
    ) -> None:
        """`all_of_chunk` has the record that only marks the chunk's end, too: the oracle's failure may show there."""
        first = int(end.fate.iteration)
        if first == 0:
            return
        agent, variable = int(end.agent), variables(own.state)[int(end.fate.variable)]
        before = {name: values[records["step"] < first] for name, values in records.items()}
        trace = self._trace(own, end, before, seconds)
        advice = _advice(self.setup.loop.algorithm, variable, _around(all_of_chunk, first))
        raise Diverged(agent, first, variable, advice, trace)

    def _trace(self, own: Own, end: End, records: dict[str, np.ndarray], seconds: dict[str, float]) -> Trace:
        backend, losses = self.setup.backend, self.setup.loop.losses
        state, (mean_x, mean_y) = backend.here(own.state), (jnp.asarray(np.asarray(mean)) for mean in (end.x, end.y))
        return Trace(
            eqx.filter_vmap(losses.x.unravel)(state.x),
            eqx.filter_vmap(losses.y.unravel)(state.y),
            losses.x.unravel_mean(mean_x, state.x),
            losses.y.unravel(mean_y),
            records,
            seconds,
            state,
            backend.agents(self.topology.n),
            partial(read_wire, self.setup, own, self.topology),
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
