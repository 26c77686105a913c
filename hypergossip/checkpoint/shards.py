"""One file of a checkpoint: arrays and a manifest, written whole or not at all, and checked when read.

The SHA-256 of the file stands beside it, in a file of the same name with `.sha256` behind it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from ..errors import CheckpointDamaged


class Shard(NamedTuple):
    """Some agents of a run, after some outer iterations."""

    path: Path
    manifest: dict[str, Any]
    """"format", "step", "run" (its identity), and which agents it "holds": the first, and the one behind the last."""
    arrays: dict[str, np.ndarray]

    @property
    def agents(self) -> range:
        return range(*self.manifest["holds"])

    def of_agents(self, name: str, like: np.ndarray) -> np.ndarray:
        """An array with an axis of the agents in front, its other axes and its type `like` another's."""
        found = self.arrays.get(name)
        if found is None or (found.shape, found.dtype) != ((len(self.agents), *like.shape[1:]), like.dtype):
            raise self.malformed(f"{name} is missing or of another shape or type")
        return found

    def malformed(self, why: str) -> CheckpointDamaged:
        return _malformed(self.path, why)


def write(shard: Shard) -> None:
    """Writes the file and its checksum."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, manifest=np.array(json.dumps(shard.manifest)), **shard.arrays)
    content = buffer.getvalue()
    try:
        _write(checksum_of(shard.path), hashlib.sha256(content).hexdigest().encode())
        _write(shard.path, content)
    except OSError as error:
        if error.filename is None:  # of a full disk the system does not say which
            error.filename = str(shard.path)
        raise


def read(path: Path) -> Shard:
    """What was written; anything else is damaged."""
    try:
        content = path.read_bytes()
        expected = checksum_of(path).read_bytes()
    except OSError as error:
        raise CheckpointDamaged(f"The checkpoint {path} cannot be read: {error}.") from error
    if hashlib.sha256(content).hexdigest().encode() != expected:
        raise CheckpointDamaged(f"The checkpoint {path} is damaged: its checksum differs from the one written with it.")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        manifest = json.loads(str(arrays.pop("manifest")))
        if not (isinstance(manifest, dict) and isinstance(manifest["run"], dict) and "format" in manifest):
            raise ValueError("its manifest names no run")
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise _malformed(path, str(error)) from error
    return Shard(path, manifest, arrays)


def checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _malformed(path: Path, why: str) -> CheckpointDamaged:
    return CheckpointDamaged(f"The checkpoint {path} is damaged: it is not what hypergossip writes ({why}).")


def _write(path: Path, content: bytes) -> None:
    """Atomically: afterwards the file holds all of the content, or what it held before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)
