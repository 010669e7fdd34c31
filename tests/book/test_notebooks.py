"""Every chapter: its form, its run, and the numbers it records."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import papermill
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager

from tools import build, expectations, setup_cell
from tools.expectations import differences, records_of

BOOK = build.Book()
NOTEBOOKS = BOOK.notebooks()
TESTS = Path(__file__).parents[1]
EXPECTED = expectations.load()
CHEAP = yaml.safe_load((TESTS / "cheap_parameters.yml").read_text(encoding="utf-8")) or {}

PARAMETER = re.compile(r"^[a-z_][a-z0-9_]*: \w[\w\[\], .|]* = .+  # \S.*$")
CELL_ID = re.compile(r"^[a-z][a-z0-9-]*$")
GLUE = re.compile(r"\{glue:(?:text|figure|math|md)?\}`(?:([^`:]+)::)?([a-z_][a-z0-9_]*)(?::[^`]*)?`")
# What may hold digits without being a result: code, mathematics, glued numbers, links, directive options.
NOT_PROSE = re.compile(
    r"```\{code.*?```|\$\$.*?\$\$|\$[^$]+\$|`[^`]*`|\]\([^)]*\)|<[^>]*>|https?://\S+|^:\w+:.*?$",
    re.DOTALL | re.M,
)
DECIMAL = re.compile(r"(?<![\w.])\d*\.\d{2,}(?![\w.]*\d)|\b\d+(?:\.\d+)? ?%")

each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS[name], as_version=4)


def code_cells(name: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(name).cells if cell.cell_type == "code"]


def markdown(name: str) -> str:
    return "\n\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")


def tagged(name: str, tag: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in code_cells(name) if tag in cell.metadata.get("tags", [])]


def python(cell: nbformat.NotebookNode) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))


# --- form -------------------------------------------------------------------------------------------------


def test_every_notebook_of_the_repository_is_in_the_table_of_contents():
    assert {path.stem for path in BOOK.root.glob("notebooks/*.ipynb")} == set(NOTEBOOKS)


@each_notebook
def test_committed_without_outputs_and_with_readable_ids(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert not {"papermill", "widgets"} & set(notebook.metadata)
    for cell in notebook.cells:
        assert CELL_ID.match(cell.id), f"cell id {cell.id!r}: use words, such as 'by-hand'"
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, f"cell {cell.id!r} has outputs"


@each_notebook
def test_the_first_code_cell_is_the_setup_cell(name):
    first = code_cells(name)[0]
    assert first.source == setup_cell.SETUP_CELL, (
        "differs from tools/setup_cell.py (python tools/setup_cell.py)"
    )
    assert first.id == build.SETUP_CELL_ID and not first.metadata.get("tags")


@each_notebook
def test_one_parameters_cell_each_line_typed_and_with_its_meaning(name):
    (cell,) = tagged(name, "parameters")
    assert code_cells(name)[1].id == cell.id, "it follows the set-up cell"
    for line in cell.source.splitlines():
        assert PARAMETER.match(line), f"{line!r} is not `name: type = value  # meaning`"
    seen_by_papermill = papermill.inspect_notebook(str(NOTEBOOKS[name]))
    assert len(seen_by_papermill) == len(cell.source.splitlines())


@each_notebook
def test_each_parameter_is_used_and_none_is_assigned_again(name):
    (cell,) = tagged(name, "parameters")
    parameters = {node.target.id for node in python(cell).body}
    uses: Counter[str] = Counter()
    for other in code_cells(name):
        if other.id != cell.id:
            for node in ast.walk(python(other)):
                if isinstance(node, ast.Name) and node.id in parameters:
                    assert isinstance(node.ctx, ast.Load), f"cell {other.id!r} assigns {node.id} again"
                    uses[node.id] += 1
    assert parameters == set(uses), f"never used: {parameters - set(uses)}"


@each_notebook
def test_the_rooms_of_a_chapter(name):
    cells = read(name).cells
    text = markdown(name)
    assert cells[0].source.startswith("# "), "the first cell is the title"
    assert "will be able to" in text, "what a reader will be able to do"
    assert re.search(r"^#+ Verdict", text, re.M), "a section Verdict ends the chapter"
    exercises = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n(?::[^\n]*\n)*?:label: *(\S+)", text)
    solutions = re.findall(r"\{solution(?:-start)?\} *(\S+)\n(?::[^\n]*\n)*?:class: *dropdown", text)
    assert len(exercises) >= 4
    assert sorted(exercises) == sorted(solutions), "each exercise has one solution, collapsed"


@each_notebook
def test_a_number_in_prose_is_glued_given_or_the_papers(name):
    constants = (
        node.value for cell in code_cells(name) for node in ast.walk(python(cell)) if is_number(node)
    )
    given = {float(value) for value in constants}
    for cell in read(name).cells:
        if cell.cell_type == "markdown":
            typed = [number for number in typed_results(cell.source) if value_of(number) not in given]
            assert not typed, f"cell {cell.id!r}: {typed} typed by hand; record it in a cell and glue it"


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def value_of(number: str) -> float:
    return float(number.removesuffix("%")) / 100 if number.endswith("%") else float(number)


def typed_results(text: str) -> Iterator[str]:
    """Decimals and percentages in a text, outside what is no prose and outside paragraphs about the paper."""
    text = re.sub(
        r"^(`{3,}|:{3,})\{admonition\}.*?\n:class: paper\n.*?^\1$", "", text, flags=re.DOTALL | re.M
    )
    for paragraph in re.split(r"\n\s*\n", NOT_PROSE.sub(" ", text)):
        if "paper" not in paragraph:
            yield from DECIMAL.findall(paragraph)


def test_typed_results_tells_a_result_from_a_name():
    assert list(typed_results("The rate is 0.39, or 39%.")) == ["0.39", "39%"]
    for fine in (
        "The paper reports .563.",
        "It is $0.39$ with `tol=0.05`, {glue:text}`rate:.2f`, [here](https://x.org/1.23).",
        "Section 2.1, version 1.0.4, arXiv 2604.05217v1, 67,349 phrases.",
        "```{admonition} Reported\n:class: paper\nA stress of .563.\n```",
    ):
        assert not list(typed_results(fine)), fine


# --- run --------------------------------------------------------------------------------------------------


@each_notebook
def test_runs_to_its_end(name, runs):
    assert runs[name].error is None, "\n" + (runs[name].error or "")


@each_notebook
def test_shows_nothing_that_a_page_may_not_show(name, runs):
    if runs[name].error:
        pytest.skip("it did not run")
    build.tidy(
        nbformat.read(runs[name].executed, as_version=4), name, machine_paths=build.machine_paths(BOOK)
    )


@each_notebook
def test_records_each_name_once(name, runs):
    if runs[name].error:
        pytest.skip("it did not run")
    outputs = [
        output
        for cell in nbformat.read(runs[name].executed, as_version=4).cells
        for output in cell.get("outputs", [])
    ]
    names = Counter(
        output.metadata.scrapbook.name for output in outputs if "scrapbook" in output.get("metadata", {})
    )
    assert [twice for twice, times in names.items() if times > 1] == []
    assert set(names) == set(records_of(runs[name]))


@each_notebook
def test_recorded_numbers_are_the_expected_ones(name, runs):
    if runs[name].error:
        pytest.skip("it did not run")
    faults = list(differences(records_of(runs[name]), EXPECTED.get(name) or {}))
    assert not faults, f"tests/expected.yml, {name}:\n" + "\n".join(faults)


def test_differences_finds_each_kind_of_disagreement():
    def record(value: object) -> dict:
        return {"value": value, "unit": None, "tol": None}

    def found(records: dict, expected: dict) -> str:
        return "\n".join(differences(records, expected))

    assert (
        found({"a": record(1.0), "b": record("x")}, {"a": {"value": 1.1, "tol": 0.2}, "b": {"value": "x"}})
        == ""
    )
    assert "a: recorded 1.0" in found({"a": record(1.0)}, {"a": {"value": 1.1, "tol": 0.05}})
    assert "a: recorded True" in found({"a": record(True)}, {"a": {"value": 1, "tol": 1}})
    assert "expected, but not recorded" in found({}, {"a": {"value": 1.1, "tol": 0.05}})
    assert "recorded, but not expected" in found({"a": record(1.0)}, {})
    printed = found({"a": {"value": 1.0, "unit": None, "tol": 1e-06}}, {})
    assert yaml.safe_load(printed) == {"a": {"value": 1.0, "tol": 1e-06}}
    assert found({"a": record(1.0)}, {"unchecked": {"a": "a time"}}) == ""
    assert "no reason" in found({"a": record(1.0)}, {"unchecked": {"a": ""}})
    assert "not recorded either" in found({}, {"unchecked": {"a": "a time"}})


def test_expected_and_cheap_parameters_name_chapters_only():
    assert set(EXPECTED) | set(CHEAP) <= set(NOTEBOOKS)


def test_at_least_one_chapter_is_run_with_other_parameters():
    assert CHEAP, "tests/cheap_parameters.yml names no chapter"


@pytest.fixture(scope="session")
def variants(runs) -> dict[str, build.Run]:
    """Each chapter of cheap_parameters.yml, run with those parameters, two at a time."""

    def run(name: str) -> build.Run:
        return build.run_notebook(BOOK, NOTEBOOKS[name], parameters=CHEAP[name]["parameters"])

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(CHEAP, pool.map(run, CHEAP), strict=True))


@pytest.mark.parametrize("name", CHEAP)
def test_parameters_are_honoured(name, runs, variants):
    """Another value of a parameter changes the numbers that depend on it: the cell is no decoration."""
    known = papermill.inspect_notebook(str(NOTEBOOKS[name]))
    assert set(CHEAP[name]["parameters"]) <= set(known) and CHEAP[name]["changes"]
    assert variants[name].error is None, "\n" + (variants[name].error or "")
    before, after = records_of(runs[name]), records_of(variants[name])
    assert [
        number for number in CHEAP[name]["changes"] if before[number]["value"] == after[number]["value"]
    ] == []


# --- quotations ---------------------------------------------------------------------------------------------


def quotations() -> Iterator[tuple[str, str, str]]:
    """(page, notebook that is quoted, recorded name) of each glue role of the book."""
    for page in BOOK.pages():
        source = BOOK.source(page)
        if source.suffix == ".ipynb":
            notebook = nbformat.read(source, as_version=4)
            text = "\n".join([json.dumps(cell.metadata) for cell in notebook.cells])
            text += "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        else:
            text = source.read_text(encoding="utf-8")
        for file, name in GLUE.findall(text):
            quoted = (source.parent / file).resolve() if file else source
            yield page, quoted.stem, name


def test_each_quoted_number_is_recorded_by_the_notebook_it_is_quoted_from(runs):
    missing = [
        (page, notebook, name)
        for page, notebook, name in quotations()
        if notebook not in runs
        or not runs[notebook].records.is_file()
        or name not in records_of(runs[notebook])
    ]
    assert not missing


def test_glue_roles_are_recognised():
    text = "{glue:text}`../notebooks/05_mds.ipynb::best:.3f` {glue:}`own` {glue:text}`own_two:.2f`"
    assert GLUE.findall(text) == [("../notebooks/05_mds.ipynb", "best"), ("", "own"), ("", "own_two")]
