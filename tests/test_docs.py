"""What the documents show, run as it stands there."""

import re
from pathlib import Path

import jax
import numpy as np

import hypergossip as hg

ROOT = Path(__file__).parent.parent


def _blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_readmes_first_problem_is_solved_and_its_output_is_there(capsys):
    names: dict = {}
    exec(_blocks("README.md")[0], names)
    norm = names["trace"].metrics["hypergradient_norm"]
    assert norm[-1] < 0.05 * norm[0]
    assert np.all(names["trace"].metrics["hypergradient_norm.converged"] == 1)
    printed = capsys.readouterr().out
    assert "hypergradient_norm" in printed
    assert "bytes per outer iteration" in printed


def test_the_script_for_several_processes_runs_in_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    (script,) = _blocks("docs/distributed.md")
    with jax.numpy_dtype_promotion("standard"):  # a user's own
        exec(script, names)
    losses = names["trace"].metrics["upper_loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert names["trace"].agents == range(20)
    assert sorted(path.name for path in (tmp_path / "runs" / "ring").glob("*.npz"))[-1] == "step-0000000100.0-of-1.npz"


def test_what_the_readme_goes_on_with_runs_and_does_what_it_says(capsys):
    names: dict = {}
    first, *others = _blocks("README.md")
    exec(first, names)
    values = []
    with jax.numpy_dtype_promotion("standard"):  # optax adds floats to the index
        for block in others:
            if "checkpoint=" not in block:
                exec(block, names)
                values.append(names["trace"])
    vectors, stochastic, recommended, _, cleaning, own, over_devices = values
    assert over_devices.metrics["step"][-1] == 100
    assert recommended.metrics["hypergradient_norm"][-1] < 0.05 * recommended.metrics["hypergradient_norm"][0]
    assert vectors.communication.along_edge["z"] == hg.Traffic(20, 20 * 8 * 4)
    assert set(vectors.communication.along_edge) == {"y", "v", "z", "d", "u", "x"}
    assert stochastic.metrics["upper_loss"][-1] < 0.9 * stochastic.metrics["upper_loss"][0]
    assert names["topology"].n == 15
    assert "x" not in cleaning.communication.along_edge
    assert cleaning.x.shape == (3, 50)
    assert np.isfinite(own.metrics["own_loss"]).all()
    assert "15 " in capsys.readouterr().out


def test_the_contributing_guides_algorithm_runs_and_descends(quadratic):
    names: dict = {}
    exec(_blocks("CONTRIBUTING.md")[0], names)

    def end(alpha: float) -> float:
        algorithm = names["OneLoop"](alpha=alpha, beta=0.1)
        trace = hg.run(algorithm, quadratic.hg_problem, hg.ring(8, self_weight=0.5), steps=3000, record_every=3000)
        return float(np.linalg.norm(quadratic.hypergradient(np.asarray(trace.mean_x))))

    start = np.linalg.norm(quadratic.hypergradient(np.zeros(quadratic.p)))
    assert end(0.05) < 0.3 * start


def test_the_page_on_data_splits_all_rows(capsys):
    names: dict = {}
    exec(_blocks("docs/data.md")[0], names)
    assert sum(len(agent) for agent in names["agents"]) == len(names["digits"].train)
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_every_link_between_documents_leads_somewhere():
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert len(documents) > 3
    for document in documents:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
