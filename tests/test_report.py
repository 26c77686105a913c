"""Figures and the HTML report."""

import dataclasses
import re

import matplotlib.figure
import numpy as np
import pytest

import hypergossip as hg
from hypergossip.report import byte_unit, figures, human_bytes, is_positive, replace_file
from hypergossip.report.html import write_report
from hypergossip.report.network import picture

PAYLOAD = '</script><script>alert("1")</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def trace(quadratic) -> hg.Trace:
    algorithm = hg.DBO(outer_step=0.02, inner_step=0.1, inner_iterations=2, hypergradient=hg.JHIP(0.1, 2))
    return hg.run(algorithm, quadratic.hg_problem, hg.ring(8), 12, metrics=[hg.hypergradient_norm(), hg.upper_loss()])


def _with(trace: hg.Trace, **metrics) -> hg.Trace:
    """The trace with other or more metrics."""
    return dataclasses.replace(trace, metrics={**trace.metrics, **metrics})


def test_curves_have_a_panel_for_every_metric_a_person_looks_at(trace):
    figure = figures.curves({"one": trace, "two": trace})
    assert isinstance(figure, matplotlib.figure.Figure)
    assert len(figure.axes) == len(trace.plotted())
    assert not any("converged" in axes.get_title() for axes in figure.axes)
    assert all(axes.get_xlabel() == "outer iteration" for axes in figure.axes)
    assert all(len(axes.lines) == 2 for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


def test_curves_are_on_log_scales_exactly_where_values_are_positive(trace):
    signed = _with(trace, own_metric=trace.metrics["step"] - 3.5)
    figure = figures.curves({"": signed}, ["hypergradient_norm", "consensus", "own_metric"])
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log", "linear"]
    assert figure.axes[0].get_title() == "Gradient norm ‖∇Φ(x̄)‖"
    assert figure.axes[2].get_title() == "own_metric"
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), trace.metrics["hypergradient_norm"])
    assert trace.metrics["consensus"][0] == 0
    assert np.isnan(figure.axes[1].lines[0].get_ydata()[0])  # a common start has no place on a log scale


def test_lines_differ_in_colour_dashes_and_marker(trace):
    lines = figures.curves(dict.fromkeys("abc", trace), ["consensus"]).axes[0].lines
    for look in ("get_color", "get_marker", "_unscaled_dash_pattern"):
        values = [getattr(line, look) for line in lines]
        assert len({str(value() if callable(value) else value) for value in values}) == 3


def test_a_trace_without_a_name_needs_no_legend(trace):
    assert not trace.plot().legends


@pytest.mark.parametrize("name", ["$\\frac{", "_hidden", "a\nb", ""])
def test_names_are_drawn_as_they_are(trace, name, tmp_path):
    figures.save(figures.curves({name: _with(trace, **{name or "$": trace.metrics["consensus"]})}), tmp_path / "a.png")
    figures.save(figures.gradient_norm({"": {name: trace}}), tmp_path / "b.png")


def test_curves_take_traces_that_recorded_different_things(trace):
    other = dataclasses.replace(trace, metrics={name: trace.metrics[name][:3] for name in ("step", "consensus")})
    figure = figures.curves({"one": trace, "two": other}, ["consensus", "upper_loss"])
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]


@pytest.mark.parametrize(
    ("names", "message"), [(["loss"], "Unknown metric 'loss'; possible are consensus"), ([], "No metric is named")]
)
def test_what_cannot_be_plotted_is_refused(trace, names, message):
    with pytest.raises(ValueError, match=message):
        figures.curves({"": trace}, names)


def test_no_traces_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no traces"):
        figures.curves({})
    with pytest.raises(ValueError, match="no traces"):
        write_report(tmp_path / "r.html", "t", {}, hg.ring(3), {})


def test_gradient_norm_is_the_papers_figure(trace, tmp_path):
    exact = np.array([10.0, 1.0, 0.1])
    figure = figures.gradient_norm({"": {"DBO": trace}}, {"exact": exact})
    reference, line = figure.axes[0].lines
    np.testing.assert_allclose(reference.get_ydata(), [1, 0, -1])
    np.testing.assert_allclose(line.get_ydata(), np.log10(trace.metrics["hypergradient_norm"]))
    np.testing.assert_array_equal(line.get_xdata(), trace.metrics["step"])
    figures.save(figure, tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_figure_gives_the_same_file(trace, tmp_path):
    for name in ("first.svg", "second.svg"):
        figures.save(figures.curves({"DBO": trace}), tmp_path / name)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


def test_panels_share_a_scale_and_logarithmic_ones_have_ticks_where_the_values_are():
    lengths = np.array([64, 128, 256])
    panels = {"one": {"a": (lengths, 1 / lengths)}, "two": {"b": (lengths[:2], np.array([5.0, 9.0]))}}
    one, two = figures.lines(panels, "value", "K", log=True).axes
    assert [axes.get_title() for axes in (one, two)] == ["one", "two"]
    assert one.get_ylim() == two.get_ylim()
    assert (one.get_xscale(), one.get_yscale(), one.get_xlabel()) == ("log", "log", "K")
    low, high = one.get_xlim()
    assert [tick for tick in one.get_xticks() if low <= tick <= high] == [64, 128, 256]


def test_the_report_is_one_small_file_that_loads_nothing(trace, tmp_path):
    path = write_report(tmp_path / "sub" / "report.html", "A title", {"DBO": trace}, hg.ring(8), {"seed": 0})
    page = path.read_text()
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    assert path.stat().st_size < 3e6
    assert "default-src 'none'" in page  # the browser itself refuses to load anything
    assert not re.search(r"<link|@import|<iframe|\bsrc\s*=\s*[\"']?\s*(https?:)?//", page)
    assert not re.search(r"\b(href|action)\s*=\s*[\"'](https?:)?//", _without_scripts(page))
    assert not re.search(r"url\(\s*[\"']?(https?:)?//", page)


def _without_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_the_report_holds_the_numbers(trace, tmp_path):
    topology, configuration = hg.ring(8), {"seed": 17, "Problem": {"examples": 23}}
    page = _without_scripts(write_report(tmp_path / "r.html", "T", {"DBO": trace}, topology, configuration).read_text())
    norms = trace.metrics["hypergradient_norm"]
    sent = human_bytes(12 * trace.communication.bytes)
    for cell in (f"{norms[0]:.4g}", f"{norms[-1]:.4g}", f"{trace.metrics['consensus'][-1]:.3g}", sent, "12"):
        assert f"<td>{cell}</td>" in page
    assert f"{trace.seconds['run']:.1f} s" in page
    for setting, value in (("seed", "17"), ("examples", "23"), ("hypergossip", hg.__version__)):
        assert f'<th scope="row">{setting}</th><td>{value}</td>' in page
    assert "ring: 8 agents, 8 edges" in page
    assert (page.count("<circle"), page.count("<line")) == (8, 8)
    assert "do not trust" not in page


def test_no_string_becomes_markup(trace, tmp_path):
    path = write_report(
        tmp_path / "r.html",
        PAYLOAD,
        {PAYLOAD: _with(trace, **{PAYLOAD: trace.metrics["consensus"]})},
        hg.ring(8),
        {PAYLOAD: PAYLOAD, "section": {PAYLOAD: PAYLOAD}},
        summary=[PAYLOAD],
        remarks={PAYLOAD: PAYLOAD},
    )
    page = path.read_text()
    assert "<img" not in page
    assert '<script>alert("' not in page
    assert page.count("<script>") == page.count("</script>") == 3
    assert "&lt;/script&gt;&lt;script&gt;alert" in _without_scripts(page)


def test_values_without_converged_solves_are_not_to_be_trusted(trace, tmp_path):
    flags = np.ones(13)
    flags[[4, 5]] = 0, np.nan
    failed = _with(trace, **{"hypergradient_norm.converged": flags})
    page = write_report(tmp_path / "r.html", "T", {"good": trace, "bad": failed}, hg.ring(8), {}).read_text()
    assert "bad: do not trust “Gradient norm ‖∇Φ(x̄)‖” at 2 of 13 records, the first at outer iteration 4" in page
    assert "good: do not trust" not in page


def test_remarks_stand_in_the_table_and_belong_to_traces(trace, tmp_path):
    page = write_report(tmp_path / "r.html", "T", {"DBO": trace}, hg.ring(8), {}, remarks={"DBO": "odd"}).read_text()
    assert '<td class="remark">odd</td>' in page
    with pytest.raises(ValueError, match="A remark on 'DSBO', which is none of the traces: DBO"):
        write_report(tmp_path / "r.html", "T", {"DBO": trace}, hg.ring(8), {}, remarks={"DSBO": "odd"})


def test_long_runs_and_bare_ones_make_reports(trace, tmp_path):
    many = {name: np.resize(values, 20_000) for name, values in trace.metrics.items()} | {"step": np.arange(20_000)}
    bare = dataclasses.replace(trace, metrics={"step": np.array([0]), "consensus": np.array([0.0])})
    traces = {"long": dataclasses.replace(trace, metrics=many), "bare": bare}
    path = write_report(tmp_path / "r.html", "T", traces, hg.ring(8), {})
    assert path.stat().st_size < 3e6
    write_report(path, "T", {"": bare}, hg.complete(1), {})


@pytest.mark.parametrize("topology", [hg.ring(20), hg.star(9), hg.path(2), hg.complete(1), hg.ring(100)])
def test_the_network_is_drawn_within_its_square(topology):
    drawn = picture(topology)
    assert len(drawn["agents"]) == topology.n
    assert len(drawn["edges"]) == len(topology.edges) // 2
    places = [(agent["x"], agent["y"]) for agent in drawn["agents"]]
    assert all(0 <= coordinate <= 240 for place in places for coordinate in place)
    assert len(set(places)) == topology.n


def test_a_network_too_large_to_see_is_not_drawn(trace, tmp_path):
    assert picture(hg.ring(1000)) is None
    page = write_report(tmp_path / "r.html", "T", {"": trace}, hg.ring(1000), {}).read_text()
    assert "ring: 1000 agents, 1000 edges" in page


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (3.32e9, "3.32 GB")]
)
def test_bytes_for_people(count, text):
    assert human_bytes(count) == text


def test_units_and_scales():
    assert byte_unit(5e12) == ("TB", 10**12)
    assert is_positive([np.array([0.0, 1.0, 2.0]), np.array([np.nan, 3.0])])
    assert not is_positive([np.array([0.0, 0.0, 1.0])])
    assert not is_positive([np.array([-1.0, 1.0, 2.0])])
    assert not is_positive([np.array([np.nan])])
    assert not is_positive([])
