"""Edges into rounds: the fewest partial permutations that carry every message of one gossip step."""

from __future__ import annotations

import numpy as np


def partial_permutations(messages: np.ndarray, n: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Splits (sender, receiver) pairs into as many rounds as the largest degree, no more (König).

    Senders on one side, receivers on the other make a bipartite graph; a proper colouring of its
    edges is a split into partial permutations. A colour that is free at the sender but taken at
    the receiver is freed by swapping two colours along the alternating path that starts there.
    """
    sent: list[dict[int, int]] = [{} for _ in range(n)]  # sent[i][colour] = the receiver
    received: list[dict[int, int]] = [{} for _ in range(n)]  # received[j][colour] = the sender
    for sender, receiver in messages.tolist():
        a, b = _free(sent[sender]), _free(received[receiver])
        if a in received[receiver]:
            _swap_along_path(sent, received, receiver, a, b)
        sent[sender][a], received[receiver][a] = receiver, sender
    colours = max((max(used, default=-1) for used in sent), default=-1) + 1
    rounds: list[list[tuple[int, int]]] = [[] for _ in range(colours)]
    for sender, used in enumerate(sent):
        for colour, receiver in used.items():
            rounds[colour].append((sender, receiver))
    return tuple(tuple(pairs) for pairs in rounds)


def _free(used: dict[int, int]) -> int:
    """The lowest colour not yet used."""
    colour = 0
    while colour in used:
        colour += 1
    return colour


def _swap_along_path(sent: list[dict[int, int]], received: list[dict[int, int]], receiver: int, a: int, b: int) -> None:
    """Swaps colours a and b along the path from `receiver` that alternates a, b, a, …, so that a is free there."""
    path: list[tuple[int, int, int]] = []
    node, colour, at_receiver = receiver, a, True
    while colour in (side := received[node] if at_receiver else sent[node]):
        other = side[colour]
        path.append((other, node, colour) if at_receiver else (node, other, colour))
        node, colour, at_receiver = other, (b if colour == a else a), not at_receiver
    for i, j, colour in path:
        del sent[i][colour], received[j][colour]
    for i, j, colour in path:
        other = b if colour == a else a
        sent[i][other], received[j][other] = j, i
