"""What is told to a person besides an error's own text: whose function raised it, and warnings at the user's line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_NOT_THE_USERS = frozenset({__package__, "beartype", "contextlib", "equinox", "jax", "jaxtyping"})
"""Packages whose frames can stand between a user's line and a warning of ours."""


@contextmanager
def noting(what: str) -> Iterator[None]:
    """What is raised inside goes on, with a note of what raised it: a function of the user's."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Raised by {what}.")
        raise


def announce(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line outside this library from which it was called."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
