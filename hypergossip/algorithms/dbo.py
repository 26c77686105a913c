"""DBO: decentralized bilevel optimization (the paper's Algorithm 3)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array

from ..descent import Tracker
from ..network import Agent
from ..parts import Upper
from ..steps import at
from .base import Diagnostics, DoubleLoop
from .paper import CITE


class State(NamedTuple):
    """What agent i keeps, in the order of computation."""

    y: Array
    v: Tracker | None
    z: Any
    x: Upper


class DBO(DoubleLoop):
    """Decentralized bilevel optimization, deterministic.

        y ← T steps of local descent (homogeneous) or of tracked gossip descent on g_i(x, ·)
        h = hypergradient estimate at (x, y)
        x ← mix(x) − η_x h

    With constant η_x and agents that differ, x keeps a bias of order η_x: no agent's h vanishes at
    the optimum, only their mean does. `DBOGT` removes it.
    """

    stochastic: ClassVar[bool] = False
    cite: ClassVar[str] = CITE

    def init(self, agent: Agent, x: Upper, y: Array) -> State:
        return State(y=y, v=self.tracker_start(y), z=self.oracle_start(x, y), x=x)

    def step(self, agent: Agent, s: State) -> tuple[State, Diagnostics]:
        y, v = self.lower_level(agent, s.x, s.y, s.v)
        h, z, report = self.estimate(agent, agent.exact, s.x, y, s.z)
        x = agent.mix(s.x, "x") - at(self.outer_step, agent.k, s.x) * h
        return State(y, v, z, x), report
