"""Step sizes: a number, or a function of the index of the loop that the step belongs to (any optax schedule)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Scalar

from .parts import Upper

Step = float | Array | Callable[[Any], Any]


def at(step: Step, t: int | Array, like: Upper | Array) -> Scalar:
    """The step of iteration t, in the type of the variable that it moves."""
    if not callable(step):
        return jnp.asarray(step, like.dtype)
    index = jnp.int64 if like.dtype == jnp.float64 else jnp.int32  # a schedule that divides int32 is in float32
    return jnp.asarray(step(jnp.asarray(t, index)), like.dtype)


def check_step(name: str, step: Step) -> None:
    """Refuses steps that are no number or not positive; a schedule may be 0 at its start (a warm-up)."""
    value = step(0) if callable(step) else step
    if isinstance(value, Tracer):
        return
    array = np.asarray(value)
    real = jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)
    if not real or isinstance(value, (list, tuple)):
        got = f"{name}(0) is {value!r}" if callable(step) else f"{name} is {step!r}"
        raise TypeError(f"{got}; expected a positive number or a function of the iteration.")
    for v in array.ravel().tolist():
        if not math.isfinite(v) or v < 0 or (v == 0 and not callable(step)):
            where = f"{name}(0)" if callable(step) else name
            raise ValueError(f"{where} = {v:g}; expected a positive, finite number.")


def check_count(name: str, count: Any, *, least: int = 1) -> None:
    """Refuses counts that are no whole number or below `least`."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} is {count!r}; expected a whole number, as a Python int.")
    if count < least:
        raise ValueError(f"{name} = {count}; expected at least {least}.")
