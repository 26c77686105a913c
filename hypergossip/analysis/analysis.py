"""`hg.analyse`: what a problem's constants are here, and what the theorems and stability limits make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..algorithms import DSBO, Algorithm
from ..parts import is_variable, variables_of
from ..problem import Problem
from ..steps import check_count
from ..topology import Topology
from . import derivatives as of
from .constants import Constants, constants_at, worst
from .foresight import Finding, foresee
from .outer import Outer, outer_at, solution
from .similarity import Similarity, similarity
from .stability import WAYS, Modes, Way
from .table import as_text
from .theorems import Theory
from .view import Point, View

_BATCH_SIZE = 32
"""The rows of a mini-batch where nothing says otherwise."""


@dataclass(frozen=True)
class Limits:
    """How long the steps of one way down may be, at one point."""

    guaranteed: float
    """For any Hessians with eigenvalues up to L_{g,1}."""
    exact: float
    """For these Hessians: beyond it the linearised iteration grows."""


@dataclass(frozen=True)
class Analysis:
    """A problem over a network in numbers, at the points named; see `docs/analysis.md` for what each means."""

    n: int
    p: int
    """Numbers in x; where parts are agents' own, in the long x of all agents together."""
    q: int
    own_parts: bool
    rho: float
    """ρ = max(|λ₂|, |λₙ|) of W."""
    smallest: float
    """λₙ of W."""
    points: tuple[str, ...]
    constants: Constants
    """The worst over the points."""
    outer: Outer
    """Φ at the points: the largest curvatures, the smallest eigenvalue; gradient and surrogate of the last point."""
    similarity: Similarity
    limits: dict[str, dict[str, Limits]]
    """Of the inner step and of JHIP's and HIGP's: point ↦ way ↦ limits."""
    notes: tuple[str, ...] = ()
    """What failed, or was estimated coarsely."""
    findings: tuple[Finding, ...] = field(default=())
    """What `foresee` says of the algorithm that was given, if any."""

    @property
    def gap(self) -> float:
        """1 − ρ."""
        return 1 - self.rho

    @property
    def theory(self) -> Theory:
        """The lemmas' and theorems' formulas at these constants."""
        return Theory.of(self.constants)

    @property
    def modes(self) -> Modes:
        return Modes(self.rho, self.smallest, self.n == 1)

    @property
    def plausibly_homogeneous(self) -> bool | None:
        """Whether Assumption 4 is plausible; None if that cannot be judged."""
        if math.isnan(self.similarity.ratio):
            return None
        return self.similarity.ratio <= self.similarity.chance

    def guaranteed(self, way: Way) -> float:
        """The smallest guaranteed limit over the points."""
        return min(limits[way.name].guaranteed for limits in self.limits.values())

    def exact(self, way: Way) -> float:
        """The smallest limit for these agents' Hessians over the points."""
        return min(limits[way.name].exact for limits in self.limits.values())

    def foresee(self, algorithm: Algorithm) -> list[Finding]:
        """What can be said of an algorithm's steps before any run."""
        return foresee(self, algorithm)

    def __str__(self) -> str:
        return as_text(self)


def analyse(
    problem: Problem,
    topology: Topology,
    algorithm: Algorithm | None = None,
    *,
    points: Sequence[tuple[PyTree, PyTree]] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> Analysis:
    """Estimates the constants of the paper's assumptions at points, and what follows from them.

    - `algorithm`: its steps are judged too, as `Analysis.foresee` does later.
    - `points`: pairs (x, y) of pytrees like one agent's start, where parts that are agents' own have
      an agents' axis in front; the start (x̄_0, ȳ_0) and (x̄_0, y*(x̄_0)) if not given.
    - `batch_size`: the rows that `hg.DSBO` is to draw; small batches have larger Hessians. If not
      given, the algorithm's own (None there means all rows), and 32 without such an algorithm.
    - `seed`: of the random directions and of the rows drawn.

    Nothing is run. The cost is that of some hundred products with the Hessians, and of the exact
    solves of `hg.hypergradient_norm` at two points per dimension of x (or per Lanczos step).
    """
    _check(problem, topology, algorithm)
    drawn = _rows_drawn(batch_size, algorithm)
    check_count("seed", seed, least=0)
    view = View.of(problem)
    start = view.start(problem)
    chosen, notes = _default_points(view, start) if points is None else (_given_points(view, start, points), [])
    constants = worst([constants_at(view, point, seed) for point in chosen])
    found = [outer_at(view, point) for point in (chosen[-1:] if points is None else chosen)]
    limits, failed = {}, []
    for point in chosen:
        limits[point.name], at_point = _limits(view, point, topology)
        failed += at_point
    analysis = Analysis(
        n=problem.n,
        p=int(start.x.size),
        q=int(start.y.size),
        own_parts=any(problem.own),
        rho=topology.rho,
        smallest=topology.smallest,
        points=tuple(point.name for point in chosen),
        constants=constants,
        outer=_worst_outer(found),
        similarity=similarity(problem, view, chosen, drawn, seed),
        limits=limits,
        notes=(*notes, *_shortcomings(constants, found, failed)),
    )
    return analysis if algorithm is None else replace(analysis, findings=tuple(foresee(analysis, algorithm)))


def _check(problem: Any, topology: Any, algorithm: Any) -> None:
    order = "The order is analyse(problem, topology, algorithm)."
    if not isinstance(problem, Problem):
        raise TypeError(f"Got {problem!r}; expected an hg.Problem. {order}")
    if not isinstance(topology, Topology):
        raise TypeError(f"Got {topology!r}; expected a topology such as hg.ring(n). {order}")
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise TypeError(f"Got {algorithm!r}; expected an algorithm such as hg.DBOGT(...). {order}")
    if topology.n != problem.n:
        raise ValueError(
            f"The problem has data of {problem.n} agents, the topology has {topology.n}; expected the same."
        )


def _rows_drawn(batch_size: int | None, algorithm: Algorithm | None) -> int | None:
    """What is given, or what the algorithm draws; None for all rows."""
    if batch_size is None:
        return algorithm.batch_size if isinstance(algorithm, DSBO) else _BATCH_SIZE
    check_count("batch_size", batch_size)
    return batch_size


def _default_points(view: View, start: Point) -> tuple[list[Point], list[str]]:
    solved, failure = solution(view, start)
    if failure:
        return [start], [f"Judged at the start only: {failure}."]
    return [start, solved], []


def _given_points(view: View, start: Point, points: Any) -> list[Point]:
    if not isinstance(points, Sequence) or isinstance(points, str) or not points:
        raise TypeError(f"points is {points!r}; expected a list of pairs (x, y).")
    for pair in points:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise TypeError(f"points has {pair!r}; expected pairs (x, y).")
    return [_given_point(view, start, i, *pair) for i, pair in enumerate(points)]


def _given_point(view: View, start: Point, i: int, x: PyTree, y: PyTree) -> Point:
    layouts = view.pooled.losses
    for name, value, like in (("x", x, layouts.x.unravel(start.x)), ("y", y, layouts.y.unravel(start.y))):
        got, expected = (jax.tree.map(jnp.shape, variables_of(tree)) for tree in (value, like))
        if got != expected:
            raise ValueError(
                f"{name} of point {i} has shapes {got}; expected {expected}, as in the problem: an agents' axis in "
                "front of own parts only."
            )
    as_arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf) if is_variable(leaf) else leaf, (x, y))
    point = view.point(f"point {i}", *as_arrays)
    return point._replace(x=point.x.astype(start.x.dtype), y=point.y.astype(start.y.dtype))


def _limits(view: View, point: Point, topology: Topology) -> tuple[dict[str, Limits], list[str]]:
    hessians = of.lower_hessians(view, point)
    high, found, failed = hessians.extremes().high, {}, []
    for way in WAYS:
        exact, converged = way.limit(hessians, topology)
        guaranteed = way.guaranteed(topology.smallest, high)
        found[way.name] = Limits(guaranteed, exact if exact > guaranteed else guaranteed)  # estimates can be NaN
        failed += [] if converged else [f"the limit of {way.name} at the {point.name}"]
    return found, failed


def _worst_outer(found: list[Outer]) -> Outer:
    """Curvatures over all points that have them; the gradient and the surrogate's error are the last one's."""
    known = [one for one in found if not one.failure]
    if not known:
        return found[-1]
    low, high, own = (float(pick.reduce([getattr(one, name) for one in known])) for name, pick in _WORST.items())
    return replace(known[-1], low=low, high=high, own=own)


_WORST = {"low": np.fmin, "high": np.fmax, "own": np.fmax}


def _shortcomings(constants: Constants, found: list[Outer], failed: list[str]) -> list[str]:
    said = [f"No curvature of Phi: {one.failure}." for one in found if one.failure]
    short = [
        *constants.unconverged,
        *failed,
        *(["the curvature of Phi"] if not all(o.converged for o in found) else []),
    ]
    if short:
        said.append(f"Coarse or unknown, as Lanczos stopped short or a value is near 0: {', '.join(short)}.")
    if constants.mu <= 0:
        said.append(f"mu = {constants.mu:.3g}: some g_i is not strongly convex in y there; the theorems do not apply.")
    return said
