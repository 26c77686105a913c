"""Writing files whole: locks, renames, and what a disk can answer."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..errors import DataUnavailable

_ELSEWHERE = "Name another folder (folder=...), or set HYPERGOSSIP_DATA to one that has the files."


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says what is wrong with the disk in terms of the file that was to be written."""
    try:
        yield
    except DataUnavailable:
        raise
    except OSError as error:
        raise _explained(error, path) from error


def _explained(error: OSError, path: Path) -> DataUnavailable:
    said = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = f"No space is left for {path} ({said}). Free some, or choose another disk. {_ELSEWHERE}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        text = f"{path.parent} cannot be written to ({said}). {_ELSEWHERE}"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        text = f"{path.parent} is no folder, or something above it is none ({said}). {_ELSEWHERE}"
    else:
        text = f"{path} could not be written ({said}). {_ELSEWHERE}"
    explained = DataUnavailable(text)
    explained.errno = error.errno
    return explained


def put_in_place(part: Path, target: Path) -> None:
    """Renames a finished file so that, power cut or not, the name stands for all of it or is not there."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(target)
    if sys.platform != "win32":  # where folders cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process or thread at a time; the others wait. The lock ends with its process, however that ends.

    On a file system without locks nobody waits.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _held(path)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove open files; an empty one stays there
            path.unlink()
        file.close()


def _held(path: Path) -> IO[bytes]:
    """The lock file, open and locked. Who held it before may have removed it meanwhile: then it is another's name."""
    while True:
        file = path.open("ab")
        try:
            _wait_for(file)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


if sys.platform == "win32":
    import msvcrt

    def _wait_for(file: IO[bytes]) -> None:
        while True:
            try:
                return msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            except OSError as error:  # not free within ten seconds
                if error.errno != errno.EDEADLK:
                    return None
else:
    import fcntl

    def _wait_for(file: IO[bytes]) -> None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
