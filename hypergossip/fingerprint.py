"""What functions compute, as short strings: the same function object can come to compute something else.

A loss reads a global that is set anew in the next cell of a notebook, a metric an attribute of an
object: only tracing shows. So the functions that a user brings are traced, on the shapes of one
agent, and the traced programs, constants included, are digested. Two things rest on it: a compiled
program is used again only for functions that compute the same, and a checkpoint goes on only with them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from . import metrics as library_metrics
from .algorithms import Algorithm
from .hypergradient import Oracle
from .loop import Data, Loop
from .metrics import RunningSum, measured
from .network import AXIS
from .ragged import sample_rows
from .steps import schedule_index

_SHOWN = 16
"""A value with more numbers than this, a metric's test data say, stands as a digest."""


def of_functions(loop: Loop, n: int, data: Data, start: tuple[Any, Any]) -> dict[str, Any]:
    """Fingerprints of the losses, of how rows are drawn, of schedules and of metrics, among n agents.

    `data` and `start` (x and y as flat vectors) have an axis of agents, of some of them maybe, in front; only
    their other axes count.
    """
    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (data, *start))
    traced = _Traced(loop, n, *own)
    return {
        "upper loss": traced.loss("f", own[0].upper),
        "lower loss": traced.loss("g", own[0].lower),
        "sampling": traced.sampling(),
        "schedules": {path: of_schedule(step, eqx.is_array) for path, step in fields(loop.algorithm) if callable(step)},
        "metrics": [traced.metric(i) for i in range(len(loop.metrics))],
    }


def of_schedule(step: Callable[[Any], Any], left_out: Callable[[Any], bool] = lambda leaf: False) -> str:
    """A fingerprint of a step schedule; of a function of something else, its code.

    A schedule that is a Module has parameters among its leaves: those `left_out` do not count.
    """
    try:
        arrays, static = eqx.partition(step, left_out)
        program, _ = _program(lambda arrays, k: eqx.combine(arrays, static)(k), arrays, schedule_index())
        return f"formula {_digest_of(program)}"
    except Exception:  # whatever it raises where it expected something else
        return f"code {hashlib.sha256(_code(step)).hexdigest()[:12]}"


def of_values(tree: PyTree) -> str:
    """A fingerprint of numbers."""
    digest = hashlib.sha256(_without_addresses(jax.tree.structure(tree)))
    for leaf in jax.tree.leaves(tree):
        array = _plain(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def of_each(tree: PyTree) -> list[str]:
    """A fingerprint of each agent's numbers, in a tree of which every leaf has an axis of agents in front."""
    leaves, structure = jax.tree.flatten(jax.tree.map(_plain, tree))
    return [of_values(jax.tree.unflatten(structure, of_agent)) for of_agent in zip(*leaves, strict=True)]


def fields(module: eqx.Module, prefix: str = "") -> list[tuple[str, Any]]:
    """(path, value) of every field, those of modules inside it included; a schedule is one value."""
    found: list[tuple[str, Any]] = []
    for field in dataclasses.fields(module):
        value, path = getattr(module, field.name), f"{prefix}.{field.name}"
        if isinstance(value, eqx.Module) and not _is_schedule(value):
            found += [(path, type(value).__qualname__), *fields(value, path)]
        else:
            found.append((path, value))
    return found


def shown(value: Any) -> Any:
    """A field's value as it stands in a manifest."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if callable(value):
        return of_schedule(value)
    array = np.asarray(value)
    return array.tolist() if array.size <= _SHOWN else of_values(array)


@dataclasses.dataclass(frozen=True)
class _Traced:
    """One agent's functions, on one agent's shapes."""

    loop: Loop
    n: int
    data: Any
    x: Any
    y: Any

    def loss(self, which: str, batch: Any) -> str:
        """The loss and its gradient: a derivative of the user's own shows in the gradient only."""

        def derivative(loop: Loop, x: Any, y: Any, batch: Any) -> Any:
            return jax.value_and_grad(getattr(loop.losses, which), argnums=(0, 1))(x, y, batch)

        return f"formula {self._of(derivative, self.x, self.y, batch)}"

    def sampling(self) -> str:
        if self.loop.draw_rows is sample_rows:
            return sample_rows.__name__
        size = getattr(self.loop.algorithm, "batch_size", None) or 1

        def draw(loop: Loop, data: Data) -> Any:
            key = jax.random.key(0)
            return [loop.draw_rows(key, one, size) for one in data]

        return f"{_name(self.loop.draw_rows)} {self._of(draw, self.data)}"

    def metric(self, i: int) -> str:
        """A metric of the library by its fields, another by what it computes."""
        metric = self.loop.metrics[i]
        name = _name(metric)
        if isinstance(metric, eqx.Module):
            name += f"({', '.join(f'{path[1:]}={shown(value)}' for path, value in fields(metric))})"
        if getattr(metric, "__module__", None) == library_metrics.__name__:
            return name

        def values(loop: Loop, index: Any, data: Data, state: Any) -> Any:
            previous = state if isinstance(metric, RunningSum) else None
            return measured(loop.metrics[i], loop.witness(loop.agent(index, data, index), state, previous))

        index = jax.ShapeDtypeStruct((), jnp.int32)
        _, own = self._program(Loop.start, index, self.data, self.x, self.y)
        return f"{name} {self._of(values, index, self.data, own.state)}"

    def _of(self, function: Callable[..., Any], *arguments: Any) -> str:
        return _digest_of(*self._program(function, *arguments))

    def _program(self, function: Callable[..., Any], *arguments: Any) -> tuple[core.ClosedJaxpr, Any]:
        """`function(loop, *arguments)`, the loop's numbers being arguments, too: so step sizes do not count."""
        arrays, static = eqx.partition(self.loop, eqx.is_array)
        return _program(
            lambda arrays, *rest: function(eqx.combine(arrays, static), *rest), arrays, *arguments, agents=self.n
        )


def _program(function: Callable[..., Any], *arguments: Any, agents: int = 1) -> tuple[core.ClosedJaxpr, Any]:
    """The traced program, and the structure and shapes of what it returns."""
    # JAX remembers what it traced by the function, so this one is made anew each time.
    fresh = lambda *given: function(*given)  # noqa: E731
    return jax.make_jaxpr(fresh, axis_env=[(AXIS, agents)], return_shape=True)(*arguments)


def _digest_of(program: core.ClosedJaxpr, returned: Any = None) -> str:
    digest = hashlib.sha256(_without_addresses(program.jaxpr) + _without_addresses(returned))
    for constant in _constants(program):
        digest.update(_plain(constant).tobytes())
    return digest.hexdigest()[:12]


def _constants(program: core.ClosedJaxpr | core.Jaxpr) -> Iterator[Any]:
    """The arrays that a traced program closes over, those of the programs inside it (a `jit`, a loop) included."""
    if isinstance(program, core.ClosedJaxpr):
        yield from program.consts
    kinds = (core.ClosedJaxpr, core.Jaxpr)
    for equation in program.eqns:
        yield from (v.val for v in equation.invars if isinstance(v, core.Literal) and np.ndim(v.val))
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda leaf: isinstance(leaf, kinds)):
            if isinstance(value, kinds):
                yield from _constants(value)


def _code(value: Any, depth: int = 3) -> bytes:
    """A function by its code, its defaults, and what it closes over or reads of its module; numbers by their values."""
    function = inspect.unwrap(value) if callable(value) else value
    if inspect.ismethod(function):
        return _code(function.__func__, depth) + _code(function.__self__, depth)
    if not inspect.isfunction(function):
        numbers = eqx.filter(function, eqx.is_array_like)
        return _without_addresses(type(function)) + of_values(numbers).encode()
    if depth == 0:
        return function.__qualname__.encode()
    names = [name for code in _codes(function.__code__) for name in code.co_names]
    read = [function.__globals__[name] for name in names if name in function.__globals__]
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    text = [part for code in _codes(function.__code__) for part in (code.co_code, repr(code.co_names).encode())]
    constants = [c for code in _codes(function.__code__) for c in code.co_consts if not isinstance(c, CodeType)]
    # The order of a set's items differs from process to process.
    text += [repr(sorted(c, key=repr) if isinstance(c, frozenset) else c).encode() for c in constants]
    return b"".join(text + [_code(one, depth - 1) for one in (*read, *held, *defaults)])


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _plain(array: Any) -> np.ndarray:
    """The numbers of an array; of random keys, those that they are made of."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.ascontiguousarray(array)


def _is_schedule(value: Any) -> bool:
    return callable(value) and not isinstance(value, (Algorithm, Oracle))


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _without_addresses(value: object) -> bytes:
    """The text of a value; addresses of objects, which differ from process to process, say nothing about it."""
    return re.sub(r"0x[0-9a-f]+", "0x", str(value)).encode()
