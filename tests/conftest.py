"""Double precision, no silent promotion of types or ranks, and one set of problems for all tests."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

import problems  # after the configuration: it makes arrays  # noqa: E402


@pytest.fixture(scope="session")
def quadratic() -> problems.Quadratic:
    """Agents that differ: the case this library is about."""
    return problems.Quadratic(n=8, p=5, q=6, heterogeneous=True)


@pytest.fixture(scope="session")
def homogeneous_quadratic() -> problems.Quadratic:
    """Agents that share one lower level."""
    return problems.Quadratic(n=8, p=5, q=6, heterogeneous=False)


@pytest.fixture(scope="session")
def logistic() -> problems.Logistic:
    """Regularised logistic regression, a penalty per feature: H_i and J_i move with the iterates."""
    return problems.Logistic(n=6, p=4, examples=12)
