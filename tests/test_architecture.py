"""What holds the library together: who may import whom, what is final, what is loaded when, and how long things are."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import pytest

import hypergossip as hg

PACKAGE = Path(hg.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

ORDER = (
    "version",
    "messages",
    "precautions",
    "errors",
    "parts",
    "steps",
    "topology",
    "sparse",
    "ragged",
    "local",
    "checks",
    "starts",
    "problem",
    "network",
    "descent",
    "hypergradient",
    "algorithms",
    "exact",
    "metrics",
    "wire",
    "processes",
    "backends",
    "loop",
    "fingerprint",
    "checkpoint",
    "trace",
    "arguments",
    "compiled",
    "together",
    "run",
    "analysis",
    "__init__",
    "report",
    "data",
    "launch",
    "tasks",
    "experiments",
    "cli",
)
"""A module may import those before it. The outer ones, after `__init__`, use the library as its users do."""

OUTER = ORDER[ORDER.index("__init__") + 1 :]

WITHIN = {
    "topology": ("rounds", "spectrum", "weights", "graphs", "__init__"),
    "hypergradient": ("base", "*", "__init__"),
    "algorithms": ("paper", "base", "*", "__init__"),  # one algorithm does not import another
}

OPTIONAL = ("tyro", "rich", "matplotlib", "bokeh", "polars", "sklearn", "optax", "pandas", "torch", "jinja2")


def parts(file):
    """topology/graphs.py ↦ ("topology", "graphs"); errors.py ↦ ("errors",)."""
    return file.relative_to(PACKAGE).with_suffix("").parts


def imports_on_loading(tree):
    """Import statements that run when the module is loaded: not those in functions or under TYPE_CHECKING."""
    todo = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def imported_modules(file):
    """The library's modules that a file imports on loading, as tuples like those of `parts`."""
    here = ("hypergossip", *parts(file)[:-1])
    for node in imports_on_loading(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            base = here[: len(here) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            names = [(*base, alias.name) if is_module((*base, alias.name)) else base for alias in node.names]
        yield from (name[1:] or ("__init__",) for name in names if name[0] == "hypergossip")


def is_module(name):
    path = PACKAGE.parent.joinpath(*name)
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


every_file = pytest.mark.parametrize("file", FILES, ids=["/".join(parts(file)) for file in FILES])


@every_file
def test_every_module_has_a_place_in_the_order(file):
    assert parts(file)[0] in ORDER


@every_file
def test_modules_import_only_those_before_them(file):
    place, *inner = parts(file)
    for other, *inner_other in imported_modules(file):
        if other != place:
            assert ORDER.index(other) < ORDER.index(place) or place == "__init__", f"{place} imports {other}"
        elif place in WITHIN and inner_other:
            order = WITHIN[place]
            rank, rank_other = (order.index(name[0] if name[0] in order else "*") for name in (inner, inner_other))
            assert rank_other < rank, f"{place}.{inner[0]} imports {place}.{inner_other[0]}"


def test_the_reader_of_imports_sees_the_imports_that_are_there():
    found = {file.stem: set(imported_modules(file)) for file in (PACKAGE / "trace.py", PACKAGE / "starts.py")}
    assert {("metrics",), ("wire",)} <= found["trace"]
    assert ("checks",) in found["starts"]
    assert ("problem",) not in found["starts"]  # it names Problem for type checkers only
    assert ("topology", "weights") in set(imported_modules(PACKAGE / "topology" / "graphs.py"))


def test_the_network_axis_is_named_in_two_modules_only():
    naming = {
        "/".join(parts(file))
        for file in FILES
        if parts(file)[0] not in OUTER  # where it is a word like any other
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value == "agents"
    }
    assert "network" in naming
    assert naming <= {"network", "backends"}


def library_modules():
    """Those that need no extra to be installed."""
    for found in pkgutil.walk_packages([str(PACKAGE)], "hypergossip."):
        if found.name.split(".")[1] not in OUTER:
            yield importlib.import_module(found.name)


def classes(kind):
    return {
        value
        for module in library_modules()
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, kind) and value.__module__.startswith("hypergossip")
    }


def test_concrete_modules_are_never_subclassed():
    modules = classes(eqx.Module)
    assert {hg.DBOGT, hg.JHIP, hg.Problem, hg.Simulated} <= modules
    for one in modules:
        for base in one.__mro__[1:]:
            if base in modules:
                assert inspect.isabstract(base), f"{one.__name__} subclasses {base.__name__}, which is concrete"


def test_importing_the_library_loads_no_optional_package():
    code = f"import sys, hypergossip; print([name for name in {OPTIONAL} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "algorithm", sorted((c for c in classes(hg.algorithms.Algorithm) if not inspect.isabstract(c)), key=str)
)
def test_every_algorithm_can_be_cited(algorithm):
    entry = re.fullmatch(r"@(\w+)\{([\w:-]+),\n(.+)\n\}", algorithm.cite.strip(), flags=re.DOTALL)
    assert entry, "no single BibTeX entry"
    kind, _, body = entry.groups()
    assert kind in ("article", "inproceedings", "misc", "book", "phdthesis")
    fields = dict(re.findall(r"^  (\w+)\s*= \{(.+)\},?$", body, flags=re.MULTILINE))
    assert len(fields) == len(body.splitlines()), "a line that is no field"
    assert {"title", "author", "year"} <= fields.keys()
    assert re.fullmatch(r"(19|20)\d\d", fields["year"])
    for value in fields.values():
        assert value.count("{") == value.count("}")


def test_algorithms_name_fields_of_theirs_in_their_advice():
    for algorithm in classes(hg.algorithms.Algorithm):
        if not inspect.isabstract(algorithm):
            assert {"x", "y"} <= algorithm.blame.keys()


@every_file
def test_files_and_functions_stay_short(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"
