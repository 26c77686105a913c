"""Random quadratics, the smallest problems on which everything about these algorithms shows.

    f_i = ½ xᵀA_i x + c_iᵀx + ½‖y − b_i‖²,        g_i = ½ yᵀH_i y + xᵀJ_i y + d_iᵀy

Every coefficient of an agent is the mean of its rows, so that mini-batches of rows are noise around it.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Scalar

from ..problem import Problem


def random_quadratics(
    agents: int, p: int, q: int, *, homogeneous: bool, examples: int = 1, spread: float = 0.0, seed: int = 0
) -> Problem:
    """`spread` is the noise of the rows around their agent's coefficients; homogeneous agents share one g."""
    rng = np.random.default_rng(seed)

    def positive(size: int) -> np.ndarray:
        root = rng.standard_normal((agents, size, size)) / np.sqrt(size)
        return root @ root.transpose(0, 2, 1) + np.eye(size)

    upper = {"A": positive(p), "b": rng.standard_normal((agents, q)), "c": rng.standard_normal((agents, p))}
    cross = rng.standard_normal((agents, p, q)) / np.sqrt(q)
    lower = {"H": positive(q), "J": cross, "d": rng.standard_normal((agents, q))}
    if homogeneous:
        lower = {name: np.broadcast_to(values[:1], values.shape) for name, values in lower.items()}

    def rows(name: str, mean: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((agents, examples, *mean.shape[1:]))
        if name in "AH":
            noise = (noise + noise.swapaxes(-1, -2)) / 2
        noise -= noise.mean(axis=1, keepdims=True)
        return mean[:, None] + spread * noise / np.sqrt(mean.shape[-1])

    upper, lower = ({name: rows(name, mean) for name, mean in means.items()} for means in (upper, lower))
    return Problem(
        _of_mean_row(_upper),
        _of_mean_row(_lower),
        upper_data=upper,
        lower_data=lower,
        x0=jnp.zeros(p),
        y0=jnp.zeros(q),
    )


Loss = Callable[[Array, Array, PyTree], Scalar]


def _of_mean_row(loss: Loss) -> Loss:
    """The losses are linear in their coefficients: the mean row's loss is the mean of the rows' losses."""
    return lambda x, y, batch: loss(x, y, jax.tree.map(lambda rows: jnp.mean(rows, axis=0), batch))


def _upper(x: Float[Array, " p"], y: Float[Array, " q"], row: PyTree) -> Scalar:
    deviation = y - row["b"]
    return 0.5 * x @ row["A"] @ x + row["c"] @ x + 0.5 * deviation @ deviation


def _lower(x: Float[Array, " p"], y: Float[Array, " q"], row: PyTree) -> Scalar:
    return 0.5 * y @ row["H"] @ y + x @ row["J"] @ y + row["d"] @ y
