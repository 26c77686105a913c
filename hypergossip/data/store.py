"""Where files are looked for: the folder named, HYPERGOSSIP_DATA, the user's cache; and where they are put."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataDamaged, DataUnavailable
from .download import checksum, download
from .progress import Progress
from .sources import File

ENVIRONMENT = "HYPERGOSSIP_DATA"
Folder = str | os.PathLike[str] | None


def obtain(forms: Sequence[File], folder: Folder, *, fetch: bool, progress: Progress | None) -> Path:
    """The path of a file, in any of the forms in which it is known; checked, and downloaded if need be.

    A file that is there but is not the one published is an error. It is never replaced.
    """
    for root in roots(folder):
        for file in forms:
            if (path := file.below(root)).is_file():
                check(path, file)
                return path
    offered = next(file for file in forms if file.mirrors)
    if not fetch:
        raise DataUnavailable(_missing(forms, offered, folder))
    target = offered.below(destination(folder))
    download(offered, target, progress)
    return target


def roots(folder: Folder) -> list[Path]:
    """The folders in which to look, in order."""
    named = {"folder": folder, f"The environment variable {ENVIRONMENT}": os.environ.get(ENVIRONMENT)}
    return [*(_folder(name, path) for name, path in named.items() if path), cache()]


def destination(folder: Folder) -> Path:
    """Where to put what is not there: the folder named, if it can be written to, otherwise the user's cache."""
    if folder and _writable(named := Path(folder).expanduser()):
        return named
    return cache()


def cache() -> Path:
    """The user's own, by the rule of the platform."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = base if base.is_absolute() else Path.home() / ".cache"
    return base / "hypergossip"


def check(path: Path, file: File) -> None:
    size, found = path.stat().st_size, checksum(path)
    if (size, found) != (file.size, file.sha256):
        raise DataDamaged(
            f"{path} is damaged, or another file: it has {size} bytes and SHA-256 {found}; expected {file.size} bytes "
            f"and {file.sha256}. Move it away, and the file is looked for elsewhere or downloaded."
        )


def _folder(name: str, path: str | os.PathLike[str]) -> Path:
    folder = Path(path).expanduser()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{name} is {str(path)!r}, which is a file; expected a folder.")
    return folder


def _writable(folder: Path) -> bool:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _missing(forms: Sequence[File], offered: File, folder: Folder) -> str:
    names = " or ".join(f"{file.folder}/{file.name}" for file in forms)
    places = ", ".join(str(root) for root in roots(folder))
    return (
        f"There is no {names} in any of: {places}. Put it there by hand, from {offered.mirrors[0]}, or let it be "
        f"downloaded (download=True). The environment variable {ENVIRONMENT} can name another folder to look in."
    )
