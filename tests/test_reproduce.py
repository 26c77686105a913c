"""`hypergossip reproduce` as a person meets it."""

import sys

import pytest

from hypergossip import cli, data


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["hypergossip", *map(str, arguments)])
    try:
        cli.main()
        code = 0
    except SystemExit as stopped:
        code = stopped.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_experiment_is_run_judged_and_written(tmp_path, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "reproduce", "rates", "--small", "--output", tmp_path / "new")
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert "falls at least like K^-0.667: holds, because the slope is -0.67" in said
    assert "What the text leaves open, and what was taken:" in said
    names = ["README.md", "rates.json", "rates.png", "rates.svg"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    assert all(str(tmp_path / "new" / name) in out for name in names)


def test_quiet_prints_the_paths_alone(tmp_path, monkeypatch, capsys):
    _, out, _ = run(monkeypatch, capsys, "reproduce", "rates", "--small", "--quiet", "--output", tmp_path)
    assert out.split() == [str(tmp_path / name) for name in ("rates.png", "rates.svg", "rates.json", "README.md")]


def test_the_page_keeps_what_earlier_runs_found(tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text("old")
    for seed in (0, 1):
        run(monkeypatch, capsys, "reproduce", "rates", "--small", "--seed", seed, "--output", tmp_path)
        (tmp_path / "rates.json").rename(tmp_path / f"rates{seed}.json")
    code, _, _ = run(monkeypatch, capsys, "reproduce", "rates", "--small", "--output", tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert code == 0
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        f"## {name}: The theorems' rates on random quadratics over a ring" for name in ("rates", "rates0", "rates1")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce"], "Missing"),
        (["reproduce", "fig9"], "fig9"),
        (["reproduce", "rates", "--seed", "-1"], "--seed -1: expected 0 or more"),
        (["reproduce", "rates", "--output", __file__], "is a file; expected a folder"),
        (["reproduce", "rates", "--output", "/proc/none"], "cannot be written to: No such file or directory"),
    ],
)
def test_wrong_commands_end_with_status_2(arguments, message, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert message in err + out


@pytest.mark.parametrize("error", [data.DataUnavailable("No mirror has mnist."), data.DataDamaged("mnist is cut off.")])
def test_data_that_cannot_be_had_end_with_status_1_and_one_sentence(error, tmp_path, monkeypatch, capsys):
    def load(*arguments):
        raise error

    monkeypatch.setattr(data, "load", load)
    code, _, err = run(monkeypatch, capsys, "reproduce", "fig1b", "--output", tmp_path)
    assert (code, err) == (1, f"{error}\n")
    assert list(tmp_path.iterdir()) == []
