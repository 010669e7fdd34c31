"""What pages and README say about the code: commands that exist, names that resolve, examples that run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import nbformat
import pytest

from tools import build

ROOT = build.ROOT
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "book/index.md",
    "book/how-to-use.md",
    "book/notation.md",
    "book/verdicts.md",
    "book/for-instructors.md",
]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_make_knows_each_command_that_a_page_names(page):
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", text_of(page), re.M))
    assert {first or second for first, second in named} <= targets


@pytest.mark.parametrize("page", ["README.md", "book/how-to-use.md"])
def test_the_example_on_a_corpus_of_ones_own_runs(page, tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)
    (tmp_path / "mine.txt").write_text(
        "the cat sat on the mat , and then it slept for a long while . " * 6 + "\n"
    )
    text = (
        tmp_path / "mine.txt"
    ).read_text() + "a dog ran to the house and it did not see the cat at all . " * 6
    (tmp_path / "mine.txt").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{example}"]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert "sinusoid" in outcome.stdout and "scaled stress" in outcome.stdout


@pytest.mark.parametrize("page", ["book/index.md", "book/how-to-use.md", "book/notation.md"])
def test_each_name_of_the_package_in_a_page_resolves(page):
    for name in re.findall(r"`posgeom\.(\w+)\.(\w+)`", text_of(page)):
        assert hasattr(importlib.import_module(f"posgeom.{name[0]}"), name[1]), name


def test_each_attribute_in_the_notation_exists():
    from posgeom.counts.positions import PositionalCounts
    from posgeom.geometry.mds import MDS

    attributes = re.findall(r"`(MDS|PositionalCounts)\.(\w+)`", text_of("book/notation.md"))
    assert attributes
    for owner, name in attributes:
        kind = {"MDS": MDS, "PositionalCounts": PositionalCounts}[owner]
        assert hasattr(kind, name) or name in kind.__annotations__, (owner, name)


def test_each_corpus_of_the_table_can_be_asked_for():
    from posgeom.corpora.named import CORPORA

    table = text_of("book/how-to-use.md").split("## The data")[1].split("## Your own")[0]
    assert set(re.findall(r"\| `(\w+)` \|$", table, re.M)) == set(CORPORA)


def test_each_exercise_that_the_page_for_instructors_names_exists():
    notebooks = [nbformat.read(path, as_version=4) for path in build.Book().notebooks().values()]
    titles = {
        title.strip()
        for notebook in notebooks
        for cell in notebook.cells
        for title in re.findall(r"\{exercise-start\} (.*)", cell.source)
    }
    table = text_of("book/for-instructors.md").split("## What they will be able to do")[1].split("## ")[0]
    named = set(re.findall(r"(?<!\*)\*([^*|]+)\*(?!\*)", table))
    assert len(named) > 15 and named <= titles, named - titles
