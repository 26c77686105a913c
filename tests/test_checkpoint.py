"""A run that is interrupted, however and wherever, goes on to the same bits; one that is another's is refused."""

import dataclasses
import errno
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import table
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hypergossip as hg
from hypergossip.algorithms import Algorithm
from hypergossip.steps import Step, at

STEPS, SEED = 9, 5


class Interrupted(Exception):
    """Stands for whatever ends a run from outside."""


class State(NamedTuple):
    y: jax.Array
    x: jax.Array


class Noisy(Algorithm):
    """Gossip descent on y and x at once, with noise; cheap to compile."""

    outer_step: Step
    inner_step: Step
    rounds: int = eqx.field(static=True, default=1)

    cite: ClassVar[str] = ""
    blame: ClassVar[dict[str, str]] = {"y": "inner_step", "x": "outer_step"}

    def init(self, agent, x, y):
        return State(y, x)

    def step(self, agent, s):
        y = s.y
        for _ in range(self.rounds):
            y = agent.mix(y, "y") - at(self.inner_step, agent.k, y) * agent.exact.gy(s.x, y)
        noise = jax.random.normal(agent.random_key("noise"), s.x.shape, s.x.dtype)
        x = agent.mix(s.x, "x") - at(self.outer_step, agent.k, s.x) * (agent.exact.fx(s.x, y) + noise)
        return State(y, x), {}


class AlsoNoisy(Algorithm):
    """The same rule under another name."""

    outer_step: Step
    inner_step: Step
    rounds: int = eqx.field(static=True, default=1)

    cite: ClassVar[str] = ""
    blame: ClassVar[dict[str, str]] = {}

    init = Noisy.init
    step = Noisy.step


def spread(witness):
    return jnp.max(witness.x)


def upper(x, y, batch, scale=0.5):
    return scale * jnp.sum((y - batch["b"][0]) ** 2) + 0.5 * jnp.sum(x**2)


def lower(x, y, batch):
    return 0.5 * jnp.sum(y**2) - batch["a"][0] * x[0] * jnp.sum(y)


def make(**changed):
    """The small problem, of new function objects every time, as in another process."""
    given = {
        "upper": lambda x, y, batch: upper(x, y, batch),
        "lower": lambda x, y, batch: lower(x, y, batch),
        "upper_data": {"b": np.arange(12.0).reshape(4, 1, 3)},
        "lower_data": {"a": np.arange(4.0)[:, None]},
        "x0": jnp.ones(2),
        "y0": jnp.ones(3),
    }
    given |= changed
    return hg.Problem(given.pop("upper"), given.pop("lower"), **given)


@pytest.fixture(scope="module")
def problem():
    return make()


@pytest.fixture
def run(problem):
    """The small run."""

    def run(steps=STEPS, **changed):
        given = {
            "algorithm": Noisy(0.05, 0.1),
            "problem": problem,
            "topology": hg.ring(4),
            "metrics": [hg.disagreement(), hg.movement(), spread],
            "seed": SEED,
            "record_every": 2,
        }
        return hg.run(steps=steps, **(given | changed))

    return run


@pytest.fixture
def one_iteration_per_chunk(monkeypatch):
    monkeypatch.setattr(importlib.import_module("hypergossip.run"), "_SECONDS_PER_CHUNK", 0.0)


@pytest.fixture
def saved(run, tmp_path, one_iteration_per_chunk):
    """A folder with the checkpoints of 4 and of 5 outer iterations."""
    folder = tmp_path / "saved"
    run(steps=5, checkpoint=folder)
    assert files(folder) == [f"step-000000000{k}.0-of-1.npz{end}" for k in (4, 5) for end in ("", ".sha256")]
    return folder


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def newest(folder):
    return folder / [name for name in files(folder) if name.endswith(".npz")][-1]


def interrupt_at(step):
    def callback(progress):
        if progress.step >= step:
            raise Interrupted

    return callback


def assert_same(one, other):
    """Bitwise, in state, records and running sums."""
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.metrics.keys() == other.metrics.keys()
    for name in one.metrics:
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name])


# Interruptions


@pytest.mark.parametrize("row", table.ROWS, ids=table.NAMES)
@pytest.mark.usefixtures("one_iteration_per_chunk")
def test_every_algorithm_goes_on_where_an_exception_ended_it(row, logistic, tmp_path):
    run = partial(hg.run, row.algorithm, logistic.hg_problem, hg.ring(logistic.n), 6, seed=SEED, record_every=2)
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path, callback=interrupt_at(3))
    seen = []
    resumed = run(checkpoint=tmp_path, callback=seen.append)
    assert [progress.step for progress in seen] == [4, 5, 6]
    assert_same(resumed, run())


@given(st.sets(st.integers(1, STEPS), max_size=4), st.booleans())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("one_iteration_per_chunk")
def test_a_run_in_any_pieces_is_the_unbroken_run(run, tmp_path_factory, pieces, by_exception):
    folder = tmp_path_factory.mktemp("pieces")
    for end in sorted(pieces):
        if by_exception and end < STEPS:
            with pytest.raises(Interrupted):
                run(checkpoint=folder, callback=interrupt_at(end))
        else:
            trace = run(steps=end, checkpoint=folder)
            assert trace.metrics["step"][-1] == end
    assert_same(run(checkpoint=folder), run())


def test_a_finished_run_called_again_returns_what_it_returned_without_another_iteration(run, tmp_path):
    seen = []
    first, again = run(checkpoint=tmp_path), run(checkpoint=tmp_path, callback=seen.append)
    assert seen == []
    assert_same(first, again)


def test_fewer_steps_than_are_saved_are_refused(run, saved):
    with pytest.raises(ValueError, match=r"checkpoint in .*saved is at outer iteration 5, beyond steps = 3"):
        run(steps=3, checkpoint=saved)


def test_a_problem_built_anew_is_the_same_problem(run, saved):
    assert_same(run(checkpoint=saved, problem=make()), run())


CHILD = """
import importlib, sys
import conftest, problems, table
import hypergossip as hg

importlib.import_module("hypergossip.run")._SECONDS_PER_CHUNK = 0.0
row = table.ROWS[table.NAMES.index("DSBO-homogeneous-carry")]
problem = problems.Logistic(n=6, p=4, examples=12).hg_problem
hg.run(row.algorithm, problem, hg.ring(6), 10**6, seed=int(sys.argv[1]), record_every=2, checkpoint=sys.argv[2],
       callback=lambda progress: print(progress.step, flush=True))
"""


def test_a_killed_process_loses_nothing_but_its_last_iteration(logistic, tmp_path):
    tests = Path(__file__).parent
    paths = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(SEED), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    watchdog = threading.Timer(90, child.kill)
    watchdog.start()
    try:
        told = []
        for line in child.stdout:
            told.append(int(line))
            if told[-1] >= 20:
                break
        threading.Event().wait(0.0373)  # into the midst of an iteration, or of writing
        child.send_signal(signal.SIGKILL)
        told += [int(line) for line in child.stdout]
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
    assert child.returncode == -signal.SIGKILL
    row = table.ROWS[table.NAMES.index("DSBO-homogeneous-carry")]
    steps = told[-1] + 3
    run = partial(hg.run, row.algorithm, logistic.hg_problem, hg.ring(logistic.n), steps, seed=SEED, record_every=2)
    seen = []
    resumed = run(checkpoint=tmp_path, callback=seen.append)  # warnings are errors: nothing is found damaged
    assert told[-1] < seen[0].step
    assert len(files(tmp_path)) >= 4
    assert_same(resumed, run())


# Damage


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255), st.booleans())
@example(position=0.5, change=128, in_checksum=True)  # no text any more
@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_is_noticed_and_the_checkpoint_before_is_used(
    run, saved, tmp_path_factory, position, change, in_checksum
):
    folder = shutil.copytree(saved, tmp_path_factory.mktemp("damaged") / "folder")
    file = newest(folder)
    if in_checksum:
        file = file.with_name(f"{file.name}.sha256")
    content = bytearray(file.read_bytes())
    content[int(position * len(content))] ^= change
    file.write_bytes(content)
    seen = []
    with pytest.warns(UserWarning, match=r"step-0000000005\.0-of-1\.npz is damaged.*checkpoint before it is used"):
        resumed = run(checkpoint=folder, callback=seen.append)
    assert seen[0].step == 5
    assert_same(resumed, run())


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-100]),
        lambda file: file.write_bytes(file.read_bytes() + b"\0"),
        lambda file: file.write_bytes(b""),
        lambda file: file.with_name(f"{file.name}.sha256").unlink(),
        lambda file: file.with_name(f"{file.name}.sha256").write_bytes(b""),
    ],
    ids=["cut short", "longer", "empty", "no checksum", "empty checksum"],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(run, saved, damage):
    damage(newest(saved))
    with pytest.warns(
        UserWarning, match=r"step-0000000005\.0-of-1\.npz (is damaged|cannot be read).*before it is used"
    ):
        resumed = run(checkpoint=saved, steps=STEPS)
    assert_same(resumed, run())


def test_what_was_damaged_is_written_anew_and_stays(run, saved):
    newest(saved).write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        first = run(checkpoint=saved, steps=5)
    seen = []
    assert_same(run(checkpoint=saved, steps=5, callback=seen.append), first)  # no warning
    assert seen == []
    assert files(saved) == [f"step-000000000{k}.0-of-1.npz{end}" for k in (4, 5) for end in ("", ".sha256")]


def rewritten(file, **changed):
    """Another content under a right checksum."""
    with np.load(file) as stored:
        arrays = {name: stored[name] for name in stored.files} | changed
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    sign(file)


def sign(file):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.with_name(f"{file.name}.sha256").write_text(digest)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: rewritten(file, manifest=None),
        lambda file: rewritten(file, manifest=np.array("[]")),
        lambda file: rewritten(file, manifest=np.array("{")),
        lambda file: rewritten(file, **{"own.state.x": None}),
        lambda file: rewritten(file, **{"own.state.x": np.zeros(3)}),
        lambda file: rewritten(file, **{"record consensus": np.zeros(1)}),
        lambda file: (file.write_bytes(b"no archive"), sign(file)),
        lambda file: (np.save(file.with_suffix(".npy"), 0.0), file.with_suffix(".npy").replace(file), sign(file)),
    ],
    ids=["no manifest", "another manifest", "half a manifest", "no x", "another x", "short", "no archive", "an array"],
)
def test_what_is_no_checkpoint_under_a_right_checksum_is_damaged(run, saved, change):
    change(newest(saved))
    with pytest.warns(
        UserWarning, match=r"step-0000000005\.0-of-1\.npz is damaged: it is not what .*before it is used"
    ) as warned:
        resumed = run(checkpoint=saved)
    assert warned[0].filename == __file__
    assert_same(resumed, run())


def test_where_all_is_damaged_the_run_starts_anew_and_keeps_what_it_saves_from_then_on(run, saved):
    for file in saved.glob("*.npz"):
        file.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged") as warned, pytest.raises(Interrupted):
        run(checkpoint=saved, callback=interrupt_at(3))
    assert len(warned) == 2
    assert newest(saved).name == "step-0000000003.0-of-1.npz"
    seen = []
    assert_same(run(checkpoint=saved, callback=seen.append), run())
    assert seen[0].step == 4


@pytest.mark.parametrize("call", range(1, 7))
@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_disk_that_fails_while_writing_leaves_the_checkpoint_before_and_no_litter(
    run, saved, monkeypatch, broken, call
):
    calls = []

    def failing(works, *arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return works(*arguments)

    owner = {"fsync": os, "replace": Path}[broken]
    works = getattr(owner, broken)
    with monkeypatch.context() as patched:
        patched.setattr(owner, broken, lambda *arguments: failing(works, *arguments))
        with pytest.raises(OSError, match="No space left"):
            run(checkpoint=saved)
    assert len(calls) == call
    assert not [name for name in files(saved) if name.startswith(".")]
    seen = []
    resumed = run(checkpoint=saved, callback=seen.append)  # no warning: nothing is damaged
    assert seen[0].step >= 6
    assert_same(resumed, run())
    assert files(saved) == [f"step-000000000{k}.0-of-1.npz{end}" for k in (8, 9) for end in ("", ".sha256")]


# What is in a folder


def test_two_checkpoints_are_kept_from_the_second_on(run, tmp_path, one_iteration_per_chunk):
    kept = []
    run(checkpoint=tmp_path, callback=lambda progress: kept.append(files(tmp_path)))
    assert len(kept) == STEPS
    for k, names in enumerate(kept[1:], start=2):
        assert [name for name in names if name.endswith(".npz")] == [f"step-{s:010d}.0-of-1.npz" for s in (k - 1, k)]
        assert len(names) == 4


def test_checkpoints_are_read_without_pickle_and_say_which_run_they_belong_to(run, saved):
    with np.load(newest(saved), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    manifest = json.loads(str(arrays.pop("manifest")))
    assert manifest["format"] == 2
    assert manifest["step"] == 5
    assert manifest["run"]["algorithm"] == "Noisy"
    assert {name for name in manifest["run"] if name.startswith("algorithm.")} == {
        "algorithm.outer_step",
        "algorithm.inner_step",
        "algorithm.rounds",
    }
    at_five = run(steps=5)
    np.testing.assert_array_equal(arrays["own.state.x"], at_five.x)
    np.testing.assert_array_equal(arrays["record step"], [0, 2, 4, 5])
    assert not any(array.dtype.hasobject for array in arrays.values())


def test_a_file_where_a_folder_belongs_is_refused_and_left_alone(run, tmp_path):
    file = tmp_path / "run"
    file.write_text("notes")
    with pytest.raises(ValueError, match="run' is a file; expected a folder"):
        run(checkpoint=file)
    assert file.read_text() == "notes"


def test_folders_are_made_and_other_files_in_them_left_alone(run, tmp_path):
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    (folder / "step-1.txt").write_text("mine too")
    run(checkpoint=str(folder))
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "step-1.txt").read_text() == "mine too"
    assert run(checkpoint=tmp_path / "new" / "folder").metrics["step"][-1] == STEPS
    assert newest(tmp_path / "new" / "folder").name == "step-0000000009.0-of-1.npz"


# Divergence


@pytest.mark.usefixtures("one_iteration_per_chunk")
def test_a_run_that_diverges_keeps_its_last_good_checkpoint_and_reports_again(run, tmp_path):
    wild = partial(run, algorithm=Noisy(0.05, 40.0), steps=50)
    with pytest.raises(hg.Diverged) as first:
        wild(checkpoint=tmp_path)
    last_good = first.value.iteration - 1
    assert newest(tmp_path).name == f"step-{last_good:010d}.0-of-1.npz"
    with np.load(newest(tmp_path)) as file:
        assert (file["own.fate.iteration"] == 0).all()
        assert np.isfinite(file["own.state.y"]).all()
    with pytest.raises(hg.Diverged) as again:
        wild(checkpoint=tmp_path)
    for name in ("agent", "iteration", "variable"):
        assert getattr(again.value, name) == getattr(first.value, name)
    assert_same(again.value.trace, first.value.trace)


def test_a_chunk_in_which_a_run_diverges_is_not_saved(run, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("hypergossip.run"), "_SECONDS_PER_CHUNK", 1e9)
    with pytest.raises(hg.Diverged) as caught:
        run(algorithm=Noisy(0.05, 40.0), steps=200, checkpoint=tmp_path)
    for file in tmp_path.glob("*.npz"):
        with np.load(file) as arrays:
            assert (arrays["own.fate.iteration"] == 0).all()
            assert json.loads(str(arrays["manifest"]))["step"] < caught.value.iteration


# Other runs


SCALE = np.array([1.0, 1.0, 1.0])
scaled = {factor: jax.jit(lambda y, factor=factor: y * jnp.asarray(SCALE * factor)) for factor in (1.0, 1.0 + 1e-12)}


def with_array_in_jit(factor):
    return make(lower=lambda x, y, batch: lower(x, scaled[factor](y), batch))


@jax.custom_jvp
def with_true_slope(x):
    return x**2


@jax.custom_jvp
def with_other_slope(x):
    return x**2


with_true_slope.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
with_other_slope.defjvp(lambda primals, tangents: (primals[0] ** 2, 3 * primals[0] * tangents[0]))


def with_slope(square):
    def penalised(x, y, batch):
        return upper(x, y, batch) + jnp.sum(square(x))

    return make(upper=penalised)


def first_rows(key, data, batch_size):
    return jax.tree.map(lambda leaf: leaf[:batch_size], data)


def table_of_steps(first):
    steps = first / np.arange(1.0, 10.0)
    return jax.jit(lambda k: jnp.asarray(steps)[k])


def above(threshold):
    def share(witness):
        return jnp.mean(jnp.where(witness.x > threshold, 1.0, 0.0))

    return share


OTHER_RUNS = {
    "algorithm": ({"algorithm": AlsoNoisy(0.05, 0.1)}, "algorithm: Noisy there, AlsoNoisy here"),
    "step": ({"algorithm": Noisy(0.05, 0.2)}, r"algorithm\.inner_step: 0\.1 there, 0\.2 here"),
    "schedule": ({"algorithm": Noisy(lambda k: 0.05, 0.1)}, r"algorithm\.outer_step: 0\.05 there, formula \w+ here"),
    "count": ({"algorithm": Noisy(0.05, 0.1, rounds=2)}, r"algorithm\.rounds: 1 there, 2 here"),
    "upper data": (
        {"problem": lambda: make(upper_data={"b": np.ones((4, 1, 3))})},
        r"upper data of 4 agents: \w+ there, \w+ here at agent 0",
    ),
    "lower data": (
        {"problem": lambda: make(lower_data={"a": np.ones((4, 1))})},
        r"lower data of 3 agents: \w+ there, \w+ here at agent 0",
    ),
    "formula": (
        {"problem": lambda: make(lower=lambda x, y, batch: lower(x, jnp.sin(y), batch))},
        r"lower loss: formula \w+ there, formula \w+ here",
    ),
    "constant": (
        {"problem": lambda: make(upper=partial(upper, scale=0.5 + 1e-15))},
        r"upper loss: formula \w+ there, formula \w+ here",
    ),
    "start": ({"problem": lambda: make(x0=jnp.zeros(2))}, r"start of 4 agents: \w+ there, \w+ here at agent 0"),
    "drawing": ({"problem": lambda: make(sample=first_rows)}, r"sampling: sample_rows there, first_rows \w+ here"),
    "weights": ({"topology": hg.ring(4, 0.4)}, r"graph: 4 agents, 4 edges, \w+ there, 4 agents, 4 edges, \w+ here"),
    "edges": ({"topology": hg.complete(4)}, r"graph: 4 agents, 4 edges, \w+ there, 4 agents, 6 edges, \w+ here"),
    "seed": ({"seed": 6}, "seed: 5 there, 6 here"),
    "records": ({"record_every": 3}, "record_every: 2 there, 3 here"),
    "metrics": ({"metrics": [spread]}, r"metrics: \['Disagreement.*there, \['spread \w+'\] here"),
}


@pytest.mark.parametrize(("changed", "message"), OTHER_RUNS.values(), ids=OTHER_RUNS.keys())
def test_a_checkpoint_of_another_run_is_refused_by_what_differs(run, saved, changed, message):
    changed = {name: value() if name == "problem" else value for name, value in changed.items()}
    before = {path: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(
        hg.CheckpointMismatch, match=r"(?s)step-0000000005\.0-of-1\.npz belongs to another run.*" + message
    ):
        run(checkpoint=saved, **changed)
    assert {path: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            {"problem": partial(with_array_in_jit, 1.0)},
            {"problem": partial(with_array_in_jit, 1.0 + 1e-12)},
            "lower loss: formula",
        ),
        (
            {"problem": partial(with_slope, with_true_slope)},
            {"problem": partial(with_slope, with_other_slope)},
            "upper loss: formula",
        ),
        (
            {"algorithm": Noisy(lambda k: 0.1 / jnp.sqrt(k + 1), 0.1)},
            {"algorithm": Noisy(lambda k: 0.2 / jnp.sqrt(k + 1), 0.1)},
            r"algorithm\.outer_step: formula",
        ),
        (
            {"algorithm": Noisy(table_of_steps(0.1), 0.1)},
            {"algorithm": Noisy(table_of_steps(0.2), 0.1)},
            r"algorithm\.outer_step: formula",
        ),
        ({"metrics": [above(0.1)]}, {"metrics": [above(0.2)]}, r"metrics: \['above"),
        (
            {"metrics": [hg.inner_error(tolerance=1e-3)]},
            {"metrics": [hg.inner_error(tolerance=1e-4)]},
            r"metrics: .*tolerance=0\.001.* there, .*tolerance=0\.0001.* here",
        ),
    ],
    ids=[
        "an array inside a jit",
        "a derivative of one's own",
        "two schedules",
        "two tables of steps",
        "what a metric closes over",
        "a tolerance",
    ],
)
def test_what_hides_inside_a_function_sets_runs_apart(run, tmp_path, one, other, message):
    one, other = ({name: value() if name == "problem" else value for name, value in c.items()} for c in (one, other))
    run(steps=2, checkpoint=tmp_path, **one)
    with pytest.raises(hg.CheckpointMismatch, match=message):
        run(steps=2, checkpoint=tmp_path, **other)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inner_iterations": 4}, r"algorithm\.inner_iterations: 3 there, 4 here"),
        ({"carry": False}, r"algorithm\.carry: True there, False here"),
        ({"hypergradient": hg.AID(iterations=4)}, r"algorithm\.hypergradient\.iterations: 3 there, 4 here"),
        (
            {"hypergradient": hg.Neumann(step=0.1, terms=3)},
            r"(?s)algorithm\.hypergradient: AID there, Neumann here.*\.terms: none there, 3 here",
        ),
    ],
)
def test_settings_of_the_librarys_own_algorithms_set_runs_apart(logistic, tmp_path, changed, message):
    row = table.ROWS[table.NAMES.index("DBO-homogeneous-carry")]
    run = partial(hg.run, problem=logistic.hg_problem, topology=hg.ring(logistic.n), steps=2, checkpoint=tmp_path)
    run(row.algorithm)
    with pytest.raises(hg.CheckpointMismatch, match=message):
        run(dataclasses.replace(row.algorithm, **changed))


def test_a_checkpoint_of_another_format_is_refused(run, saved):
    for file in saved.glob("*.npz"):
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        manifest = json.loads(str(arrays["manifest"])) | {"format": 99}
        np.savez(file, **(arrays | {"manifest": np.array(json.dumps(manifest))}))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        file.with_name(f"{file.name}.sha256").write_text(digest)
    with pytest.raises(hg.CheckpointMismatch, match="has format 99; this version of hypergossip reads 2"):
        run(checkpoint=saved)
