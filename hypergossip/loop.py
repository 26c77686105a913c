"""The traced part of a run: agent i's whole trajectory, with records and running sums along it."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from .algorithms import Algorithm
from .local import Local, Losses, Rq
from .metrics import RunningSum, consensus, measured, name_of
from .network import Agent, Exchange, Witness
from .parts import Upper
from .problem import Sample


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
    fate: Fate


class Common(NamedTuple):
    """What all agents know alike and changes along a run."""

    sums: dict[str, Scalar]
    """The running sums."""
    report: dict[str, Scalar]
    """The diagnostics of the last iteration, each the worst over the agents."""


class Loop(eqx.Module):
    """One agent's program from start to end, for a backend to make n of."""

    algorithm: Algorithm
    metrics: tuple[Any, ...]
    losses: Losses
    seed: PRNGKeyArray
    limit: Float[Array, ""]
    """Where growth of x or y counts as divergence."""
    draw_rows: Sample = eqx.field(static=True)
    exchange: Exchange = eqx.field(static=True)
    axes: tuple[str, ...] = eqx.field(static=True)
    """The named axes over which the agents lie."""

    def start(self, index: Array, data: Data, x: Upper, y: Rq) -> tuple[Own, Common]:
        """Agent i, and what all know, before the first outer iteration: nothing summed, nothing reported."""
        state = self.algorithm.init(self.agent(index, data, jnp.zeros((), jnp.int32)), x, y)
        dtype = self.limit.dtype
        sums = {metric.name: jnp.zeros((), dtype) for metric in self.metrics if isinstance(metric, RunningSum)}
        report = {name: jnp.full((), jnp.nan, dtype) for name in self.algorithm.reports}
        return Own(state, Fate(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))), Common(sums, report)

    def advance(
        self,
        index: Array,
        data: Data,
        own: Own,
        common: Common,
        k: Array,
        targets: Int[Array, " capacity"],
        count: Array,
    ) -> tuple[Own, tuple[Common, dict[str, Float[Array, " capacity"]]]]:
        """From outer iteration k through the first `count` of the `targets`, with a record at each of them.

        `count` and `targets` are values, not shapes: chunks of every length share one compilation.
        """

        def iteration(k: Array, carry: tuple[Own, Common]) -> tuple[Own, Common]:
            return self._iteration(self.agent(index, data, k), *carry)

        def to_record(r: Array, carry: tuple) -> tuple:
            k, own, common, records = carry
            own, common = lax.fori_loop(k, targets[r], iteration, (own, common))
            values = self._record(self.agent(index, data, targets[r]), own, common)
            records = {name: records[name].at[r].set(value) for name, value in values.items()}
            return targets[r], own, common, records

        shapes = jax.eval_shape(lambda: self._record(self.agent(index, data, k), own, common))
        records = {name: jnp.full(targets.shape, jnp.nan, value.dtype) for name, value in shapes.items()}
        _, own, common, records = lax.fori_loop(0, count, to_record, (k, own, common, records))
        return own, (common, records)

    def agent(self, index: Array, data: Data, k: Array) -> Agent:
        seed = jax.random.fold_in(jax.random.fold_in(self.seed, index), k)
        return Agent(Local(self.losses, data.upper, data.lower), k, seed, self.draw_rows, self.exchange)

    def witness(self, agent: Agent, state: Any, previous: Any = None) -> Witness:
        return Witness(agent, self.algorithm, self.axes, state, previous)

    def _iteration(self, agent: Agent, own: Own, common: Common) -> tuple[Own, Common]:
        state, report = self.algorithm.step(agent, own.state)
        witness = self.witness(agent, state, own.state)
        sums = {
            metric.name: common.sums[metric.name] + witness.sum(measured(metric, witness)[metric.name])
            for metric in self.metrics
            if isinstance(metric, RunningSum)
        }
        fate = _update(own.fate, agent.k + 1, state, self.limit)
        return Own(state, fate), Common(sums, witness.max(report))

    def _record(self, agent: Agent, own: Own, common: Common) -> dict[str, Scalar]:
        witness = self.witness(agent, own.state)
        values: dict[str, Scalar] = {"consensus": consensus(witness), **common.sums, **common.report}
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
