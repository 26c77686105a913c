"""The traced part of a run: agent i's whole trajectory, with records and running sums along it."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, Scalar, UInt

from .algorithms import Algorithm
from .local import Local, Losses, Rq
from .metrics import RunningSum, consensus, measured, name_of
from .network import Agent, Exchange, Witness
from .parts import Upper, shared
from .problem import Sample

_NEVER = jnp.iinfo(jnp.int32).max


class Data(NamedTuple):
    """One agent's data."""

    upper: PyTree[Array]
    lower: PyTree[Array]


class Fate(NamedTuple):
    """Whether and where an agent's iterates left the finite numbers."""

    iteration: Int[Array, ""]
    """The first outer iteration in which it happened, counted from 1; 0 while all is well."""
    variable: Int[Array, ""]
    """The state's field that was hit, by position."""


class Own(NamedTuple):
    """What belongs to one agent and changes along a run."""

    state: Any
    sums: dict[str, Scalar]
    """Its parts of the running sums."""
    report: dict[str, Scalar]
    """Its diagnostics of the last iteration."""
    fate: Fate


class End(NamedTuple):
    """What all agents know at the end of a chunk."""

    agent: Int[Array, ""]
    """The first agent whose iterates left the finite numbers, and its fate."""
    fate: Fate
    x: Array
    """mean_i x_i, of the shared part."""
    y: Array
    """mean_i y_i."""


class Loop(eqx.Module):
    """One agent's program from start to end, for a backend to make n of."""

    algorithm: Algorithm
    metrics: tuple[Any, ...]
    losses: Losses
    seed: UInt[Array, ""]
    limit: Float[Array, ""]
    """Where growth of x or y counts as divergence."""
    draw_rows: Sample = eqx.field(static=True)
    exchange: Exchange = eqx.field(static=True)
    axes: tuple[str, ...] = eqx.field(static=True)
    """The named axes over which the agents lie."""

    def start(self, index: Array, data: Data, x: Upper, y: Rq) -> Own:
        """Agent i before the first outer iteration: nothing summed, nothing reported."""
        state = self.algorithm.init(self.agent(index, data, jnp.zeros((), jnp.int32)), x, y)
        dtype = self.limit.dtype
        sums = {metric.name: jnp.zeros((), dtype) for metric in self.metrics if isinstance(metric, RunningSum)}
        report = {name: jnp.full((), jnp.nan, dtype) for name in self.algorithm.reports}
        return Own(state, sums, report, Fate(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)))

    def advance(
        self,
        index: Array,
        data: Data,
        own: Own,
        k: Array,
        targets: Int[Array, " capacity"],
        count: Array,
    ) -> tuple[Own, tuple[dict[str, Float[Array, " capacity"]], End]]:
        """From outer iteration k through the first `count` of the `targets`, with a record at each of them.

        `count` and `targets` are values, not shapes: chunks of every length share one compilation.
        """

        def iteration(k: Array, own: Own) -> Own:
            return self._iteration(self.agent(index, data, k), own)

        def to_record(r: Array, carry: tuple) -> tuple:
            k, own, records = carry
            own = lax.fori_loop(k, targets[r], iteration, own)
            values = self._record(self.agent(index, data, targets[r]), own)
            records = {name: records[name].at[r].set(value) for name, value in values.items()}
            return targets[r], own, records

        shapes = jax.eval_shape(lambda: self._record(self.agent(index, data, k), own))
        records = {name: jnp.full(targets.shape, jnp.nan, value.dtype) for name, value in shapes.items()}
        k, own, records = lax.fori_loop(0, count, to_record, (k, own, records))
        return own, (records, self._end(index, self.witness(self.agent(index, data, k), own.state), own.fate))

    def agent(self, index: Array, data: Data, k: Array) -> Agent:
        seed = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), index), k)
        return Agent(Local(self.losses, data.upper, data.lower), k, seed, self.draw_rows, self.exchange)

    def witness(self, agent: Agent, state: Any, previous: Any = None) -> Witness:
        return Witness(agent, self.algorithm, self.axes, state, previous)

    def _iteration(self, agent: Agent, own: Own) -> Own:
        state, report = self.algorithm.step(agent, own.state)
        witness = self.witness(agent, state, own.state)
        sums = {
            metric.name: own.sums[metric.name] + measured(metric, witness)[metric.name]
            for metric in self.metrics
            if isinstance(metric, RunningSum)
        }
        return Own(state, sums, report, _update(own.fate, agent.k + 1, state, self.limit))

    def _record(self, agent: Agent, own: Own) -> dict[str, Scalar]:
        witness = self.witness(agent, own.state)
        values: dict[str, Scalar] = {
            "consensus": consensus(witness),
            **witness.sum(own.sums),
            **witness.max(own.report),
        }
        for metric in self.metrics:
            if isinstance(metric, RunningSum):
                continue
            for name, value in measured(metric, witness).items():
                if name in values or name == "step":
                    raise ValueError(
                        f"The metric {name_of(metric)} returned a value named {name!r}, which is recorded already; "
                        "rename it."
                    )
                values[name] = value
        return {name: witness.mean(jnp.asarray(value, self.limit.dtype)) for name, value in values.items()}

    def _end(self, index: Array, witness: Witness, fate: Fate) -> End:
        """The earliest fate, of it the variable that was hit first, of these the first agent; and the means."""
        when = jnp.where(fate.iteration > 0, fate.iteration, _NEVER)
        first = witness.min(when)
        variable = witness.min(jnp.where(when == first, fate.variable, _NEVER))
        hit = (when == first) & (fate.variable == variable)
        agent = witness.min(jnp.where(hit, index.astype(jnp.int32), _NEVER))
        x = shared(witness.state.x)
        x = witness.mean(x) if x.size else jnp.zeros(0, x.dtype)  # where all is own, there is nothing to tell
        return End(agent, Fate(jnp.where(first == _NEVER, 0, first), variable), x, witness.mean(witness.state.y))


def variables(state: Any) -> list[str]:
    """The names of a state's fields, in the order of computation."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    return list(dict.fromkeys(jax.tree_util.keystr(path[:1]).lstrip(".") for path in paths))


def _update(fate: Fate, iteration: Array, state: Any, limit: Scalar) -> Fate:
    """The fate after an iteration: unchanged once sealed, sealed by the first field that is hit."""
    names = variables(state)
    hit = {name: jnp.array(False) for name in names}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = jax.tree_util.keystr(path[:1]).lstrip(".")
        bound = limit.astype(leaf.dtype) if name in ("x", "y") else jnp.inf
        hit[name] |= ~jnp.all(jnp.abs(leaf) < bound)  # NaN is not below anything
    hits = jnp.stack([hit[name] for name in names])
    sealed = (fate.iteration > 0) | ~jnp.any(hits)
    first = jnp.argmax(hits).astype(jnp.int32)
    return Fate(jnp.where(sealed, fate.iteration, iteration), jnp.where(sealed, fate.variable, first))
