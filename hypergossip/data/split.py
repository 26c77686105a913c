"""Who gets which rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from ..steps import check_count

Rows = list[np.ndarray]


def split(
    labels: ArrayLike,
    agents: int,
    how: str = "iid",
    *,
    seed: int = 0,
    alpha: float | None = None,
    shards: int | None = None,
    column: ArrayLike | None = None,
    least: int = 1,
    classes: bool = False,
) -> list[np.ndarray]:
    """The numbers of each agent's rows, ascending; every row is at exactly one agent.

    - `"iid"`: the rows, shuffled, in parts of equal size; sizes differ by one at most.
    - `"dirichlet"`: agents' shares of a class are drawn from Dirichlet(α, …, α), for each class anew;
      `alpha` ≪ 1 gives a class to few agents, `alpha` ≫ 1 the same share to all. An agent left with
      fewer than `least` rows is then given some, drawn at random, by whoever has the most.
    - `"shards"`: the rows, sorted by label, in `shards` · agents pieces of equal size, of which every
      agent is dealt `shards`.
    - `"column"`: one agent for each value of `column`, which has one per row; in the order of the values.

    Every agent has `least` rows, and with `classes=True` every class, or the split is refused.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels has shape {labels.shape}; expected one label for each row: (examples,).")
    check_count("agents", agents)
    check_count("least", least)
    check_count("seed", seed, least=0)
    options = _options_of(how, alpha=alpha, shards=shards, column=column)
    if agents * least > len(labels):
        each = "one" if least == 1 else str(least)
        raise ValueError(f"Got {len(labels)} examples for {agents} agents; expected at least {each} for every agent.")
    rng = np.random.default_rng(seed)
    parts = [np.sort(rows) for rows in _SPLITS[how][0](rng, labels, agents, least, **options)]
    _check_sizes(parts, least, how)
    if classes:
        _check_classes(labels, parts, how)
    return parts


def describe(labels: ArrayLike, parts: Sequence[np.ndarray]) -> Int[np.ndarray, "agents classes"]:
    """How many rows of each class, in the order of the labels, every agent has."""
    names, numbers = np.unique(np.asarray(labels), return_inverse=True)
    return np.stack([np.bincount(numbers[rows], minlength=len(names)) for rows in parts])


def _iid(rng: np.random.Generator, labels: np.ndarray, agents: int, least: int) -> Rows:
    return np.array_split(rng.permutation(len(labels)), agents)


def _dirichlet(rng: np.random.Generator, labels: np.ndarray, agents: int, least: int, alpha: float) -> Rows:
    if not (isinstance(alpha, Real) and 0 < alpha < math.inf):
        raise ValueError(f"alpha = {alpha!r}; expected a positive, finite number.")
    pieces: list[Rows] = [[] for _ in range(agents)]
    names, numbers = np.unique(labels, return_inverse=True)
    for number in range(len(names)):
        rows = rng.permutation(np.flatnonzero(numbers == number))
        shares = rng.dirichlet(np.full(agents, min(alpha, 1e12)))  # beyond about 1e300 it overflows
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for piece, some in zip(pieces, np.split(rows, cuts), strict=True):
            piece.append(some)
    return _with_least(rng, [np.concatenate(piece) for piece in pieces], least)


def _with_least(rng: np.random.Generator, parts: Rows, least: int) -> Rows:
    """Row by row from whoever has the most, who has more than `least` as long as somebody has fewer."""
    for i in range(len(parts)):
        while len(parts[i]) < least:
            giver = int(np.argmax([len(rows) for rows in parts]))
            given = rng.integers(len(parts[giver]))
            parts[i] = np.append(parts[i], parts[giver][given])
            parts[giver] = np.delete(parts[giver], given)
    return parts


def _shards(rng: np.random.Generator, labels: np.ndarray, agents: int, least: int, shards: int) -> Rows:
    check_count("shards", shards)
    if shards * agents > len(labels):
        raise ValueError(
            f"Got {len(labels)} examples for {agents} agents with {shards} shards each; expected at most "
            f"{len(labels) // agents} shards, so that none is empty."
        )
    pieces = np.array_split(np.argsort(labels, kind="stable"), shards * agents)
    dealt = rng.permutation(len(pieces)).reshape(agents, shards)
    return [np.concatenate([pieces[piece] for piece in hand]) for hand in dealt]


def _column(rng: np.random.Generator, labels: np.ndarray, agents: int, least: int, column: ArrayLike) -> Rows:
    column = np.asarray(column)
    if column.shape != labels.shape:
        raise ValueError(f"column has shape {column.shape}; expected one value for each row: {labels.shape}.")
    values, owner = np.unique(column, return_inverse=True)
    if len(values) != agents:
        raise ValueError(f"column has {len(values)} different values for {agents} agents; expected as many of both.")
    return [np.flatnonzero(owner == agent) for agent in range(agents)]


_SPLITS: dict[str, tuple[Callable[..., Rows], tuple[str, ...]]] = {
    "iid": (_iid, ()),
    "dirichlet": (_dirichlet, ("alpha",)),
    "shards": (_shards, ("shards",)),
    "column": (_column, ("column",)),
}
"""Each with the options that it needs, and takes no others."""


def _options_of(how: str, **options: Any) -> dict[str, Any]:
    if how not in _SPLITS:
        raise ValueError(f"Unknown split {how!r}; possible are {', '.join(map(repr, _SPLITS))}.")
    needed = _SPLITS[how][1]
    for name, value in options.items():
        if value is not None and name not in needed:
            takes = f"takes {', '.join(needed)}" if needed else "takes no options"
            raise ValueError(f"Got {name} = {value!r} for the split {how!r}, which {takes}.")
        if value is None and name in needed:
            raise ValueError(f"The split {how!r} needs {name}, which was not given.")
    return {name: options[name] for name in needed}


def _check_sizes(parts: Rows, least: int, how: str) -> None:
    for agent, rows in enumerate(parts):
        if len(rows) < least:
            raise ValueError(f"The split {how!r} gives agent {agent} {len(rows)} examples; expected at least {least}.")


def _check_classes(labels: np.ndarray, parts: Rows, how: str) -> None:
    counts = describe(labels, parts)
    missing = np.argwhere(counts == 0)
    if len(missing):
        agent, number = missing[0]
        raise ValueError(
            f"The split {how!r} leaves agent {agent} without an example of class {np.unique(labels)[number]} "
            f"({len(missing)} of {counts.size} such pairs are empty); expected every class at every agent. Take "
            "another seed, a larger alpha or more shards, fewer agents, or classes=False."
        )
