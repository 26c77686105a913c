"""DSBO: decentralized stochastic bilevel optimization (the paper's Algorithm 5)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array

from ..descent import gossip_descent, local_descent
from ..network import Agent
from ..parts import Upper
from ..steps import at, check_count, whole
from .base import Diagnostics, DoubleLoop
from .paper import CITE


class State(NamedTuple):
    """What agent i keeps, in the order of computation."""

    y: Array
    z: Any
    x: Upper


class DSBO(DoubleLoop):
    """Decentralized bilevel optimization from mini-batches, a fresh one for every use.

        homogeneous     T times  y ← y − η_y^(t) ∇_y g_i(x, y; ξ)
        heterogeneous   T times  y ← mix(y) − η_y^(t) ∇_y g_i(x, y; ξ)
        h = stochastic hypergradient estimate at (x, y)
        x ← mix(x) − η_x h

    There is no tracking on y: with a constant η_y a bias of order η_y stays where agents differ;
    the paper's η_y^(t) is O(1/t). With `carry=True` JHIP needs smaller steps here than in DBO: y has no
    tracker, so the agents' H_i lie further apart; where Z grows, lower JHIP's step or start it anew
    each time with `carry=False`.
    """

    batch_size: int | None = eqx.field(static=True, default=32, converter=whole)
    """Rows per draw; None uses all of them every time."""

    stochastic: ClassVar[bool] = True
    cite: ClassVar[str] = CITE

    def __check_init__(self):
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)

    def init(self, agent: Agent, x: Upper, y: Array) -> State:
        return State(y=y, z=self.oracle_start(x, y), x=x)

    def step(self, agent: Agent, s: State) -> tuple[State, Diagnostics]:
        draw = agent.sample(self.batch_size)

        def gradient(t: int | Array, y: Array) -> Array:
            return draw("inner", t).gy(s.x, y)

        if self.homogeneous:
            y = local_descent(gradient, s.y, self.inner_step, self.inner_iterations)
        else:
            y = gossip_descent(agent, "y", gradient, s.y, self.inner_step, self.inner_iterations)
        h, z, report = self.estimate(agent, draw, s.x, y, s.z)
        x = agent.mix(s.x, "x") - at(self.outer_step, agent.k, s.x) * h
        return State(y, z, x), report
