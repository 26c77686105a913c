"""When the three ways down are stable, and how fast: with λ over the eigenvalues of W, h over the Hessians'.

    local     y ← y − η∇               stable exactly if  η h < 2
    gossip    y ← Wy − η∇              stable exactly if  (I + W)  − ηD  is positive definite
    tracked   y ← Wy − ηv,  v ← Wv + ∇⁺ − ∇
                                       stable exactly if  (I + W)² − 2ηD is positive definite

D is the block-diagonal matrix of the agents' Hessians H_i, positive definite. Where all H_i have
eigenvalues up to L, ηL < 1 + λₙ and ηL < (1 + λₙ)²/2 suffice, whatever the H_i are, and are sharp
where the agents share one.

*Proof for the tracked one.* An eigenvalue z of the joint iteration with vector (y, v) satisfies
(z − W)² y + η(z − 1) D y = 0. With a, b, d the means of W, W², D over y, ‖y‖ = 1:
z² + (ηd − 2a) z + b − ηd = 0. By Jury's conditions both roots lie inside the unit circle if
1 − 2a + b > 0 (false only for y the same at all agents: there z = 1 is the tracker's neutral mode,
which a consistent start does not excite), if 1 + 2a + b > 2ηd, and if ηd < 1 + b, which the one
before implies, as 2a ≤ 1 + b. For all y, 1 + 2a + b > 2ηd says that (I + W)² − 2ηD is positive
definite. If it is not, (z − W)² + η(z − 1)D, positive definite for z → −∞, is singular for some z ≤ −1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..topology import Topology
from .spectra import Blocks, largest_against_gossip

_GRID = 33
_ENDS = 9


@dataclass(frozen=True)
class Way:
    """A way down: stable exactly if (I + W)^power − η/scale · D is positive definite."""

    name: str
    scale: float
    power: int

    def guaranteed(self, smallest: float, high: float) -> float:
        """The limit of η for any Hessians with eigenvalues up to `high`; λₙ = `smallest`."""
        return self.scale * (1 + smallest) ** self.power / high if high > 0 else np.inf

    def limit(self, hessians: Blocks, topology: Topology) -> tuple[float, bool]:
        """The exact limit of η for these Hessians and this W; and whether its computation converged."""
        top, converged = largest_against_gossip(hessians, topology, self.power)
        return (self.scale / top if top > 0 else np.inf), converged

    def growth(self, step: float, limit: float, smallest: float) -> float:
        """What one iteration multiplies the fastest mode with, if `limit` is where that mode turns unstable.

        That of the pair (λₙ, h) with the same limit: the mode that flips sign from one iteration to the next.
        """
        if self.power == 0:
            return abs(1 - 2 * step / limit)
        excess = step / limit * self.scale * (1 + smallest) ** self.power
        if self.power == 1:
            return abs(smallest - excess)
        return float(_tracked_radius(np.array(smallest), np.array(excess)))

    def formula(self) -> str:
        return {0: "2/L", 1: "(1 + lambda_n)/L", 2: "(1 + lambda_n)^2/(2L)"}[self.power]


LOCAL, GOSSIP, TRACKED = Way("local descent", 2.0, 0), Way("gossip descent", 1.0, 1), Way("tracked gossip", 0.5, 2)
WAYS = (LOCAL, GOSSIP, TRACKED)


@dataclass(frozen=True)
class Modes:
    """What an iteration contracts: the network's disagreement modes, and two ranges of curvature."""

    rho: float
    smallest: float
    alone: bool
    """One agent only: there is no disagreement."""

    @staticmethod
    def of(topology: Topology) -> Modes:
        return Modes(topology.rho, topology.smallest, topology.n == 1)

    def contraction(self, way: Way, step: float, mean: tuple[float, float], each: tuple[float, float]) -> float:
        """The largest spectral radius over pairs (λ, h), the tracker's neutral mode left out.

        At λ = 1 h is between the extremes of the mean Hessian, at all other λ between those of
        every agent's. Exact where the agents share their Hessian, an estimate where not.
        """
        together = float(np.abs(1 - step * np.array(mean)).max())
        if way is LOCAL:
            return float(np.abs(1 - step * np.array(each)).max())
        if self.alone:
            return together
        lam, h = np.meshgrid(np.linspace(self.smallest, self.rho, _GRID), np.linspace(*each, _ENDS))
        radii = np.abs(lam - step * h) if way is GOSSIP else _tracked_radius(lam, step * h)
        return max(together, float(radii.max()))

    def best_step(
        self, way: Way, limit: float, mean: tuple[float, float], each: tuple[float, float]
    ) -> tuple[float, float]:
        """The step up to `limit` that contracts most, and its contraction."""
        steps = limit * np.geomspace(1e-3, 1, 120)
        found = [self.contraction(way, step, mean, each) for step in steps]
        best = int(np.argmin(found))
        return float(steps[best]), found[best]


def _tracked_radius(lam: np.ndarray, step_h: np.ndarray) -> np.ndarray:
    """The spectral radius of [[λ, −η], [h(λ − 1), λ − ηh]]: roots of z² + (ηh − 2λ) z + λ² − ηh."""
    half, product = (2 * lam - step_h) / 2, lam**2 - step_h
    root = np.sqrt((half**2 - product).astype(complex))
    return np.asarray(np.maximum(np.abs(half + root), np.abs(half - root)))
