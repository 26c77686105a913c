"""What an algorithm is: one agent's program, and the parts that the paper's three share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Scalar

from ..descent import Tracker, local_descent, tracked_descent
from ..hypergradient import AID, JHIP, Neumann, Oracle
from ..local import Rq
from ..network import Agent, Draw
from ..parts import Upper
from ..steps import Step, check_count, check_step, whole

Diagnostics = dict[str, Scalar]
"""What a step reports besides its state; recorded as the worst over the agents."""


class Algorithm(eqx.Module):
    """Agent i's program. Float fields are leaves (a grid of them runs under one `vmap`), counts are static.

    A state is a NamedTuple or Module with fields `x` and `y` at least, flat vectors, its fields in
    the order in which a step computes them: so that the first that is not finite is the culprit.
    """

    cite: ClassVar[str]
    """BibTeX."""
    reports: ClassVar[tuple[str, ...]] = ()
    """The names of the diagnostics that a step returns."""
    blame: ClassVar[dict[str, str]]
    """State field ↦ the field of the algorithm that drives it, dots going inside: the advice in `hg.Diverged`."""

    @abstractmethod
    def init(self, agent: Agent, x: Upper, y: Rq) -> Any:
        """Agent i's state before the first outer iteration."""

    @abstractmethod
    def step(self, agent: Agent, s: Any) -> tuple[Any, Diagnostics]:
        """One outer iteration."""

    def driver(self, variable: str) -> str | None:
        """The field whose step drives a field of the state; None where there is no such one."""
        return self.blame.get(variable)


class DoubleLoop(Algorithm):
    """What DBO, DBOGT and DSBO have in common: T inner iterations on y, then one hypergradient, then x."""

    outer_step: Step
    """η_x, or a function of the outer iteration k."""
    inner_step: Step
    """η_y, or a function of the inner iteration t."""
    inner_iterations: int = eqx.field(static=True, default=10, converter=whole)
    """T."""
    hypergradient: Oracle | None = None
    """The oracle; None takes the paper's for the case at hand, with `inner_step` as its step."""
    homogeneous: bool = eqx.field(static=True, default=False)
    """Whether all g_i agree (the paper's Assumption 4): then y is not mixed and H_i stands for H."""
    carry: bool = eqx.field(static=True, default=True)
    """Whether inner trackers and oracle states go on across outer iterations; False is the paper's letter."""

    stochastic: ClassVar[bool]
    reports: ClassVar[tuple[str, ...]] = ("oracle_residual",)
    blame: ClassVar[dict[str, str]] = {
        "y": "inner_step",
        "v": "inner_step",
        "u": "outer_step",
        "x": "outer_step",
    }

    def __check_init__(self):
        check_step("outer_step", self.outer_step)
        check_step("inner_step", self.inner_step)
        check_count("inner_iterations", self.inner_iterations)
        for name in ("homogeneous", "carry"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is {getattr(self, name)!r}; expected True or False.")
        if self.hypergradient is not None and not isinstance(self.hypergradient, Oracle):
            raise TypeError(
                f"hypergradient is {self.hypergradient!r}; expected an oracle: hg.AID, hg.Neumann, hg.JHIP, hg.HIGP."
            )

    @property
    def oracle(self) -> Oracle:
        """The hypergradient oracle in use."""
        if self.hypergradient is not None:
            return self.hypergradient
        if not self.homogeneous:
            return JHIP(step=self.inner_step, iterations=20)
        if not self.stochastic:
            return AID(iterations=20)
        return Neumann(step=self.inner_step(0) if callable(self.inner_step) else self.inner_step, terms=10)

    def driver(self, variable: str) -> str | None:
        """That of the oracle's state is the oracle's step, of which the default oracle has none of its own."""
        if variable != "z":
            return self.blame.get(variable)
        if not hasattr(self.oracle, "step"):
            return None
        return "inner_step" if self.hypergradient is None else "hypergradient.step"

    def tracker_start(self, y: Rq) -> Tracker | None:
        """The inner tracker's part of the first state: None where nothing is tracked or nothing goes on."""
        return Tracker.zeros(y) if self.carry and not self.homogeneous else None

    def oracle_start(self, x: Upper, y: Rq) -> Any:
        """The oracle's part of the first state."""
        return self.oracle.init(x, y) if self.carry else None

    def lower_level(self, agent: Agent, x: Upper, y: Array, v: Tracker | None) -> tuple[Array, Tracker | None]:
        """(y, v) after lines 3–9 of Algorithms 3 and 4, with all of agent i's data, t = 0 … T−1:

        homogeneous     y ← y − η_y ∇_y g_i(x, y)
        heterogeneous   y ← mix(y) − η_y v,   v ← mix(v) + ∇_y g_i(x, y⁺) − ∇_y g_i(x, y)
        """

        def gradient(t: int | Array, y: Array) -> Array:
            return agent.exact.gy(x, y)

        if self.homogeneous:
            return local_descent(gradient, y, self.inner_step, self.inner_iterations), None
        y, v = tracked_descent(agent, ("y", "v"), gradient, y, v, self.inner_step, self.inner_iterations)
        return y, (v if self.carry else None)

    def estimate(self, agent: Agent, draw: Draw, x: Upper, y: Array, z: Any) -> tuple[Upper, Any, Diagnostics]:
        """(h, z, diagnostics): the oracle's estimate at (x, y), and what of it is carried."""
        h, carried, residual = self.oracle(agent, draw, x, y, z)
        return h, (carried if self.carry else None), {"oracle_residual": residual}
