"""Saving a run so that nothing is lost: atomic, checksummed, versioned, and without pickle.

A checkpoint is one file, `step-<k>.npz`: the arrays of the run and, as `manifest`, JSON that says
which run they belong to. The SHA-256 of the file stands in `step-<k>.npz.sha256`. Files are
written under another name, flushed to the disk and renamed; the last two are kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from .algorithms import Algorithm
from .errors import CheckpointDamaged, CheckpointMismatch
from .problem import Problem
from .topology import Topology

FORMAT = 1
_KEPT = 2
_SHOWN = 16
"""A field with more numbers than this, a metric's test data say, stands as a digest in the manifest."""


class Checkpoints:
    """The checkpoints of one run in one folder."""

    def __init__(self, folder: str | Path, identity: dict[str, Any]):
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
            except CheckpointDamaged as damage:
                warnings.warn(f"{damage} The checkpoint before it is used, if there is one.", stacklevel=6)
                continue
            self._check(manifest, path)
            records = {name.removeprefix("record "): v for name, v in arrays.items() if name.startswith("record ")}
            return step, _filled("own", own, arrays), _filled("common", common, arrays), records
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
    algorithm: Algorithm, problem: Problem, topology: Topology, metrics: Sequence[Any], seed: int, record_every: int
) -> dict[str, Any]:
    """What makes a run this run: anything here that differs makes another of it."""
    start = jax.tree.map(lambda leaf: leaf[0], (problem.x0, problem.y0))
    batches = [jax.tree.map(lambda leaf: leaf[0], data) for data in (problem.upper_data, problem.lower_data)]
    return {
        "algorithm": type(algorithm).__qualname__,
        **{f"algorithm{name}": _value(leaf) for name, leaf in _fields(algorithm)},
        "upper loss": _formula(jax.value_and_grad(problem.upper, argnums=(0, 1)), *start, batches[0]),
        "lower loss": _formula(jax.value_and_grad(problem.lower, argnums=(0, 1)), *start, batches[1]),
        "sampling": _described(problem.sample),
        "upper data": _digest(problem.upper_data),
        "lower data": _digest(problem.lower_data),
        "start": _digest((problem.x0, problem.y0)),
        "own leaves of x": list(problem.own),
        "graph": f"{topology.n} agents, {len(topology.edges) // 2} edges, {topology.digest[:12]}",
        "metrics": [_described(metric) for metric in metrics],
        "seed": seed,
        "record_every": record_every,
    }


def _fields(module: eqx.Module, prefix: str = "") -> list[tuple[str, Any]]:
    """(path, value) of every field, those of modules inside it included."""
    found: list[tuple[str, Any]] = []
    for field in dataclasses.fields(module):
        value, path = getattr(module, field.name), f"{prefix}.{field.name}"
        if isinstance(value, eqx.Module):
            found += [(path, type(value).__qualname__), *_fields(value, path)]
        else:
            found.append((path, value))
    return found


def _value(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return leaf
    if callable(leaf):
        return _formula(leaf, jnp.zeros((), jnp.int32))
    array = np.asarray(leaf)
    return array.tolist() if array.size <= _SHOWN else _digest(array)


def _formula(function: Callable[..., Any], *arguments: Any) -> str:
    """A fingerprint of what a function computes on these shapes, constants included; not of its source text."""
    closed = jax.make_jaxpr(function)(*arguments)
    digest = hashlib.sha256(_without_addresses(closed.jaxpr))
    for constant in _constants(closed):
        digest.update(np.asarray(constant).tobytes())
    return f"formula {digest.hexdigest()[:12]}"


def _constants(program: core.ClosedJaxpr | core.Jaxpr) -> Iterator[Any]:
    """The arrays that a traced program closes over, those of the programs inside it (a `jit`, a loop) included."""
    if isinstance(program, core.ClosedJaxpr):
        yield from program.consts
    kinds = (core.ClosedJaxpr, core.Jaxpr)
    for equation in program.eqns:
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda leaf: isinstance(leaf, kinds)):
            if isinstance(value, kinds):
                yield from _constants(value)


def _described(function: Any) -> str:
    """A metric or a way to draw rows: its name, and what sets it apart from another of the same name.

    Those are fields, or the code of a user's function and what it closes over: the arguments with
    which it could be traced are not known here.
    """
    if isinstance(function, eqx.Module):
        fields = ", ".join(f"{path[1:]}={_value(value)}" for path, value in _fields(function))
        return f"{type(function).__qualname__}({fields})"
    function = inspect.unwrap(function)
    if not inspect.isfunction(function):
        return _without_addresses(function).decode()
    if function.__module__.partition(".")[0] == __package__:
        return function.__qualname__
    digest = hashlib.sha256(_code(function.__code__))
    for cell in function.__closure__ or ():
        captured = cell.cell_contents
        digest.update(_without_addresses(captured) + _digest(eqx.filter(captured, eqx.is_array_like)).encode())
    return f"{function.__qualname__} {digest.hexdigest()[:12]}"


def _code(code: CodeType) -> bytes:
    parts = [code.co_code, repr(code.co_names).encode()]
    for constant in code.co_consts:
        # The order of a set's items differs from process to process.
        constant = sorted(constant, key=repr) if isinstance(constant, frozenset) else constant
        parts.append(_code(constant) if isinstance(constant, CodeType) else repr(constant).encode())
    return b"".join(parts)


def _without_addresses(value: object) -> bytes:
    """The text of a value; addresses of objects, which differ from process to process, say nothing about it."""
    return re.sub(r"0x[0-9a-f]+", "0x", str(value)).encode()


def _digest(tree: PyTree) -> str:
    digest = hashlib.sha256(_without_addresses(jax.tree.structure(tree)))
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def _named_leaves(tree: PyTree) -> list[tuple[str, np.ndarray]]:
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _filled(prefix: str, template: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    names = [f"{prefix}{name}" for name, _ in _named_leaves(template)]
    return jax.tree.unflatten(jax.tree.structure(template), [jnp.asarray(arrays[name]) for name in names])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        content = path.read_bytes()
        expected = path.with_name(path.name + ".sha256").read_bytes()
    except OSError as error:
        raise CheckpointDamaged(f"The checkpoint {path} cannot be read: {error}.") from error
    if hashlib.sha256(content).hexdigest().encode() != expected:
        raise CheckpointDamaged(f"The checkpoint {path} is damaged: its checksum differs from the one written with it.")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("manifest"))), arrays


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
