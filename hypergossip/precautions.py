"""A guard against one release of jaxlib that returns wrong numbers.

jaxlib 0.10.2 on CPUs computes some reductions over matrix products wrongly and says nothing
(jax-ml/jax issue 39103; right in 0.10.1, mended later). Gradients, norms and means
over agents are such reductions. An XLA flag takes the faulty path out; XLA reads its flags when JAX
first computes something, so it is set when hypergossip is imported, and `check_reductions` looks
before a run whether it came in time.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import metadata

import jax
import jax.numpy as jnp

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_WITHOUT_REDUCTIONS = f"{_FLAG}=-reduce"


def take() -> None:
    """Sets the flag where this jaxlib needs it and the user has not set it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _is_faulty() and _FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_WITHOUT_REDUCTIONS}".strip()


@cache
def check_reductions() -> None:
    """Warns where reductions are wrong: once in a process, and only on the release concerned."""
    if not _is_faulty() or jax.default_backend() != "cpu":
        return
    rows = 40_000
    x = jnp.zeros((rows, 3), jnp.float32).at[:, 0].set(jnp.arange(rows, dtype=jnp.float32))
    unit = jnp.eye(3, dtype=jnp.float32)
    last = jax.jit(jax.vmap(lambda row: jnp.sum((unit @ row) ** 2)))(x)[-1]
    if float(last) != float(jnp.float32(rows - 1) ** 2):
        warnings.warn(
            "jaxlib 0.10.2 computes some reductions over matrix products wrongly on this machine: do not trust the "
            "results. JAX was in use before hypergossip could prevent it. Import hypergossip "
            f"before JAX computes anything, or set XLA_FLAGS={_WITHOUT_REDUCTIONS}, or install another jaxlib.",
            RuntimeWarning,
            stacklevel=3,
        )


def _is_faulty() -> bool:
    return metadata.version("jaxlib") == "0.10.2"
