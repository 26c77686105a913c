"""Upper variables of which a part belongs to one agent alone: a weight for each of its training rows, say."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

Rp = Float[Array, " p"]
"""x ∈ Rᵖ as a flat vector, where all agents share all of it."""


class Parts(eqx.Module):
    """x_i = (shared, own): a copy of what the agents agree on, and what agent i alone has and never sends.

    Calculates like a vector, part by part; `agent.mix` and means over the agents act on the shared
    part only. This is the algorithm for the long vector x that holds all agents' own parts, with a
    copy at each of them: no other agent's loss depends on agent i's part, so the network's mean of
    its copies is known where it is needed, and mixing the copies could only delay it. Gradients are
    those of that mean, (1/n) ∇f_i in agent i's own part.
    """

    shared: Float[Array, "... s"]
    own: Float[Array, "... l"]

    @property
    def dtype(self) -> Any:
        return self.shared.dtype

    def __add__(self, other: Parts) -> Parts:
        return jax.tree.map(operator.add, self, other)

    def __sub__(self, other: Parts) -> Parts:
        return jax.tree.map(operator.sub, self, other)

    def __rmul__(self, factor: Scalar) -> Parts:
        return jax.tree.map(lambda part: factor * part, self)


if TYPE_CHECKING:
    # A static checker cannot know that one run never has both kinds, so that they add up.
    Upper: TypeAlias = Any
else:
    Upper = Rp | Parts
"""x_i and what lives beside it: gradients, trackers."""


def on_shared(function: Callable[[Array], Array], tree: PyTree) -> PyTree:
    """`function` of every array, own parts left as they are."""

    def apply(leaf: Array | Parts) -> Array | Parts:
        if not isinstance(leaf, Parts):
            return function(leaf)
        # An empty shared part is nothing to send: where all is own, no message goes.
        return Parts(function(leaf.shared) if leaf.shared.size else leaf.shared, leaf.own)

    return jax.tree.map(apply, tree, is_leaf=lambda leaf: isinstance(leaf, Parts))


def shared(v: Upper) -> Array:
    """What all agents share of it."""
    return v.shared if isinstance(v, Parts) else v


def square(v: Upper) -> Scalar:
    """‖v‖²."""
    return jax.tree.reduce(operator.add, jax.tree.map(lambda part: jnp.vdot(part, part), v))


class Layout(eqx.Module):
    """How a pytree's leaves lie in x: those of `own` in the own part, in their order, all others in the shared one.

    Functions among the leaves, a model's activations say, are no variables: they are set aside, and
    put back where the pytree is made again.
    """

    structure: Any = eqx.field(static=True)
    own: tuple[bool, ...] = eqx.field(static=True)
    functions: tuple[Callable | None, ...] = eqx.field(static=True)
    """The function at each leaf; None where the leaf is a variable."""
    unravel_shared: Callable[[Array], list[Array]] = eqx.field(static=True)
    unravel_own: Callable[[Array], list[Array]] = eqx.field(static=True)

    @staticmethod
    def of(tree: PyTree, own: tuple[bool, ...]) -> Layout:
        """`own` says of each leaf whether it belongs to one agent alone."""
        leaves, structure = jax.tree.flatten(tree)
        functions = tuple(None if is_variable(leaf) else leaf for leaf in leaves)
        parts = (_ravelled(_chosen(tree, own, which))[1] for which in (False, True))
        return Layout(structure, own, functions, *parts)

    def ravel(self, tree: PyTree) -> Upper:
        """One agent's leaves as a vector, or as two."""
        shared, own = (_ravelled(_chosen(tree, self.own, which))[0] for which in (False, True))
        return Parts(shared, own) if any(self.own) else shared

    def unravel(self, x: Upper) -> PyTree:
        """The pytree of a vector."""
        shared = iter(self.unravel_shared(x.shared if isinstance(x, Parts) else x))
        own = iter(self.unravel_own(x.own) if isinstance(x, Parts) else ())
        leaves = [
            next(own if is_own else shared) if function is None else function
            for is_own, function in zip(self.own, self.functions, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)

    def unravel_mean(self, mean: Array, x: Float[Array, "agents p"] | Parts) -> PyTree:
        """The pytree of the mean of what agents share; own leaves are those of x, which has an axis of agents."""
        if not isinstance(x, Parts):
            return self.unravel(mean)
        of_agents = eqx.filter_vmap(lambda own: self.unravel(Parts(mean, own)))(x.own)
        leaves, structure = jax.tree.flatten(of_agents)
        mine = [leaf if own or not is_variable(leaf) else leaf[0] for leaf, own in zip(leaves, self.own, strict=True)]
        return jax.tree.unflatten(structure, mine)


def is_variable(leaf: object) -> bool:
    """Whether a leaf of x or y is numbers; models have functions among their leaves, too."""
    return not callable(leaf)


def variables_of(tree: PyTree) -> PyTree:
    """The pytree without its functions."""
    return eqx.filter(tree, is_variable)


def _chosen(tree: PyTree, own: tuple[bool, ...], which: bool) -> list[Array]:
    leaves = jax.tree.leaves(tree)
    chosen = [leaf for leaf, is_own in zip(leaves, own, strict=True) if is_own is which and is_variable(leaf)]
    # Nothing chosen still has the type of the rest.
    return chosen or [jnp.zeros(0, jax.tree.leaves(variables_of(tree))[0].dtype)]


def _ravelled(leaves: list[Array]) -> tuple[Array, Callable[[Array], list[Array]]]:
    return jax.flatten_util.ravel_pytree(leaves)
