"""Step sizes: a number, or a function of the index of the loop that the step belongs to (any optax schedule)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Scalar

from .messages import noting
from .parts import Upper

Step = float | Array | Callable[[Any], Any]


def at(step: Step, t: int | Array, like: Upper | Array) -> Scalar:
    """The step of iteration t, in the type of the variable that it moves."""
    if not callable(step):
        return jnp.asarray(step, like.dtype)
    index = jnp.int64 if like.dtype == jnp.float64 else jnp.int32  # a schedule that divides int32 is in float32
    with noting(f"the step schedule {step!r}"):
        return jnp.asarray(step(jnp.asarray(t, index)), like.dtype)


def schedule_index() -> jax.ShapeDtypeStruct:
    """What a schedule is called with, for tracing it."""
    return jax.ShapeDtypeStruct((), jnp.result_type(int))


def check_step(name: str, step: Step) -> None:
    """Refuses steps that are no number or not positive; a schedule may be 0 at its start (a warm-up)."""
    value = _checked_schedule(name, step) if callable(step) else step
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


def _checked_schedule(name: str, step: Callable[[Any], Any]) -> Any:
    """The value at 0 of a schedule that can be traced and gives one real number."""
    traced: list[Any] = []

    def value_of(t: Array) -> None:
        traced.append(step(t))

    try:
        first = step(jnp.zeros((), schedule_index().dtype))
        jax.eval_shape(value_of, schedule_index())
    except Exception as error:
        raise TypeError(
            f"{name} is a function of the iteration that cannot be traced; expected one of jax.numpy's functions, such "
            f"as jnp.where instead of if and jnp.sqrt instead of math.sqrt. It raised {type(error).__name__}."
        ) from error
    for at, value in ((0, first), ("t", traced[0])):
        if not eqx.is_array_like(value) or jnp.issubdtype(jnp.result_type(value), jnp.complexfloating):
            raise TypeError(f"{name}({at}) is {value!r}; expected a positive number or a function of the iteration.")
        if np.shape(value) != ():
            raise ValueError(f"{name}({at}) has shape {np.shape(value)}; expected one number.")
    return first


def whole(count: Any) -> Any:
    """A whole number of NumPy's as Python's; anything else as it is, for `check_count` to refuse."""
    return operator.index(count) if isinstance(count, np.integer) else count


def check_count(name: str, count: Any, *, least: int = 1, below: int | None = None) -> None:
    """Refuses counts that are no whole number, or not between `least` and `below`."""
    if isinstance(count, bool) or not isinstance(whole(count), int):
        raise TypeError(f"{name} is {count!r}; expected a whole number.")
    if count < least:
        raise ValueError(f"{name} = {count}; expected at least {least}.")
    if below is not None and count >= below:
        raise ValueError(f"{name} = {count}; expected a number below {below}.")
