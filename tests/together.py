"""What two processes that run together find out; run by test_together.py, which knows what they should.

Every process prints its findings as one line of JSON.
"""

import contextlib
import errno
import importlib
import json
import os
import sys
import warnings
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import problems  # noqa: E402
from scipy import sparse  # noqa: E402

import hypergossip as hg  # noqa: E402
from hypergossip.processes import Meeting  # noqa: E402

N = 4
both = Meeting.of([0, 1])
HERE = jax.process_index()
MINE = hg.Distributed().agents(N)
CUT = slice(MINE.start, MINE.stop)
FOLDER = Path(sys.argv[1])
QUADRATIC = problems.Quadratic(n=N, p=2, q=3, heterogeneous=True).hg_problem
OWN = problems.of_agents(QUADRATIC, MINE)
ALGORITHM = hg.DBOGT(0.05, 0.1, 2, hg.HIGP(0.1, 2))
RING = hg.ring(N)
SHORT = {"steps": 3, "metrics": [hg.movement()]}
importlib.import_module("hypergossip.run")._SECONDS_PER_CHUNK = 0.0  # a checkpoint after every iteration

upper, lower = QUADRATIC.upper, QUADRATIC.lower


def run(problem=OWN, algorithm=ALGORITHM, topology=RING, **changed):
    return hg.run(algorithm, problem, topology, **SHORT | changed)


def refusal(**changed):
    """What this process is told."""
    try:
        run(**changed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def here(one, other):
    """`one` in process 0, `other` in process 1."""
    return other if HERE else one


def restarted(**changed):
    given = {"upper_data": OWN.upper_data, "lower_data": OWN.lower_data, "x0": jnp.zeros(2), "y0": jnp.zeros(3)}
    given |= changed
    return hg.Problem(given.pop("upper", upper), given.pop("lower", lower), **given)


def scaled(factor):
    return restarted(lower=lambda x, y, batch: factor * lower(x, y, batch))


def refusals():
    """Things that must agree and do not."""
    return {
        "steps": refusal(steps=here(3, 4)),
        "seed": refusal(seed=here(0, 1)),
        "a step size": refusal(algorithm=here(ALGORITHM, hg.DBOGT(0.05, 0.2, 2, hg.HIGP(0.1, 2)))),
        "an algorithm": refusal(algorithm=here(ALGORITHM, hg.DBO(0.05, 0.1, 2, hg.HIGP(0.1, 2)))),
        "the graph": refusal(topology=here(RING, hg.path(N))),
        "x0": refusal(problem=restarted(x0=here(jnp.zeros(2), jnp.ones(2)))),
        "a loss": refusal(problem=scaled(here(1.0, 2.0))),
        "a metric": refusal(metrics=here([hg.movement()], [hg.upper_loss()])),
        "shapes": refusal(problem=more_rows(here(1, 2))),
        "a bad argument in one": refusal(steps=here(3, "three")),
        "all agents' data": refusal(problem=QUADRATIC),
        "a checkpoint in one": refusal(checkpoint=here(FOLDER / "alone", None)),
    }


def more_rows(times):
    data = jax.tree.map(lambda leaf: jnp.repeat(leaf, times, axis=1), (OWN.upper_data, OWN.lower_data))
    return restarted(upper_data=data[0], lower_data=data[1])


def unequal_rows():
    """Agents with different numbers of rows, dense and sparse, and weights of their own for them."""
    rng, counts = np.random.default_rng(1), [3, 7, 5, 2]
    agents = [
        {"a": sparse.random_array((m, 4), density=0.5, rng=rng), "b": rng.standard_normal(m), "row": np.arange(m)}
        for m in counts
    ]

    def errors(y, batch):
        return 0.5 * batch.weight * (batch.data["a"] @ y - batch.data["b"]) ** 2

    def weighed(x, y, batch):
        return jnp.sum(jax.nn.sigmoid(x[batch.data["row"]]) * errors(y, batch)) + 0.5 * y @ y

    def problem(chosen):
        data = hg.stack_ragged(chosen)
        start = {"x0": jnp.zeros(max(counts)), "y0": jnp.zeros(4), "own": True}
        return hg.Problem(
            lambda x, y, batch: jnp.sum(errors(y, batch)), weighed, upper_data=data, lower_data=data, **start
        )

    algorithm = hg.DSBO(1.0, 0.1, 2, hg.HIGP(0.1, 2), carry=False, batch_size=2)
    together = run(problem(agents[CUT]), algorithm)
    alone = run(problem(agents), algorithm, backend=hg.Simulated())
    return apart(alone, together)


def own_starts():
    """Every agent from a start of its own."""
    rng = np.random.default_rng(2)
    x0, y0 = jnp.asarray(rng.standard_normal((N, 2))), jnp.asarray(rng.standard_normal((N, 3)))
    given = {"upper_data": QUADRATIC.upper_data, "lower_data": QUADRATIC.lower_data}
    alone = run(restarted(x0=x0, y0=y0, each=True, **given), backend=hg.Simulated())
    return apart(alone, run(restarted(x0=x0[CUT], y0=y0[CUT], each=True)))


def apart(alone, together):
    """How far a run in one process and one in both are apart, in all that they return."""
    assert together.agents == MINE

    def mine(tree):
        return jax.tree.leaves(jax.tree.map(lambda leaf: leaf[CUT], tree))

    of_agents = ["x", "y", "state"] + ["mean_x"] * (
        alone.mean_x.ndim == 2
    )  # where x is each agent's own, so is its mean
    pairs = [
        pair for part in of_agents for pair in zip(mine(getattr(alone, part)), leaves(together, part), strict=True)
    ]
    pairs += [(alone.mean_y, together.mean_y)] + [(alone.mean_x, together.mean_x)] * (alone.mean_x.ndim == 1)
    pairs += [(alone.metrics[name], together.metrics[name]) for name in alone.metrics]
    return max(float(np.abs(np.asarray(one) - np.asarray(other)).max(initial=0)) for one, other in pairs)


def leaves(trace, part):
    return jax.tree.leaves(getattr(trace, part))


def divergence():
    """A run that leaves the finite numbers at one agent says the same in both processes."""
    try:
        run(algorithm=hg.DBOGT(0.05, 50.0, 2, hg.HIGP(0.1, 2)), steps=200)
    except hg.Diverged as diverged:
        return [diverged.agent, diverged.iteration, diverged.variable, len(diverged.trace.x)]
    return None


def one_gives_up():
    """The callback of process 0 raises, and the script goes on: the other hears of it, and they stay in step."""

    def callback(progress):
        if HERE == 0 and progress.step == 2:
            raise TimeoutError("time is up")

    said = refusal(callback=callback)
    alone = run(problem=QUADRATIC, backend=hg.Simulated())
    return {"said": said, "after it": apart(alone, run())}


class Interrupted(Exception):
    """Stands for whatever ends a run from outside."""


def interrupt(progress):
    if progress.step == 2:
        raise Interrupted


def interrupted():
    """A run that is ended and called again is the unbroken one to the bit; also where a shard is damaged."""
    folder, seen = FOLDER / "interrupted", []
    unbroken = run()
    with contextlib.suppress(Interrupted):
        run(checkpoint=folder, callback=interrupt)
    both.gather("a test")
    shards = sorted(path.name for path in folder.iterdir())
    same = [bitwise(unbroken, run(checkpoint=folder, callback=lambda progress: seen.append(progress.step)))]
    both.gather("a test")
    if HERE == 1:
        file = folder / "step-0000000003.1-of-2.npz"
        file.write_bytes(file.read_bytes()[:-1])
    both.gather("a test")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        same.append(bitwise(unbroken, run(checkpoint=folder, callback=lambda progress: seen.append(progress.step))))
    return {"shards": shards, "same": same, "first steps": seen, "said": [str(one.message) for one in said]}


def goes_on_after(ending, **changed):
    """A run that something ends in its third iteration, and the same called again."""
    unbroken, seen = run(), []
    said = ending(**changed)
    both.gather("a test")
    resumed = run(**changed, callback=lambda progress: seen.append(progress.step))
    return {"same": bitwise(unbroken, resumed), "first step": seen[0], "said": said}


def full_disk():
    """The disk of process 1 is full when it is to write its shard of the third iteration."""

    def ending(**changed):
        calls, fsync = [], os.fsync

        def full(file):
            calls.append(file)
            if HERE == 1 and len(calls) > 8:  # four for each checkpoint
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(file)

        os.fsync = full
        try:
            return refusal(**changed)
        finally:
            os.fsync = fsync

    return goes_on_after(ending, checkpoint=FOLDER / "full")


def own_folders():
    """Every process saves into a folder that no other sees."""
    folder = FOLDER / f"of process {HERE}"
    found = goes_on_after(lambda **changed: refusal(**changed, steps=2), checkpoint=folder)
    files = sorted(path.name for path in folder.iterdir())
    both.gather("a test")
    if HERE == 1:
        folder.rename(FOLDER / "elsewhere")
    return found | {"files": files, "without one": refusal(checkpoint=folder), "left": sum(1 for _ in folder.iterdir())}


def bitwise(one, other):
    pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True)
    same = all(np.array_equal(a, b) for a, b in pairs)
    return same and all(np.array_equal(one.metrics[name], other.metrics[name], equal_nan=True) for name in one.metrics)


def other_layouts():
    """From a run in one process, and for one in one process to go on from."""
    resumed = run(checkpoint=FOLDER / "from one", steps=5)
    run(checkpoint=FOLDER / "from two", steps=4)
    return {
        "steps": resumed.metrics["step"].tolist(),
        "apart": apart(run(QUADRATIC, backend=hg.Simulated(), steps=5), resumed),
    }


FINDINGS = {
    "refusals": refusals,
    "unequal rows": unequal_rows,
    "own starts": own_starts,
    "divergence": divergence,
    "one gives up": one_gives_up,
    "interrupted": interrupted,
    "full disk": full_disk,
    "own folders": own_folders,
    "other layouts": other_layouts,
}

if __name__ == "__main__":
    print(json.dumps({name: find() for name, find in FINDINGS.items()}), flush=True)
