"""What a problem must satisfy, checked on the host before anything is traced.

Every message says what was given and what was expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy import sparse

from .ragged import Ragged
from .sparse import SparseRows

if TYPE_CHECKING:
    from .problem import Problem


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
    """A start as arrays of floating-point numbers."""

    def convert(path: Any, leaf: Any):
        where = f"{name}{jax.tree_util.keystr(path)}"
        array = _as_array(where, leaf)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"{where} has dtype {array.dtype}; expected floating-point numbers.")
        if array.size == 0:
            raise ValueError(f"{where} is empty: shape {array.shape}; expected at least one number.")
        _finite(where, array)
        return jnp.asarray(array)

    if not jax.tree.leaves(tree):
        raise ValueError(f"{name} has no leaves; expected a pytree of arrays.")
    return jax.tree_util.tree_map_with_path(convert, tree)


def which_leaves(name: str, choice: PyTree, of: str, tree: PyTree) -> tuple[bool, ...]:
    """A choice of leaves, said once for a whole branch or leaf by leaf, as one bool for each leaf."""
    try:
        chosen = tuple(jax.tree.leaves(jax.tree.broadcast(choice, tree)))
    except ValueError as error:
        raise ValueError(f"{name} = {choice!r} does not fit {of}, a {jax.tree.structure(tree)}: {error}.") from None
    if not all(isinstance(one, bool) for one in chosen):
        raise TypeError(f"{name} = {choice!r}; expected True or False for every leaf of {of}.")
    return chosen


def same_agents(**trees: PyTree) -> None:
    if len({_front(tree) for tree in trees.values()}) > 1:
        raise ValueError(_unequal_agents({name: _front(tree) for name, tree in trees.items()}))


def same_dtype(**trees: PyTree) -> None:
    dtypes = {name: sorted({str(leaf.dtype) for leaf in jax.tree.leaves(tree)}) for name, tree in trees.items()}
    if len({d for found in dtypes.values() for d in found}) > 1:
        found = ", ".join(f"{name} has {' and '.join(ds)}" for name, ds in dtypes.items())
        raise TypeError(f"{found}; expected one floating-point type for both.")


def every_agents_start(problem: Problem, x0: PyTree, y0: PyTree) -> tuple[PyTree, PyTree]:
    """(x0, y0) with an agents' axis in front: as given, or the one start repeated for all.

    The losses decide which of the two was given, by which of them they accept.
    """
    n = problem.n
    leaves = jax.tree.leaves((x0, y0))
    own = all(leaf.ndim > 0 and leaf.shape[0] == n for leaf in leaves)
    sliced = jax.tree.map(lambda leaf: leaf[0], (x0, y0)) if own else None
    error_if_own = _losses_refuse(problem, *sliced) if sliced is not None else "no agents' axis"
    error_if_common = _losses_refuse(problem, x0, y0)
    if error_if_own is None and error_if_common is None and all(leaf.ndim == 1 for leaf in leaves):
        raise ValueError(
            f"x0 and y0 have {n} entries each and there are {n} agents: they can be one start for all or one number "
            f"for each agent, and the losses accept both. Say which by an agents' axis in front: shape ({n}, {n}) for "
            f"one start repeated, ({n}, 1) for one number each."
        )
    if error_if_own is None:
        return x0, y0
    if error_if_common is None:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), (x0, y0))
    _refuse_wrong_fronts(problem, x0, y0)
    raise error_if_own if isinstance(error_if_own, Exception) else error_if_common


def finite_at_start(problem: Problem) -> None:
    """Both losses and their gradients are finite at every agent's start."""
    for name, loss, data in (
        ("lower", problem.lower, problem.lower_data),
        ("upper", problem.upper, problem.upper_data),
    ):
        values, gradients = jax.jit(jax.vmap(jax.value_and_grad(loss, argnums=(0, 1))))(problem.x0, problem.y0, data)
        for what, tree in (("loss", values), ("loss's gradient", gradients)):
            finite = np.all([np.isfinite(leaf).reshape(problem.n, -1).all(1) for leaf in jax.tree.leaves(tree)], axis=0)
            if not finite.all():
                bad = np.flatnonzero(~finite)
                raise ValueError(
                    f"The {name} {what} is not finite at the start, for {len(bad)} of {problem.n} agents "
                    f"(agent {bad[0]} first); expected finite values. Choose other x0 and y0, or scale the data."
                )


def _losses_refuse(problem: Problem, x: PyTree, y: PyTree) -> Exception | None:
    """Why the losses do not take (x, y) as one agent's variables; None if they do."""
    for name, loss, data in (
        ("upper", problem.upper, problem.upper_data),
        ("lower", problem.lower, problem.lower_data),
    ):
        batch = jax.tree.map(lambda leaf: leaf[0], data)
        shapes = ", ".join(f"{what} {_shapes(tree)}" for what, tree in (("x", x), ("y", y), ("batch", batch)))
        try:
            out = jax.eval_shape(loss, x, y, batch)
        except Exception as error:  # whatever a user's function raises on these shapes, told again with them
            error.add_note(f"Raised by {name}(x, y, batch) with {shapes}.")
            return error
        if not isinstance(out, jax.ShapeDtypeStruct) or out.shape != ():
            got = f"shape {out.shape}" if isinstance(out, jax.ShapeDtypeStruct) else f"a {type(out).__name__}"
            return ValueError(
                f"{name}(x, y, batch) returned {got} for {shapes}; expected a scalar. Reduce it with a mean or a sum."
            )
        if not jnp.issubdtype(out.dtype, jnp.floating):
            return TypeError(f"{name}(x, y, batch) returned {out.dtype}; expected a floating-point scalar.")
    return None


def _refuse_wrong_fronts(problem: Problem, x0: PyTree, y0: PyTree) -> None:
    """Says so if the start is one for each of a wrong number of agents, or only half of it one for each."""
    x, y = (
        jax.tree.map(lambda leaf: leaf[0], tree) if all(leaf.ndim > 0 for leaf in jax.tree.leaves(tree)) else None
        for tree in (x0, y0)
    )
    if x is not None and y is not None and _losses_refuse(problem, x, y) is None:
        raise ValueError(_unequal_agents({"x0": _front(x0), "y0": _front(y0), "the data": problem.n}))
    for one, other, start in (("x0", "y0", (x, y0)), ("y0", "x0", (x0, y))):
        if start[0] is not None and start[1] is not None and _losses_refuse(problem, *start) is None:
            raise ValueError(
                f"{one} has an agents' axis in front and {other} has none: shapes {_shapes(x0)} and {_shapes(y0)}; "
                "expected one on both or on neither."
            )


def _front(tree: PyTree) -> int:
    return jax.tree.leaves(tree)[0].shape[0]


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


def _finite(where: str, leaf: np.ndarray | jax.Array) -> None:
    if jnp.issubdtype(leaf.dtype, jnp.inexact) and not (finite := np.isfinite(np.asarray(leaf))).all():
        at = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"{where} is not finite: {(~finite).sum()} of {finite.size} entries, the first at {at}.")


def _same(name: str, counts: dict[str, int], what: str, hint: str) -> None:
    if len(set(counts.values())) > 1:
        raise ValueError(f"{name} is ragged: {_counted(counts, what)}; expected the same number everywhere.{hint}")


def _unequal_agents(counts: dict[str, int]) -> str:
    return f"{_counted(counts, 'agent')}; expected the same number."


def _counted(counts: dict[str, int], what: str) -> str:
    return ", ".join(f"{name} has {count} {what}{'' if count == 1 else 's'}" for name, count in counts.items())


def _shapes(tree: PyTree) -> object:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
