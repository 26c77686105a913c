"""What a problem must satisfy, checked on the host before anything is traced.

Every message says what was given and what was expected.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy import sparse

from .parts import is_variable, variables_of
from .ragged import Ragged
from .sparse import SparseRows


def are_callable(**functions: object) -> None:
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} is {function!r}; expected a function.")


def as_data(name: str, tree: PyTree) -> PyTree:
    """The data as arrays, with every leaf (agents, examples, ...), non-empty and finite."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    leaves = [
        (where := f"{name}{jax.tree_util.keystr(path)}", _as_array(where, leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
    if not leaves:
        raise ValueError(f"{name} has no leaves; expected a pytree of arrays (agents, examples, ...).")
    hint = _LISTED if any(isinstance(key, jax.tree_util.SequenceKey) for path in paths for key in path) else ""
    for where, leaf in leaves:
        if leaf.ndim < (1 if isinstance(tree, Ragged) else 2):
            raise ValueError(
                f"{where} has shape {leaf.shape}; expected at least two axes: (agents, examples, ...).{hint}"
            )
        if leaf.size == 0:
            raise ValueError(f"{where} is empty: shape {leaf.shape}; expected at least one agent and one example.")
    _same(name, {where: leaf.shape[0] for where, leaf in leaves}, "agent", hint)
    _same(name, _examples(name, tree), "example", hint or _NO_EXAMPLES)
    for where, leaf in leaves:
        _precise(where, leaf)
        _finite(where, leaf)
    return jax.tree.unflatten(jax.tree.structure(tree), [jnp.asarray(leaf) for _, leaf in leaves])


def _examples(name: str, tree: PyTree) -> dict[str, int]:
    """The number of examples in each leaf that has any; sparse rows count as one leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda leaf: isinstance(leaf, SparseRows))
    named = {f"{name}{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}
    return {
        where: leaf.rows if isinstance(leaf, SparseRows) else np.shape(leaf)[1]
        for where, leaf in named.items()
        if isinstance(leaf, SparseRows) or np.ndim(leaf) > 1
    }


def as_start(name: str, tree: PyTree) -> PyTree:
    """A start as arrays of floating-point numbers; functions among its leaves stay as they are."""

    def convert(path: Any, leaf: Any):
        if not is_variable(leaf):
            return leaf
        where = f"{name}{jax.tree_util.keystr(path)}"
        array = _as_array(where, leaf)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"{where} has dtype {array.dtype}; expected floating-point numbers.")
        _precise(where, array)
        if array.size == 0:
            raise ValueError(f"{where} is empty: shape {array.shape}; expected at least one number.")
        _finite(where, array)
        return jnp.asarray(array)

    if not jax.tree.leaves(variables_of(tree)):
        raise ValueError(f"{name} has no leaves; expected a pytree of arrays.")
    return jax.tree_util.tree_map_with_path(convert, tree)


def which_leaves(name: str, choice: PyTree, of: str, tree: PyTree) -> tuple[bool, ...]:
    """A choice of leaves, said once for a whole branch or leaf by leaf, as a bool for each leaf; functions are none."""
    expected = f"expected True or False for every leaf of {of}"
    try:
        chosen = jax.tree.leaves(jax.tree.broadcast(choice, tree))
    except ValueError:
        raise ValueError(
            f"{name} = {choice!r} does not fit {of}, a {jax.tree.structure(tree)}: {expected}, or for a whole branch."
        ) from None
    if not all(isinstance(one, bool) for one in chosen):
        raise TypeError(f"{name} = {choice!r}; {expected}.")
    return tuple(one and is_variable(leaf) for one, leaf in zip(chosen, jax.tree.leaves(tree), strict=True))


def same_agents(**trees: PyTree) -> None:
    if len({front(tree) for tree in trees.values()}) > 1:
        raise ValueError(unequal_agents({name: front(tree) for name, tree in trees.items()}))


def same_dtype(**trees: PyTree) -> None:
    dtypes = {
        name: sorted({str(leaf.dtype) for leaf in jax.tree.leaves(variables_of(tree))}) for name, tree in trees.items()
    }
    if len({d for found in dtypes.values() for d in found}) > 1:
        found = ", ".join(f"{name} has {' and '.join(ds)}" for name, ds in dtypes.items())
        raise TypeError(f"{found}; expected one floating-point type for both.")


def front(tree: PyTree) -> int:
    """The length of the axis in front."""
    return jax.tree.leaves(variables_of(tree))[0].shape[0]


def _as_array(where: str, leaf: object) -> np.ndarray | jax.Array:
    if sparse.issparse(leaf):
        raise TypeError(f"{where} is a sparse matrix; hg.stack_ragged makes data of a list of them, one per agent.")
    try:
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    except ValueError as error:
        raise ValueError(f"{where} is ragged: {error}. {_RAGGED}") from None
    if array.dtype == object:
        raise ValueError(f"{where} is ragged or holds objects, not numbers. {_RAGGED}")
    if not jnp.issubdtype(array.dtype, jnp.number) and array.dtype != bool:
        raise TypeError(f"{where} has entries of type {array.dtype}; expected numbers.")
    return array


_RAGGED = "Expected one array; hg.stack_ragged pads agents with different numbers of examples."
_LISTED = (
    " A list is a pytree of its items, not an array: np.stack makes one of agents alike, hg.stack_ragged of agents "
    "with different numbers of examples."
)
_NO_EXAMPLES = f" {_RAGGED} An array without examples gets an axis of length 1."


def _precise(where: str, leaf: np.ndarray | jax.Array) -> None:
    """Refuses short floating-point numbers: the tolerances of exact solves mean nothing in them."""
    if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"{where} has dtype {leaf.dtype}; expected float32 or float64.")


def _finite(where: str, leaf: np.ndarray | jax.Array) -> None:
    if jnp.issubdtype(leaf.dtype, jnp.inexact) and not (finite := np.isfinite(np.asarray(leaf))).all():
        at = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"{where} is not finite: {(~finite).sum()} of {finite.size} entries, the first at {at}.")


def _same(name: str, counts: dict[str, int], what: str, hint: str) -> None:
    if len(set(counts.values())) > 1:
        raise ValueError(f"{name} is ragged: {_counted(counts, what)}; expected the same number everywhere.{hint}")


def unequal_agents(counts: dict[str, int]) -> str:
    return f"{_counted(counts, 'agent')}; expected the same number."


def _counted(counts: dict[str, int], what: str) -> str:
    return ", ".join(f"{name} has {count} {what}{'' if count == 1 else 's'}" for name, count in counts.items())
