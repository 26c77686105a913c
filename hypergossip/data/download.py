"""Downloads: from one mirror after another, resumed where they broke off, checked before they get their name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ..errors import DataUnavailable
from .disk import locked, put_in_place, writing
from .progress import Progress, shown
from .sources import File

TIMEOUT = 30.0
"""Seconds without a byte after which a mirror is given up."""
_CHUNK = 1 << 16


class _Failed(Exception):
    """A mirror did not give the file; what it gave may be the beginning of it."""


class _Wrong(_Failed):
    """What was given is no beginning of the file."""


def download(file: File, target: Path, progress: Progress | None = None) -> None:
    """Makes `target` the file, from its mirrors.

    What has come is in `.NAME.part` next to the target, and another call goes on there, after an
    interruption of any kind. Who comes while another process is at it waits for that one.
    """
    with locked(target.with_name(f".{target.name}.lock")):
        if target.exists():  # another process was faster
            return
        part = _Part(target.with_name(f".{target.name}.part"))
        reasons = []
        with shown(progress) as report:
            for url in file.mirrors:
                try:
                    _from_mirror(url, file, part, report)
                except _Failed as failed:
                    reasons.append(f"{url}: {failed}")
                    continue
                part.become(target)
                return
        raise DataUnavailable(_advice(file, target, part, reasons))


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Part:
    """The beginning of a file, on disk. A disk that fails while it grows does not keep it."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, chunk: bytes) -> None:
        try:
            with writing(self.path), self.path.open("ab") as file:
                file.write(chunk)
        except DataUnavailable:
            self.discard()
            raise

    def discard(self) -> None:
        with suppress(OSError):
            self.path.unlink()

    def become(self, target: Path) -> None:
        with writing(target):
            put_in_place(self.path, target)


def _from_mirror(url: str, file: File, part: _Part, report: Progress) -> None:
    """A part left from before that proves not to fit is thrown away, and the file fetched from its start."""
    while True:
        resumed = part.size > 0
        try:
            return _complete(url, file, part, report)
        except _Wrong:
            part.discard()
            if not resumed:
                raise


def _complete(url: str, file: File, part: _Part, report: Progress) -> None:
    """Fetches what is missing of a part, and checks the whole."""
    if part.size < file.size:
        _append_rest(url, file, part, report)
    if part.size < file.size:
        raise _Failed(f"ended after {part.size} of {file.size} bytes")
    if part.size > file.size:
        raise _Wrong(f"gave more than the {file.size} bytes expected")
    if (found := checksum(part.path)) != file.sha256:
        raise _Wrong(f"gave a file with SHA-256 {found}; expected {file.sha256}")


def _append_rest(url: str, file: File, part: _Part, report: Progress) -> None:
    with _answer(url, part.size) as response:
        if not _goes_on(response, part.size, file.size):
            part.discard()
        done = part.size
        report(file.name, done, file.size)
        for chunk in _received(response):
            part.append(chunk)
            done += len(chunk)
            if done > file.size:
                return
            report(file.name, done, file.size)


def _answer(url: str, start: int) -> Any:
    headers = {"User-Agent": "hypergossip", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        kind = _Wrong if error.code == 416 else _Failed  # there is nothing in that file from `start` on
        raise kind(f"answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise _Failed(_said(error)) from error


def _goes_on(response: Any, start: int, size: int) -> bool:
    """Whether the answer begins at `start`, or at the file's first byte: not every server can do the former."""
    length = response.headers.get("Content-Length")
    offered = int(length) if length and length.isdecimal() else None
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != start:
            raise _Wrong(f"gave another range than the one from byte {start} on")
        offered = None if match[2] == "*" else int(match[2])
    if offered not in (None, size):
        raise _Failed(f"offers {offered} bytes; expected {size}")
    return response.status == 206


def _received(response: Any) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(_CHUNK)
        except (OSError, HTTPException) as error:
            raise _Failed(_said(error)) from error
        if not chunk:
            return
        yield chunk


def _said(error: Exception) -> str:
    """An error of the network in words."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer for {TIMEOUT:g} seconds"
    return str(cause) or type(cause).__name__


def _advice(file: File, target: Path, part: _Part, reasons: list[str]) -> str:
    tried = "".join(f"\n  {reason}" for reason in reasons)
    kept = f" {part.size} bytes of it are kept; another attempt goes on there." if part.size else ""
    return (
        f"{file.name} could not be downloaded:{tried}\nIf there is no network here, put the file into "
        f"{target.parent} by hand ({file.size} bytes, SHA-256 {file.sha256}).{kept}"
    )
