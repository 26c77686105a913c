"""What is recorded of a run: functions of a `Witness`.

A metric of one's own is any function of a witness that returns a scalar, or a dictionary of named
scalars; what it returns is averaged over the agents:

    def test_accuracy(witness):
        return jnp.mean(predict(witness.mean_y, features) == labels)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Scalar

from .exact import Answer, Solver
from .hypergradient import AID
from .messages import noting
from .network import Witness
from .parts import square

MetricFunction = Callable[[Witness], Scalar | Mapping[str, Scalar]]

CONVERGED = ".converged"
"""Ends the name of a value that is 1 where a metric's own solves converged and 0 where not."""


def consensus(witness: Witness) -> Scalar:
    """sqrt(mean_i ‖x_i − x̄‖²): how far the agents are from agreeing on x."""
    return jnp.sqrt(witness.mean(square(witness.state.x - witness.mean(witness.state.x))))


def upper_loss() -> MetricFunction:
    """mean_i f_i(x̄, ȳ)."""
    return _upper_loss


def lower_residual() -> MetricFunction:
    """‖mean_i ∇_y g_i(x̄, ȳ)‖: how far ȳ is from solving the lower problem at x̄."""
    return _lower_residual


def hypergradient_norm(tolerance: float | None = None, newton_steps: int = 50, cg_steps: int = 1000) -> MetricFunction:
    """‖∇Φ(x̄)‖, exactly: the lower problem and the linear system are solved to `tolerance` over all agents.

    Also recorded: `hypergradient_norm.residual`, the relative residual that the solves reached, and
    `hypergradient_norm.converged`. A value whose solves did not converge is announced with
    `hg.UnconvergedWarning`. Evaluation only, and the most expensive metric: record it less often
    (`record_every`) where it dominates.
    """
    return HypergradientNorm(Solver(tolerance, newton_steps, cg_steps))


class HypergradientNorm(eqx.Module):
    """‖∇Φ(x̄)‖ by exact solves."""

    solver: Solver

    name: ClassVar[str] = "hypergradient_norm"

    def __call__(self, witness: Witness) -> dict[str, Scalar]:
        x, y = witness.mean(witness.state.x), witness.mean(witness.state.y)
        gradient, residual, converged = self.solver.hypergradient(witness.exact, witness.mean, x, y)
        return {
            self.name: witness.norm(gradient),
            f"{self.name}.residual": residual,
            f"{self.name}{CONVERGED}": converged.astype(residual.dtype),
        }


class RunningSum(eqx.Module):
    """A sum over all outer iterations of a term, which sees the state before and after each of them."""

    name: ClassVar[str]
    """Under which the sum is recorded."""

    @abstractmethod
    def term(self, witness: Witness) -> Scalar:
        """Agent i's part of one iteration's term; the parts of all agents are added."""


class Disagreement(RunningSum):
    """S_K = Σ_{k=1}^K Σ_i ‖x_{i,k} − x̄_k‖².

    The paper writes ‖Q_k‖² in the spectral norm; this is the Frobenius norm, which is a sum of the
    agents' own terms, bounds the spectral one from above, and serves in every lemma that uses it.
    """

    name: ClassVar[str] = "S_K"

    def term(self, witness: Witness) -> Scalar:
        return square(witness.state.x - witness.mean(witness.state.x))


class Movement(RunningSum):
    """E_K = Σ_{k=1}^K Σ_i ‖x_{i,k} − x_{i,k−1}‖²."""

    name: ClassVar[str] = "E_K"

    def term(self, witness: Witness) -> Scalar:
        return square(witness.state.x - witness.previous.x)


class InnerError(RunningSum):
    """A_K = Σ_{k<K} Σ_i ‖y_{i,k}^(T) − y*‖², y* the minimiser that the inner loop heads for.

    Homogeneous: agent i's own, argmin_y g_i(x_{i,k}, y). Heterogeneous: the network's,
    argmin_y mean_j g_j(x_{j,k}, y). NaN from the first iteration whose exact solve failed.
    """

    homogeneous: bool | None = eqx.field(static=True)
    solver: Solver

    name: ClassVar[str] = "A_K"

    def term(self, witness: Witness) -> Scalar:
        homogeneous = self.homogeneous
        if homogeneous is None:
            homogeneous = getattr(witness.algorithm, "homogeneous", False)
        mean = _identity if homogeneous else witness.mean
        y = witness.state.y
        return _unless_failed(self.solver.lower(witness.exact, mean, witness.previous.x, mean(y)), y)


class LinearError(RunningSum):
    """B_K = Σ_{k<K} Σ_i ‖v*_{i,k} − v_{i,k}^(0)‖², where AID starts against where it should end.

    v* = [∇²_y g_i]⁻¹ ∇_y f_i at (x_{i,k}, y_i*(x_{i,k})). For algorithms with the AID oracle.
    """

    solver: Solver

    name: ClassVar[str] = "B_K"

    def term(self, witness: Witness) -> Scalar:
        x, y, local = witness.previous.x, witness.state.y, witness.exact
        if not isinstance(oracle := getattr(witness.algorithm, "oracle", None), AID):
            raise ValueError(f"linear_error (B_K) is about the v of hg.AID; this algorithm's oracle is {oracle!r}.")
        v = jnp.zeros_like(y) if witness.previous.z is None else witness.previous.z
        lower = self.solver.lower(local, _identity, x, y)
        answer = self.solver.linear(local, _identity, x, lower.value, local.fy(x, lower.value))
        return _unless_failed(answer._replace(converged=answer.converged & lower.converged), v)


def disagreement() -> RunningSum:
    """S_K, the sum of squared disagreements on x."""
    return Disagreement()


def movement() -> RunningSum:
    """E_K, the sum of squared movements of x."""
    return Movement()


def inner_error(homogeneous: bool | None = None, tolerance: float | None = None) -> RunningSum:
    """A_K, the sum of squared errors of the inner loop; read as the algorithm reads it, unless told otherwise."""
    return InnerError(homogeneous, Solver(tolerance))


def linear_error(tolerance: float | None = None) -> RunningSum:
    """B_K, the sum of squared errors of AID's starting points."""
    return LinearError(Solver(tolerance))


FACTORIES = (upper_loss, lower_residual, hypergradient_norm, disagreement, movement, inner_error, linear_error)
"""They make metrics and are none."""


def measured(metric: Any, witness: Witness) -> dict[str, Array]:
    """What a metric makes of a witness, by name, every value a real scalar; of a running sum, its term."""
    name = name_of(metric)
    with noting(f"the metric {name}"):
        result = metric.term(witness) if isinstance(metric, RunningSum) else metric(witness)
    several = isinstance(result, Mapping) and not isinstance(metric, RunningSum)
    values: dict[Any, Any] = dict(result) if several else {name: result}
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"The metric {name} returned a value named {key!r}; expected a string as its name.")
        what = f"The metric {name} returned" + (f" for {key!r}" if several else "")
        if not eqx.is_array_like(value):
            hint = f" Did you mean {name}()?" if isinstance(value, eqx.Module) else ""
            raise TypeError(
                f"{what} a {type(value).__name__}; expected a scalar, or a dictionary of them, not nested.{hint}"
            )
        if jnp.shape(value) != ():
            raise ValueError(f"{what} shape {jnp.shape(value)}; expected a scalar, for one agent.")
        if jnp.issubdtype(kind := jnp.result_type(value), jnp.complexfloating):
            raise TypeError(f"{what} a number of type {kind}; expected a real one.")
    return {key: jnp.asarray(value) for key, value in values.items()}


def name_of(metric: Any) -> str:
    """The name under which a metric is recorded, if it does not name its values itself."""
    name = getattr(metric, "name", None)
    return name if name is not None else getattr(metric, "__name__", type(metric).__name__).lstrip("_")


def _upper_loss(witness: Witness) -> Scalar:
    x, y = witness.mean(witness.state.x), witness.mean(witness.state.y)
    return witness.exact.f(x, y)


def _lower_residual(witness: Witness) -> Scalar:
    x, y = witness.mean(witness.state.x), witness.mean(witness.state.y)
    return jnp.linalg.norm(witness.mean(witness.exact.gy(x, y)))


def _unless_failed(answer: Answer, guess: Array) -> Scalar:
    return jnp.where(answer.converged, square(guess - answer.value), jnp.nan)


def _identity(v: Array) -> Array:
    return v
