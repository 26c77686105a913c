"""A guard against releases of jaxlib that return wrong numbers.

jaxlib 0.10.2 to 0.11.2 hand some sums of products, on CPUs, to a library of kernels (YNNPACK) that
gets them wrong and says nothing: a matrix-vector product with many rows, squared and summed (0.10.2;
jax-ml/jax issue 39103), and Σ (E C) ∘ E with C one number repeated, as in the gradient of a loss
(seen with 0.10.2 and 0.11.2, off by up to 1e35). An XLA flag keeps such sums in XLA's own hands and
costs no time; XLA reads its flags when JAX first computes something, so it is set when hypergossip
is imported, and `check_sums` looks before a run whether it came in time.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np

from .messages import announce

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_WITHOUT_KERNELS = f"{_FLAG}="


def take() -> None:
    """Sets the flag where this jaxlib needs it and the user has not set it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _is_concerned() and _FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_WITHOUT_KERNELS}".strip()


@cache
def check_sums() -> None:
    """Warns where sums of products are wrong: once in a process, and only on the releases concerned."""
    if not _is_concerned() or jax.default_backend() != "cpu" or (_squares_are_right() and _products_are_right()):
        return
    announce(
        f"jaxlib {metadata.version('jaxlib')} computes some sums of products wrongly on this machine: do not trust the "
        "results. JAX was in use before hypergossip could prevent it. Import hypergossip "
        f"before JAX computes anything, or set XLA_FLAGS={_WITHOUT_KERNELS}, or install another jaxlib.",
        RuntimeWarning,
    )


def _squares_are_right() -> bool:
    """Σ (I x)² of many rows x, in single precision."""
    rows = 40_000
    x = jnp.zeros((rows, 3), jnp.float32).at[:, 0].set(jnp.arange(rows, dtype=jnp.float32))
    unit = jnp.eye(3, dtype=jnp.float32)
    last = jax.jit(jax.vmap(lambda row: jnp.sum((unit @ row) ** 2)))(x)[-1]
    return float(last) == float(np.float32(rows - 1) ** 2)


def _products_are_right() -> bool:
    """Σ (E C) ∘ E with E and C constant, in whole numbers."""
    batch, m, k = 5, 70, 30
    E = jnp.ones((batch, m, k), jnp.float32)
    sums = jax.jit(lambda E, c: jnp.sum((E @ jnp.broadcast_to(c, (batch, k, k))) * E, axis=(1, 2)))(E, jnp.float32(1))
    return bool((np.asarray(sums) == m * k * k).all())


def _is_concerned() -> bool:
    release = tuple(int(part) for part in metadata.version("jaxlib").split(".")[:3] if part.isdigit())
    return (0, 10, 2) <= release < (0, 12)
