"""A bilevel problem over n agents: two losses, every agent's data, a start."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from . import checks, starts
from .local import Loss, Losses
from .parts import Layout, Parts
from .ragged import sample_rows

Sample = Callable[[PRNGKeyArray, PyTree, int], PyTree]


class Problem(eqx.Module):
    """minimise over x  Φ(x) = mean_i f_i(x, y*(x)),  where y*(x) = argmin_y mean_i g_i(x, y).

    - `upper(x, y, batch)` and `lower(x, y, batch)` are one agent's f_i and g_i; they return a
      scalar. g_i must be strongly convex in y.
    - `upper_data`, `lower_data`: pytrees whose leaves all have axes (agents, examples, ...).
      A loss sees its own agent's leaves, (examples, ...). `hg.stack_ragged` makes such a pytree
      from agents with different numbers of examples.
    - `x0`, `y0`: pytrees, the start; either one for all agents or, with an agents' axis in front
      on every leaf of both, one for each. Functions among the leaves (an Equinox model has its
      activations there) are no variables: the losses see them where they were.
    - `each`: True where the start is one for each agent, False where it is one for all. If not
      given, the losses decide, by the shapes that they accept.
    - `own`: which leaves of x belong to each agent alone, as True or a pytree of True and False that
      begins like x; none if not given. They are never mixed and never sent: a weight for each of an
      agent's training rows, say. See `hypergossip.parts`.
    - `sample(key, data, batch_size)` draws the rows for stochastic algorithms from one agent's
      data; uniformly with replacement if not given.

    Everything that can be wrong with these is refused here, before anything is traced.
    """

    upper: Loss = eqx.field(static=True)
    lower: Loss = eqx.field(static=True)
    upper_data: PyTree
    lower_data: PyTree
    x0: PyTree
    y0: PyTree
    each: bool = eqx.field(static=True)
    own: tuple[bool, ...] = eqx.field(static=True)
    sample: Sample = eqx.field(static=True)

    def __init__(
        self,
        upper: Loss,
        lower: Loss,
        *,
        upper_data: PyTree,
        lower_data: PyTree,
        x0: PyTree,
        y0: PyTree,
        own: PyTree = False,
        each: bool | None = None,
        sample: Sample = sample_rows,
    ):
        checks.are_callable(upper=upper, lower=lower, sample=sample)
        self.upper, self.lower, self.sample = upper, lower, sample
        self.upper_data = checks.as_data("upper_data", upper_data)
        self.lower_data = checks.as_data("lower_data", lower_data)
        checks.same_agents(upper_data=self.upper_data, lower_data=self.lower_data)
        x0, y0 = checks.as_start("x0", x0), checks.as_start("y0", y0)
        checks.same_dtype(x0=x0, y0=y0)
        self.own = checks.which_leaves("own", own, "x0", x0)
        self.each = starts.one_for_each(self, x0, y0, each)
        self.x0, self.y0 = (x0, y0) if self.each else starts.repeated(self.n, (x0, y0))
        starts.finite_at_start(self)
        starts.draws_serve(self)

    @property
    def n(self) -> int:
        """The number of agents whose data are here: of all, unless the run is one over several processes."""
        return jax.tree.leaves(self.lower_data)[0].shape[0]

    def losses(self, n: int | None = None) -> Losses:
        """The losses on flat vectors, among n agents."""
        x, y = starts.of_one_agent((self.x0, self.y0))
        nothing = (False,) * len(jax.tree.leaves(y))
        return Losses(self.upper, self.lower, Layout.of(x, self.own), Layout.of(y, nothing), n or self.n)

    def flat_start(self) -> tuple[Float[Array, "n p"] | Parts, Float[Array, "n q"]]:
        """Every agent's start as flat vectors, with an agents' axis in front."""
        losses = self.losses()
        return eqx.filter_vmap(losses.x.ravel)(self.x0), eqx.filter_vmap(losses.y.ravel)(self.y0)
