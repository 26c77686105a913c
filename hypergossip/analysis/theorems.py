"""The constants that the paper's lemmas and theorems state, as formulas in those of its assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .constants import Constants


@dataclass(frozen=True)
class Theory:
    """What follows from (L, μ, L_{f,0}, L_{g,2}); κ = L/μ."""

    L: float
    mu: float
    L_f0: float
    L_g2: float

    @staticmethod
    def of(constants: Constants) -> Theory:
        return Theory(constants.L, constants.mu, constants.L_f0, constants.L_g2)

    @property
    def kappa(self) -> float:
        return self.L / self.mu if self.mu > 0 else math.inf

    @property
    def L_phi(self) -> float:
        """L_Φ of Lemma Phi_lip: every ∇Φ_i is L_Φ-Lipschitz."""
        if self.mu <= 0:
            return math.inf
        L, mu, f0, g2 = self.L, self.mu, self.L_f0, self.L_g2
        return L + (2 * L**2 + g2 * f0**2) / mu + (L * f0 * g2 + L**3 + g2 * f0 * L) / mu**2 + g2 * L**2 * f0 / mu**3

    @property
    def L_f(self) -> float:
        """L_f of Lemma hyper_surrogate: the Lipschitz constant of the hypergradient as a function of (x, y)."""
        if self.mu <= 0:
            return math.inf
        L, mu = self.L, self.mu
        return L + L**2 / mu + self.L_f0 * (self.L_g2 / mu + self.L_g2 * L / mu**2)

    @property
    def gamma(self) -> float:
        """Γ of Lemma aid_approx: what the inner error costs an AID estimate."""
        L, kappa, bend = self.L, self.kappa, self.L_g2 * self.L_f0 / self.mu**2
        return (
            3 * L**2
            + 3 * self.L_g2**2 * self.L_f0 / self.mu**2
            + 6 * L**2 * (1 + math.sqrt(kappa)) ** 2 * (kappa + bend) ** 2
        )

    @property
    def d1(self) -> float:
        """d_1 of Lemma AB."""
        return 4 * (1 + math.sqrt(self.kappa)) ** 2 * (self.kappa + self.L_g2 * self.L_f0 / self.mu**2) ** 2

    @property
    def d2(self) -> float:
        """d_2 of Lemma AB."""
        kappa, mu, f0 = self.kappa, self.mu, self.L_f0
        return 2 * (kappa**2 + 2 * f0 * kappa / mu + 2 * f0 * kappa**2 / mu) ** 2

    def inner_iterations(self, step: float, below: float) -> int:
        """The least T with δ_y^T = (1 − 2 η_y μL/(μ+L))^T < `below`."""
        return least_power(1 - 2 * step * self.mu * self.L / (self.mu + self.L), below)

    def cg_iterations(self, below: float) -> int:
        """The least N with δ_κ^N = ((√κ − 1)/(√κ + 1))^{2N} < `below`."""
        root = math.sqrt(self.kappa)
        return least_power(((root - 1) / (root + 1)) ** 2, below)

    def accuracies(self, tracking: bool) -> tuple[float, float]:
        """What δ_y^T and δ_κ^N must stay below in the homogeneous cases of DBO and DBOGT."""
        kappa, slope = self.kappa, self.L**2 * self.kappa * (4 * self.d1 * self.kappa**2 + 2 * self.d2)
        inner, solve = (72, 24) if tracking else (12, 1)
        powers = (-5, -4) if tracking else (-5, -6)
        y = min(self.L_phi**2 / (inner * self.gamma * kappa**2), kappa ** powers[0], 1 / 3)
        v = min(self.L_phi**2 / (solve * slope), kappa ** powers[1], 1 / (8 * kappa))
        return y, v

    def dbo_step(self, n: int, gap: float, homogeneous: bool) -> float:
        """The bound on DBO's η_x: (1−ρ)/(130 √n L_Φ), or 1/L_Φ where agents differ."""
        return gap / (130 * math.sqrt(n) * self.L_phi) if homogeneous else 1 / self.L_phi

    def dbogt_step(self, n: int, gap: float, homogeneous: bool) -> float:
        """The bound on DBOGT's η_x: (1−ρ)²/(4√(2n) L_Φ), or (1−ρ)²/(4√(6n) κ L_f) where agents differ."""
        if homogeneous:
            return gap**2 / (4 * math.sqrt(2 * n) * self.L_phi)
        return min(gap**2 / (4 * math.sqrt(6 * n) * self.kappa * self.L_f), 1 / self.L_phi)

    def dbo_bias(self, n: int, gap: float, homogeneous: bool) -> tuple[float, float]:
        """(a, b) of DBO's bound  a Δ/(η_x (K+1)) + b η_x² + …,  Δ = Φ(x̄_0) − inf Φ; with C α^N = 0."""
        common = n * self.L_f0**2 * (1 + self.kappa) ** 2 / gap**2
        if homogeneous:
            return 4.0, 1272 * self.L_phi**2 * common
        return 2.0, 4 * self.L_f**2 * (1 + self.kappa**2) * common


def least_power(base: float, below: float) -> int:
    """The least T ≥ 1 with base^T < below."""
    if base <= 0:
        return 1
    if base >= 1:
        raise ValueError(f"A factor of {base:.17g} per iteration never falls below {below:g}: κ is beyond rounding.")
    return max(1, math.floor(math.log(below) / math.log(base)) + 1)
