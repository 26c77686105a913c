"""Saving a run so that nothing is lost: atomic, checksummed, versioned, and without pickle.

A checkpoint is one file, `step-<k>.npz`: the arrays of the run and, as `manifest`, JSON that says
which run they belong to. The SHA-256 of the file stands in `step-<k>.npz.sha256`. Files are
written under another name, flushed to the disk and renamed; the last two are kept.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from . import fingerprint
from .algorithms import Algorithm
from .errors import CheckpointDamaged, CheckpointMismatch
from .messages import announce
from .parts import variables_of
from .problem import Problem
from .topology import Topology

FORMAT = 1
_KEPT = 2


class Checkpoints:
    """The checkpoints of one run in one folder."""

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, Any]):
        self.folder = Path(folder)
        self.identity = json.loads(json.dumps(identity))
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint = {str(folder)!r} is a file; expected a folder, or a name for a new one.")
        self.folder.mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return str(self.folder)

    def save(self, step: int, own: PyTree, common: PyTree, records: dict[str, np.ndarray]) -> None:
        """Writes the run after `step` outer iterations, and forgets all but the last two."""
        arrays = {f"own{name}": leaf for name, leaf in _named_leaves(own)}
        arrays |= {f"common{name}": leaf for name, leaf in _named_leaves(common)}
        arrays |= {f"record {name}": values for name, values in records.items()}
        manifest = json.dumps({"format": FORMAT, "step": step, "run": self.identity})
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, manifest=np.array(manifest), **arrays)
        content = buffer.getvalue()
        path = self.folder / f"step-{step:010d}.npz"
        _write(path.with_name(path.name + ".sha256"), hashlib.sha256(content).hexdigest().encode())
        _write(path, content)
        self._forget(step)

    def _forget(self, step: int) -> None:
        """Keeps the checkpoint of this step and the one before it.

        Those of later steps were found damaged, or this step would not have been computed again.
        """
        earlier = [found for found, _ in self._files() if found < step]
        kept = {step, *earlier[: _KEPT - 1]}
        for path in self.folder.iterdir():  # names that begin with a dot: a process was killed while it wrote them
            match = re.fullmatch(r"step-(\d+)\.npz(\.sha256)?|\.step-.*", path.name)
            if match and (match[1] is None or int(match[1]) not in kept):
                path.unlink(missing_ok=True)

    def latest(self, own: PyTree, common: PyTree) -> tuple[int, PyTree, PyTree, dict[str, np.ndarray]] | None:
        """The newest undamaged checkpoint as (step, own, common, records); None where there is none.

        `own` and `common` are the run's start: they give the structure to be filled.
        """
        for step, path in self._files():
            try:
                manifest, arrays = _read(path)
                self._check(manifest, path)
                return step, *_restored(path, arrays, own, common)
            except CheckpointDamaged as damage:
                announce(f"{damage} The checkpoint before it is used, if there is one.")
        return None

    def _files(self) -> list[tuple[int, Path]]:
        """(step, path), newest first."""
        found = [(re.fullmatch(r"step-(\d+)\.npz", path.name), path) for path in self.folder.iterdir()]
        return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def _check(self, manifest: dict[str, Any], path: Path) -> None:
        if manifest["format"] != FORMAT:
            raise CheckpointMismatch(
                f"{path} has format {manifest['format']}; this version of hypergossip reads {FORMAT}."
            )
        saved = manifest["run"]
        differing = [key for key in {**saved, **self.identity} if saved.get(key) != self.identity.get(key)]
        if differing:
            lines = [
                f"  {key}: {saved.get(key, 'none')} there, {self.identity.get(key, 'none')} here" for key in differing
            ]
            raise CheckpointMismatch(
                f"The checkpoint {path} belongs to another run:\n"
                + "\n".join(lines)
                + "\nUse another folder, or delete this one."
            )


def identity(
    algorithm: Algorithm,
    problem: Problem,
    topology: Topology,
    functions: dict[str, Any],
    seed: int,
    record_every: int,
) -> dict[str, Any]:
    """What makes a run this run: anything here that differs makes another of it.

    `functions` are the fingerprints of what the user's functions compute.
    """
    return {
        "algorithm": type(algorithm).__qualname__,
        **{f"algorithm{path}": fingerprint.shown(value) for path, value in fingerprint.fields(algorithm)},
        **{name: value for name, value in functions.items() if name != "schedules"},  # they are fields
        "upper data": fingerprint.of_values(problem.upper_data),
        "lower data": fingerprint.of_values(problem.lower_data),
        "start": fingerprint.of_values(variables_of((problem.x0, problem.y0))),
        "own leaves of x": list(problem.own),
        "graph": f"{topology.n} agents, {len(topology.edges) // 2} edges, {topology.digest[:12]}",
        "seed": seed,
        "record_every": record_every,
    }


def _named_leaves(tree: PyTree) -> list[tuple[str, np.ndarray]]:
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _restored(
    path: Path, arrays: dict[str, np.ndarray], own: PyTree, common: PyTree
) -> tuple[PyTree, PyTree, dict[str, np.ndarray]]:
    records = {name.removeprefix("record "): v for name, v in arrays.items() if name.startswith("record ")}
    if {len(values) for values in records.values()} != {len(records.get("step", []))}:
        raise _malformed(path, "its records differ in length")
    return _filled(path, "own", own, arrays), _filled(path, "common", common, arrays), records


def _filled(path: Path, prefix: str, template: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    leaves = []
    for suffix, leaf in _named_leaves(template):
        found = arrays.get(f"{prefix}{suffix}")
        if found is None or (found.shape, found.dtype) != (leaf.shape, leaf.dtype):
            raise _malformed(path, f"{prefix}{suffix} is missing or of another shape or type")
        leaves.append(jnp.asarray(found))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        content = path.read_bytes()
        expected = path.with_name(path.name + ".sha256").read_bytes()
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
    return manifest, arrays


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
