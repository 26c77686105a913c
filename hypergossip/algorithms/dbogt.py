"""DBOGT: decentralized bilevel optimization with gradient tracking (the paper's Algorithm 4)."""

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
    u: Tracker
    x: Upper


class DBOGT(DoubleLoop):
    """DBO with a tracker u on the hypergradients.

        y ← T steps of local descent (homogeneous) or of tracked gossip descent on g_i(x, ·)
        h = hypergradient estimate at (x, y)
        u ← mix(u) + h − h_last        (u = h at first)
        x ← mix(x) − η_x u

    u_i estimates the mean of all agents' h, which does vanish at the optimum. With `carry=True`
    every part is exact in the limit, and so are constant steps; with `carry=False`, the paper's
    letter, the inner tracker and JHIP start anew each time and leave a floor.
    """

    stochastic: ClassVar[bool] = False
    cite: ClassVar[str] = CITE

    def init(self, agent: Agent, x: Upper, y: Array) -> State:
        return State(y=y, v=self.tracker_start(y), z=self.oracle_start(x, y), u=Tracker.zeros(x), x=x)

    def step(self, agent: Agent, s: State) -> tuple[State, Diagnostics]:
        y, v = self.lower_level(agent, s.x, s.y, s.v)
        h, z, report = self.estimate(agent, agent.exact, s.x, y, s.z)
        u = s.u.track(agent, h, "u")
        x = agent.mix(s.x, "x") - at(self.outer_step, agent.k, s.x) * u.v
        return State(y, v, z, u, x), report
