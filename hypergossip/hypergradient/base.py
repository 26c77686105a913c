"""What a hypergradient oracle is: agent i's estimate of ∇Φ at (x, y) (the paper's Algorithms 1 and 2).

    ∇Φ(x) = mean_i [ ∇_x f_i − J H⁻¹ ∇_y f_i ]   at (x, y*(x)),   H = mean_i ∇²_y g_i,  J = mean_i ∇²_xy g_i

An oracle is called as `oracle(agent, draw, x, y, carried)` and returns an `Estimate`. `draw` gives
the losses for a purpose: the exact ones in deterministic algorithms, a fresh mini-batch in
stochastic ones. What an oracle carries from one outer iteration to the next starts as `init(x, y)`;
called with None for it, the oracle starts cold.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Scalar

from ..local import Rq
from ..network import Agent, Draw
from ..parts import Upper


class Estimate(NamedTuple):
    """What an oracle returns."""

    h: Upper
    """Agent i's hypergradient estimate."""
    carried: Any
    """What the next outer iteration may start from."""
    residual: Scalar
    """How far the oracle is from having solved its linear system, relative to its right-hand side.

    AID's is the true residual of agent i's system. JHIP's is ‖Y_i‖ / ‖J_i‖: Y_i tracks the network's
    mean residual, which no agent knows. NaN where nothing of the kind is known.
    """


class Oracle(eqx.Module):
    """A way to estimate the hypergradient at agent i."""

    refuses_own: ClassVar[str | None] = None
    """Why it cannot serve where parts of x are agents' own; None where it can."""

    @abstractmethod
    def init(self, x: Upper, y: Rq) -> Any:
        """What the first outer iteration starts from."""

    @abstractmethod
    def __call__(self, agent: Agent, draw: Draw, x: Upper, y: Rq, carried: Any) -> Estimate:
        """Agent i's estimate at (x, y)."""


def relative(residual: Array, right_hand_side: Array) -> Scalar:
    """‖residual‖ / ‖right-hand side‖, and 0 where both vanish."""
    scale = jnp.linalg.norm(right_hand_side)
    return jnp.linalg.norm(residual) / jnp.where(scale > 0, scale, 1)
