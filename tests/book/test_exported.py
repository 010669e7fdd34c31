"""The notebooks that readers open: the page's text in Markdown that any program reads, the source's code."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup, Tag
from nbformat import NotebookNode

from tools import build, check_formulas, check_site, copies
from tools.address import Address
from tools.notebook_export import FOLDED

BOOK = build.Book()
NOTEBOOKS = BOOK.notebooks()
MEGABYTES = 3
SPACE = re.compile(r"\s+")

each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


@cache
def exported(site: Path, name: str) -> NotebookNode:
    return nbformat.read(site.parent / "notebooks" / f"{name}.ipynb", as_version=4)


def text_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@cache
def page(site: Path, name: str) -> Tag:
    """The text of a chapter on the site, without what the site adds around it."""
    soup = BeautifulSoup((site / "notebooks" / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
    article = soup.find("article")
    for extra in article.select(
        ".headerlink, .run-it, .sd-summary-state-marker, .prev-next-footer, .cell_input, .hide > summary"
    ):
        extra.decompose()
    return article


@cache
def read(site: Path, name: str) -> BeautifulSoup:
    """The text of the exported notebook as a program that knows CommonMark, tables and dollars shows it."""
    html = (check_formulas.markdown().render(cell.source) for cell in text_cells(exported(site, name)))
    return BeautifulSoup("\n".join(html), "html.parser")


def words(tag: Tag) -> str:
    """What a tag says, apart from formulas: each of them is one sign."""
    tag = BeautifulSoup(str(tag), "html.parser")
    for formula in tag.select(".math, eq, eqn"):
        formula.replace_with("¤")
    return SPACE.sub(" ", tag.get_text(" ")).strip()


def joined(text: str) -> str:
    """A text without its spaces: where tags begin and end is not the same on both sides."""
    return SPACE.sub("", text)


# --- the text -------------------------------------------------------------------------------------------


@each_notebook
def test_no_markup_is_left_that_only_the_site_reads(name, site):
    for cell in text_cells(exported(site, name)):
        left = re.findall(r"\{[a-z:-]+\}`|```\{|:::\{|\{glue|\{prf|\{doc|\{cite|^:\w+:|�", cell.source, re.M)
        assert not left, f"{cell.id}: {left}"


@each_notebook
def test_every_paragraph_of_the_page_is_in_the_notebook(name, site):
    whole = joined(words(read(site, name)))
    paragraphs = [
        paragraph
        for paragraph in page(site, name).find_all(["p", "td", "th"])
        if not paragraph.find_parent(class_=["cell_output", "posgeom-moves"])
        and "admonition-title" not in paragraph.get("class", [])
    ]
    assert len(paragraphs) > 40
    for paragraph in paragraphs:
        text = joined(re.sub(r"^Proof\. ?", "", words(paragraph)))
        assert text in whole, words(paragraph)


@each_notebook
def test_headings_have_the_numbers_and_words_of_the_page(name, site):
    on_the_page = [joined(words(tag)) for tag in page(site, name).find_all(re.compile("^h[1-6]$"))]
    rooms = re.compile(r"(Exercise|Solution)")
    here = [joined(words(tag)) for tag in read(site, name).find_all(re.compile("^h[1-6]$"))]
    assert [heading for heading in here if not rooms.match(heading)] == on_the_page
    assert on_the_page[0].startswith(str(int(name[:2])) + ".")


@each_notebook
def test_statements_have_the_kinds_numbers_and_titles_of_the_page(name, site):
    boxes = page(site, name).select("div.admonition:not(.argument):not(.solution) > p.admonition-title")
    heads = {joined(words(head)).rstrip(".") for head in read(site, name).select("blockquote > p > strong")}
    heads |= {joined(words(tag)) for tag in read(site, name).find_all(re.compile("^h[1-6]$"))}
    missing = [words(box) for box in boxes if joined(words(box)) not in heads]
    assert boxes and not missing


@each_notebook
def test_equations_and_figures_have_the_numbers_of_the_page(name, site):
    equations = [number.get_text().strip("()#") for number in page(site, name).select("span.eqno")]
    tags = [tag for formula in check_formulas.formulas(exported(site, name)) for tag in tags_of(formula.tex)]
    assert tags == [number.rstrip(")") for number in equations]
    captions = [joined(words(caption)) for caption in page(site, name).select("figcaption p")]
    here = [
        joined(words(tag)) for tag in read(site, name).find_all("p") if tag.get_text().startswith("Fig. ")
    ]
    assert [caption for caption in captions if not any(text.startswith(caption) for text in here)] == []
    assert len(captions) == len(exported_figures(site, name))


def tags_of(tex: str) -> list[str]:
    return re.findall(r"\\tag\{([^}]*)\}", tex)


def exported_figures(site: Path, name: str) -> list[str]:
    text = "\n".join(cell.source for cell in text_cells(exported(site, name)))
    return re.findall(r"^\*\*Fig\. ([\d.]+)\*\* ", text, re.M)


def in_solution(tag: Tag) -> bool:
    return tag.find_parent(class_="solution") is not None


@each_notebook
def test_the_notebook_has_every_formula_of_the_page(name, site):
    on_the_page = [
        formula
        for formula in page(site, name).select("span.math, div.math")
        # The head of a solution repeats the title of its exercise; the copy gives the number alone.
        if not formula.find_parent(lambda tag: tag.get("class") == ["admonition-title"] and in_solution(tag))
    ]
    assert len(list(check_formulas.formulas(exported(site, name)))) == len(on_the_page)


@pytest.mark.skipif(check_site.why_not() is not None, reason=str(check_site.why_not()))
def test_every_formula_parses_in_mathjax_and_in_katex(site):
    wanted = [formula for name in NOTEBOOKS for formula in check_formulas.formulas(exported(site, name))]
    bad = [check_formulas.Formula(r"\dH(\mu)", False), check_formulas.Formula(r"\frac{1", True)]
    faults = check_formulas.faults(list(dict.fromkeys(wanted + bad)))
    assert len(set(wanted)) > 1000
    assert "dH" in faults.pop(bad[0]) and "MathJax" in faults.pop(bad[1])
    assert not faults


@each_notebook
def test_links_lead_to_the_site_or_further(name, site):
    address = Address.load()
    for link in read(site, name).find_all("a"):
        target = link["href"]
        assert re.match(r"https?://", target), target
        if target.startswith(address.site) and target != address.site:
            path, _, anchor = target.removeprefix(address.site).partition("#")
            html = (site / path).read_text(encoding="utf-8")
            assert not anchor or f'id="{anchor}"' in html, target


# --- the code -------------------------------------------------------------------------------------------


@each_notebook
def test_the_cells_are_the_source_s_cells_so_that_running_one_tests_the_other(name, site):
    source = nbformat.read(NOTEBOOKS[name], as_version=4)
    here = exported(site, name)
    nbformat.validate(here)
    assert [(cell.id, cell.source) for cell in code_cells(here)] == [
        (cell.id, cell.source) for cell in code_cells(source)
    ]
    assert len({cell.id for cell in here.cells}) == len(here.cells)


@each_notebook
def test_what_a_reader_need_not_see_is_closed_and_nothing_else(name, site):
    for cell in code_cells(exported(site, name)):
        closed = cell.id == build.SETUP_CELL_ID or bool(FOLDED & set(cell.metadata.get("tags", [])))
        assert cell.metadata.get("jupyter", {}).get("source_hidden", False) == closed, cell.id
        assert (cell.metadata.get("cellView") == "form") == closed, cell.id


@each_notebook
def test_outputs_are_kept_with_their_alternative_text_and_without_what_only_the_build_reads(name, site):
    figures = 0
    for cell in code_cells(exported(site, name)):
        for output in cell.outputs:
            assert "scrapbook" not in output.get("metadata", {}) and output.get("name") != "stderr"
            if "image/png" in output.get("data", {}):
                figures += 1
                assert output.metadata["image/png"]["alt"].strip(), cell.id
            if "posgeom-moves" in str(output.get("data", {}).get("text/html")):
                assert "image/png" in output.data, "a figure that moves has a picture that does not"
    assert figures >= len(exported_figures(site, name))


@each_notebook
def test_it_is_light_and_says_nothing_of_the_machine(name, site):
    text = (site.parent / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert len(text.encode()) < MEGABYTES * 1e6
    assert not [path for path in build.machine_paths(BOOK) if path in text]


@each_notebook
def test_solutions_are_folded_or_under_a_heading_that_is_closed(name, site):
    notebook = exported(site, name)
    heads = [cell for cell in text_cells(notebook) if cell.metadata.get("jp-MarkdownHeadingCollapsed")]
    folded = sum(cell.source.count("<summary>Solution") for cell in text_cells(notebook))
    labels = {cell.metadata.room.label for cell in notebook.cells if "room" in cell.metadata}
    assert len(heads) + folded == len(labels) >= 4
    assert notebook.metadata.colab.collapsed_sections == [cell.metadata.id for cell in heads]
    for head in heads:
        level = len(re.match("#+", head.source)[0])
        after = [
            cell
            for cell in notebook.cells[notebook.cells.index(head) + 1 :]
            if cell.metadata.get("room") != head.metadata.room
        ]
        # What is not of the solution would be closed with it, unless a heading as high comes first.
        assert len(re.match("#*", after[0].source)[0]) in range(1, level + 1), after[0].source[:80]


def test_a_working_copy_runs_to_its_end_and_records_what_the_book_records(site, runs, tmp_path):
    name = min(runs, key=lambda run: runs[run].seconds)
    nbformat.write(copies.work(exported(site, name)), tmp_path / "copy.ipynb")
    command = build._papermill(tmp_path / "copy.ipynb", tmp_path / "out.ipynb", tmp_path, {})
    environment = build._run_environment(BOOK, tmp_path / "records.json")
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert (tmp_path / "records.json").read_text() == runs[name].records.read_text()
