"""Where agents start, and whether the losses take it: what needs them to be called.

Every message says what was given and what was expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .checks import front, unequal_agents
from .local import Loss
from .messages import noting
from .parts import is_variable, variables_of
from .ragged import sample_rows

if TYPE_CHECKING:
    from .problem import Problem

_READINGS = {
    (False, False): "one start for all agents",
    (True, True): "one start for each agent",
    (True, False): "an x0 for each agent and one y0 for all",
    (False, True): "one x0 for all agents and a y0 for each",
}
"""Whether x0, whether y0 has an agents' axis in front ↦ what they are then."""


def one_for_each(problem: Problem, x0: PyTree, y0: PyTree, each: bool | None) -> bool:
    """Whether (x0, y0) is a start for each agent, with an agents' axis in front, or one for all.

    `each` says which was given. Where it does not, the losses decide, by which readings they accept.
    """
    if each is not None and not isinstance(each, bool):
        raise TypeError(f"each is {each!r}; expected True (a start for each agent), False (one for all) or None.")
    refused = {
        reading: _losses_refuse(problem, *of_one_agent((x0, y0), reading))
        for reading in _readings(problem.n, (x0, y0), each)
    }
    accepted = [reading for reading, error in refused.items() if error is None]
    if (True, True) in accepted:  # an axis on both, as is expected: nobody means only one of them by it
        accepted = [reading for reading in accepted if reading[0] == reading[1]]
    if len(accepted) > 1:
        raise ValueError(_ambiguous(problem.n, x0, y0, accepted))
    if accepted in ([(True, True)], [(False, False)]):
        return accepted[0][0]
    _refuse_wrong_fronts(problem, x0, y0)
    if error := refused.get((True, True)) or refused.get((False, False)):
        raise error
    raise ValueError(
        f"each=True, and x0 and y0 have shapes {_shapes(x0)} and {_shapes(y0)}; expected an axis of {problem.n} agents "
        "in front of every leaf."
    )


def repeated(n: int, start: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """One start for all, with an axis of n agents in front."""
    return _map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), start)


def finite_at_start(problem: Problem) -> None:
    """Both losses and their gradients are finite at every agent's start."""
    losses = problem.losses()
    for name, loss, data in (("lower", losses.g, problem.lower_data), ("upper", losses.f, problem.upper_data)):
        with noting(f"the {name} loss or its gradient, at the start"):
            derivative = jax.jit(jax.vmap(jax.value_and_grad(lambda *given, loss=loss: loss(*given), argnums=(0, 1))))
            values, gradients = derivative(*problem.flat_start(), data)
        for what, tree in (("loss", values), ("loss's gradient", gradients)):
            finite = np.all([np.isfinite(leaf).reshape(problem.n, -1).all(1) for leaf in jax.tree.leaves(tree)], axis=0)
            if not finite.all():
                bad = np.flatnonzero(~finite)
                raise ValueError(
                    f"The {name} {what} is not finite at the start, for {len(bad)} of {problem.n} agents "
                    f"(agent {bad[0]} first); expected finite values. Choose other x0 and y0, or scale the data."
                )


def draws_serve(problem: Problem) -> None:
    """Both losses take what a `sample` of the user's draws."""
    if problem.sample is sample_rows:
        return
    x, y = of_one_agent((problem.x0, problem.y0))
    for name, loss, data in _losses(problem):
        batch = jax.tree.map(lambda leaf: leaf[0], data)
        with noting(f"sample(key, data, batch_size) with data {_shapes(batch)} and batch_size 1"):
            drawn = jax.eval_shape(lambda batch: problem.sample(jax.random.key(0), batch, 1), batch)
        if error := _loss_refuses(name, loss, x, y, drawn):
            raise ValueError(
                f"What sample(key, data, batch_size) draws from {name}_data with batch_size 1, {_shapes(drawn)}, is no "
                f"batch for {name}(x, y, batch): {error} Expected data like one agent's, {_shapes(batch)}, with other "
                "numbers of examples."
            ) from error


def _readings(n: int, start: tuple[PyTree, PyTree], each: bool | None) -> Iterator[tuple[bool, bool]]:
    """How a start can be read, given its shapes.

    A vector as long as there are agents, beside a start for all, is no number for each of them.
    """
    leaves = [jax.tree.leaves(variables_of(tree)) for tree in start]
    has_front = [all(leaf.ndim > 0 and leaf.shape[0] == n for leaf in one) for one in leaves]
    has_more = [any(leaf.ndim > 1 for leaf in one) for one in leaves]
    for reading in _READINGS:
        mixed = reading[0] != reading[1]
        wanted = each is None or reading == (each, each)
        if wanted and all(has_front[i] and (has_more[i] or not mixed) for i in (0, 1) if reading[i]):
            yield reading


def of_one_agent(start: tuple[PyTree, PyTree], reading: tuple[bool, bool] = (True, True)) -> tuple[PyTree, PyTree]:
    """(x, y) of the first agent, of a start that has an agents' axis where `reading` says so."""
    x, y = (_map(lambda leaf: leaf[0], tree) if stacked else tree for tree, stacked in zip(start, reading, strict=True))
    return x, y


def _ambiguous(n: int, x0: PyTree, y0: PyTree, accepted: list[tuple[bool, bool]]) -> str:
    readings = ", or as ".join(_READINGS[reading] for reading in accepted)
    return (
        f"x0 and y0 have shapes {_shapes(x0)} and {_shapes(y0)} and there are {n} agents: the losses accept them as "
        f"{readings}. Say which: with each=True x0 and y0 both have an agents' axis in front, with each=False they are "
        "one start for all."
    )


def _losses(problem: Problem) -> tuple[tuple[str, Loss, PyTree], ...]:
    return (("upper", problem.upper, problem.upper_data), ("lower", problem.lower, problem.lower_data))


def _losses_refuse(problem: Problem, x: PyTree, y: PyTree) -> Exception | None:
    """Why the losses do not take (x, y) as one agent's variables; None if they do."""
    errors = (
        _loss_refuses(name, loss, x, y, jax.tree.map(lambda leaf: leaf[0], data))
        for name, loss, data in _losses(problem)
    )
    return next((error for error in errors if error is not None), None)


def _loss_refuses(name: str, loss: Loss, x: PyTree, y: PyTree, batch: PyTree) -> Exception | None:
    shapes = ", ".join(f"{what} {_shapes(tree)}" for what, tree in (("x", x), ("y", y), ("batch", batch)))
    try:
        variables, functions = eqx.partition([x, y], is_variable)
        # JAX remembers by the function, and a user's can come to mean something else: so a new one each time.
        out = jax.eval_shape(lambda given, batch: _call(loss, eqx.combine(given, functions), batch), variables, batch)
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


def _call(loss: Loss, variables: list[PyTree], batch: PyTree) -> Any:
    return loss(variables[0], variables[1], batch)


def _refuse_wrong_fronts(problem: Problem, x0: PyTree, y0: PyTree) -> None:
    """Says so if the start is one for each of a wrong number of agents, or only half of it one for each."""
    x, y = (
        _map(lambda leaf: leaf[0], tree) if all(leaf.ndim > 0 for leaf in jax.tree.leaves(variables_of(tree))) else None
        for tree in (x0, y0)
    )
    for one, other, start in (("x0", "y0", (x, y0)), ("y0", "x0", (x0, y))):
        if start[0] is not None and start[1] is not None and _losses_refuse(problem, *start) is None:
            raise ValueError(
                f"{one} has an agents' axis in front and {other} has none: shapes {_shapes(x0)} and {_shapes(y0)}; "
                "expected one on both or on neither."
            )
    if x is not None and y is not None and _losses_refuse(problem, x, y) is None:
        raise ValueError(unequal_agents({"x0": front(x0), "y0": front(y0), "the data": problem.n}))


def _map(function: Any, tree: PyTree) -> PyTree:
    """`function` of every variable."""
    return jax.tree.map(lambda leaf: function(leaf) if is_variable(leaf) else leaf, tree)


def _shapes(tree: PyTree) -> object:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), variables_of(tree))
