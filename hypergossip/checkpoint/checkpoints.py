"""The checkpoints of one run in one folder, shared by its processes or one for each of them."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import CheckpointDamaged, CheckpointMismatch
from ..messages import announce
from ..processes import Meeting
from . import shards
from .shards import Shard

FORMAT = 2
_KEPT = 2
_NAME = re.compile(r"step-(\d+)\.(\d+)-of-(\d+)\.npz")
_FINGERPRINT = "fingerprint "

Records = dict[str, np.ndarray]


class _Set(NamedTuple):
    """The shards that belong together: written after the same iterations by so many processes."""

    step: int
    processes: int


class Checkpoints:
    """The checkpoints of one run, as one process of `meeting` sees them, which has these `agents`.

    `identity` is what makes the run this run, `fingerprints` what makes each of the agents this agent.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        identity: dict[str, Any],
        fingerprints: dict[str, np.ndarray],
        agents: range,
        meeting: Meeting,
    ):
        self.folder = Path(folder)
        self.identity, self.fingerprints = json.loads(json.dumps(identity)), fingerprints
        self.agents, self.meeting = agents, meeting
        self._whole: list[int] = []
        """The iterations of the checkpoints that are known to be whole, in their order."""
        self._damaged: set[_Set] = set()
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint = {str(folder)!r} is a file; expected a folder, or a name for a new one.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise ValueError(
                f"checkpoint = {str(folder)!r} cannot be written to: {error.strerror}; expected a folder of yours, "
                "or a name for a new one."
            ) from error

    def __str__(self) -> str:
        return str(self.folder)

    def save(self, step: int, own: PyTree, records: Records) -> None:
        """Writes this process's agents after `step` outer iterations; when all have, forgets all but the last two."""
        manifest = {
            "format": FORMAT,
            "step": step,
            "holds": [self.agents.start, self.agents.stop],
            "run": self.identity,
        }
        arrays = dict(_named_leaves(own))
        arrays |= {f"{_FINGERPRINT}{name}": values for name, values in self.fingerprints.items()}
        arrays |= {f"record {name}": values for name, values in records.items()}
        shards.write(Shard(self.folder / self._name(step), manifest, arrays))
        self.meeting.gather("a checkpoint is written")
        self._whole = [*self._whole, step][-_KEPT:]
        self._forget(step)

    def latest(self, own: PyTree) -> tuple[int, PyTree, Records] | None:
        """The newest checkpoint that is whole in all processes, as (step, own, records); None where there is none.

        `own` is this process's part of the run's start: it gives the structure to be filled.
        """
        self._tidy()
        here = sorted({one for one, _ in self._shards()})
        seen = [
            {_Set(*one) for one in of_process} for of_process in self.meeting.gather("which checkpoints are here", here)
        ]
        for newest in sorted(set.intersection(*seen), reverse=True):
            found = self._read(newest, own)
            states = self.meeting.gather("reading a checkpoint", found if isinstance(found, str) else "whole")
            if not isinstance(found, str) and set(states) == {"whole"}:
                self._whole.append(newest.step)
                return newest.step, *found
            if "damaged" in states:
                self._damaged.add(newest)
        self._refuse_to_begin_anew(set.union(*seen) - self._damaged)
        return None

    def _read(self, chosen: _Set, own: PyTree) -> tuple[PyTree, Records] | str:
        """This process's agents, from as many shards as they lie in; else "damaged" (it warns), or "incomplete"."""
        try:
            if not (mine := self._covering(chosen)):
                return "incomplete"
            self._check_fingerprints(mine)
            return self._filled(own, mine), _records(mine[0])
        except CheckpointDamaged as damage:
            announce(f"{damage} The checkpoint before it is used, if there is one.")
            return "damaged"

    def _refuse_to_begin_anew(self, incomplete: set[_Set]) -> None:
        """Over the last checkpoint a process may have been killed; those before it were whole, and are work."""
        steps = sorted({one.step for one in incomplete})
        if len(steps) > 1:
            raise CheckpointDamaged(
                f"The checkpoint of outer iteration {steps[-2]} in {self} is not all there: each process needs the "
                "shards that its agents are in. Give every process the folder that has them, start as many processes "
                "as wrote them, or use another folder to begin anew."
            )

    def _covering(self, chosen: _Set) -> list[Shard]:
        """The shards in which this process's agents lie, in their order; none where some are not here."""
        own = self._name(chosen.step)
        paths = [path for one, path in self._shards() if one == chosen]
        mine: list[Shard] = []
        for path in sorted(paths, key=lambda path: path.name != own):  # its own is likely to be all that it needs
            if _overlap((shard := self._shard(path)).agents, self.agents):
                mine.append(shard)
                mine.sort(key=lambda shard: shard.agents.start)
            if [i for shard in mine for i in _overlap(shard.agents, self.agents)] == list(self.agents):
                return mine
        return []

    def _shard(self, path: Path) -> Shard:
        """A shard of this run; one of another is refused."""
        shard = shards.read(path)
        if shard.manifest["format"] != FORMAT:
            raise CheckpointMismatch(
                f"{path} has format {shard.manifest['format']}; this version of hypergossip reads {FORMAT}."
            )
        saved, here = shard.manifest["run"], self.identity
        differing = [key for key in {**saved, **here} if saved.get(key) != here.get(key)]
        self._refuse(
            path, [f"{key}: {saved.get(key, 'none')} there, {here.get(key, 'none')} here" for key in differing]
        )
        return shard

    def _check_fingerprints(self, mine: list[Shard]) -> None:
        """Every agent of this process has what it had."""
        for shard in mine:
            there, here = _slices(shard.agents, self.agents)
            lines = []
            for name, fingerprints in self.fingerprints.items():
                saved, now = shard.of_agents(f"{_FINGERPRINT}{name}", fingerprints)[there], fingerprints[here]
                if (other := np.flatnonzero(saved != now)).size:
                    one, count = other[0], f"{other.size} agent{'s' if other.size > 1 else ''}"
                    agent = self.agents[here][one]
                    lines.append(f"{name} of {count}: {saved[one]} there, {now[one]} here at agent {agent}")
            self._refuse(shard.path, lines)

    def _refuse(self, path: Path, differences: list[str]) -> None:
        if differences:
            lines = "".join(f"\n  {line}" for line in differences)
            raise CheckpointMismatch(
                f"The checkpoint {path} belongs to another run:{lines}\nUse another folder, or delete this one."
            )

    def _filled(self, template: PyTree, mine: list[Shard]) -> PyTree:
        leaves = []
        for name, leaf in _named_leaves(template):
            pieces = [shard.of_agents(name, leaf)[_slices(shard.agents, self.agents)[0]] for shard in mine]
            leaves.append(jnp.asarray(np.concatenate(pieces)))
        return jax.tree.unflatten(jax.tree.structure(template), leaves)

    def _forget(self, step: int) -> None:
        """Keeps the last whole ones, and what is of later iterations unless it was found damaged."""
        for path in self.folder.glob("step-*"):
            if match := _NAME.fullmatch(path.name.removesuffix(".sha256")):
                one = _Set(int(match[1]), int(match[3]))
                if one.step not in self._whole and (one.step <= step or one in self._damaged):
                    path.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Removes what a process was killed over while it wrote; nobody writes now."""
        for path in self.folder.glob(".step-*"):
            path.unlink(missing_ok=True)

    def _name(self, step: int) -> str:
        return f"step-{step:010d}.{self.meeting.place}-of-{len(self.meeting.processes)}.npz"

    def _shards(self) -> Iterator[tuple[_Set, Path]]:
        for path in sorted(self.folder.iterdir()):
            if match := _NAME.fullmatch(path.name):
                yield _Set(int(match[1]), int(match[3])), path


def _records(shard: Shard) -> Records:
    records = {name.removeprefix("record "): v for name, v in shard.arrays.items() if name.startswith("record ")}
    if {len(values) for values in records.values()} != {len(records.get("step", []))}:
        raise shard.malformed("its records differ in length")
    return records


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _slices(there: range, here: range) -> tuple[slice, slice]:
    """Where the agents that are in both stand in either."""
    both = _overlap(there, here)
    return (
        slice(both.start - there.start, both.stop - there.start),
        slice(both.start - here.start, both.stop - here.start),
    )


def _named_leaves(tree: PyTree) -> list[tuple[str, np.ndarray]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(f"own{jax.tree_util.keystr(path)}", np.asarray(leaf)) for path, leaf in leaves]
