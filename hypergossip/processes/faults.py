"""Which errors mean that another process is gone, and which that this machine failed, not the program."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ProcessLost

_LOST = re.compile(r"\bGloo\b|\bNCCL\b|CoordinationService|coordination service|Barrier timed out")
"""How JAX's runtime speaks of processes that do not answer; the classes of these errors are too general to tell."""

_PROGRAMS_OWN = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of the operating system that come again when the program is run again."""


def is_loss(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, says that another process cannot be reached."""
    return any(isinstance(one, ProcessLost) or (_is_jaxs(one) and _LOST.search(str(one))) for one in _causes(error))


def told(error: BaseException) -> ProcessLost | None:
    """What another process told of its own end, if it could."""
    return next((one for one in _causes(error) if isinstance(one, ProcessLost) and one.process is not None), None)


def is_fault(error: BaseException) -> bool:
    """Whether an error may not come again: a full disk, a broken connection. The program's own errors do."""
    return isinstance(error, OSError) and not isinstance(error, _PROGRAMS_OWN)


def _is_jaxs(error: BaseException) -> bool:
    return isinstance(error, (RuntimeError, ValueError))  # JAX raises both, depending on who asks for the value


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
