"""`hypergossip reproduce` as a person meets it."""

import sys

import pytest

from hypergossip import cli, data

_WRITTEN = ("rates-small.png", "rates-small.svg", "rates-small.json", "README.md")


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
    assert "What the text leaves open, and what was taken at full size (this was run in small):" in said
    names = sorted(_WRITTEN)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    assert all(str(tmp_path / "new" / name) in out for name in names)


def test_quiet_prints_the_paths_alone(tmp_path, monkeypatch, capsys):
    _, out, _ = run(monkeypatch, capsys, "reproduce", "rates", "--small", "--quiet", "--output", tmp_path)
    assert out.split() == [str(tmp_path / name) for name in _WRITTEN]


def test_the_page_keeps_what_earlier_runs_found_and_reads_nothing_else(tmp_path, monkeypatch, capsys):
    run(monkeypatch, capsys, "reproduce", "rates", "--small", "--seed", 3, "--output", tmp_path)
    (tmp_path / "rates-small.json").rename(tmp_path / "rates.json")
    (tmp_path / "package.json").write_text('{"name": "not ours"}')
    code, _, _ = run(monkeypatch, capsys, "reproduce", "rates", "--small", "--output", tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert code == 0
    title = "The theorems' rates on random quadratics over a ring"
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [f"## rates: {title}", f"## rates-small: {title}"]
    assert "`hypergossip reproduce rates --seed 3`" in page
    assert "`hypergossip reproduce rates --small`" in page


def test_a_page_that_somebody_else_wrote_is_left_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text("# My project")
    code, _, err = run(monkeypatch, capsys, "reproduce", "rates", "--small", "--output", tmp_path)
    assert code == 1
    assert "README.md is not a page of hypergossip's; expected a folder for results alone." in err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_file_where_a_folder_of_data_is_to_be_ends_with_status_1(tmp_path, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "reproduce", "fig1b", "--data", __file__, "--output", tmp_path)
    assert code == 1
    assert "test_reproduce.py" in err


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
