"""Copies to write in: outputs gone, solutions gone, and what somebody changed is never overwritten."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import build, copies
from tools.build import Book

BOOK = Book()
NOTEBOOKS = BOOK.notebooks()
each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


def exercise(label="ex-one", title="One"):
    room = {"kind": "exercise", "label": label}
    return new_markdown_cell(f"### Exercise 1.1 ({title})\n\nAsk.", metadata={"room": room})


def solution(label="ex-one"):
    room = {"kind": "solution", "label": label}
    return [
        new_markdown_cell("#### Solution\n\nThe secret.", metadata={"room": room}),
        new_code_cell("secret = 42", metadata={"room": room}),
    ]


def toy(*cells):
    return new_notebook(cells=list(cells), metadata={"colab": {"collapsed_sections": ["text-1"]}})


# --- students -------------------------------------------------------------------------------------------


def test_a_solution_becomes_a_stub():
    made = copies.student(
        toy(new_code_cell("a = 1"), exercise(title='"One"'), *solution(), new_markdown_cell("## Verdict"))
    )
    kinds = [(cell.cell_type, cell.source.split("\n")[0]) for cell in made.cells]
    assert kinds == [
        ("code", "a = 1"),
        ("markdown", '### Exercise 1.1 ("One")'),
        ("code", "# Your answer to \"Exercise 1.1 ('One')\""),
        ("markdown", "## Verdict"),
    ]
    assert made.cells[2].id == "answer-ex-one"
    compile(made.cells[2].source, "stub", "exec")
    assert "ecret" not in str(made) and "collapsed" not in str(made.metadata)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([exercise()], "ex-one has no solution"),
        ([exercise(), exercise("ex-two")], "ex-one has no solution"),
        (solution(), "ex-one does not follow"),
        ([exercise(), *solution("ex-two")], "ex-two does not follow"),
    ],
)
def test_an_exercise_out_of_step_with_its_solution_is_named(cells, says):
    with pytest.raises(copies.CopyError, match=says):
        copies.student(toy(*cells))


def reading(site: Path, name: str) -> nbformat.NotebookNode:
    return nbformat.read(site.parent / "notebooks" / f"{name}.ipynb", as_version=4)


@each_notebook
def test_each_exercise_of_a_chapter_has_one_stub_and_nothing_of_a_solution_is_left(name, site):
    source = nbformat.read(NOTEBOOKS[name], as_version=4)
    made = copies.student(reading(site, name))
    text = "\n".join(cell.source for cell in source.cells if cell.cell_type == "markdown")
    labels = re.findall(r"\{exercise-start\}[^\n]*\n:label: *(\S+)", text)
    stubs = [cell.id for cell in made.cells if "NotImplementedError" in cell.source]
    assert stubs == [f"answer-{label}" for label in labels] and len(labels) >= 4
    kept = "\n".join(cell.source for cell in made.cells)
    assert "Solution to" not in kept
    solutions = [cell.source for cell in source.cells if cell.id.startswith("solution")]
    assert solutions and not any(cell in kept for cell in solutions)
    # What is not a solution is all there, and has not run.
    for cell in source.cells:
        if cell.cell_type == "code" and not cell.id.startswith("solution"):
            assert cell.source in kept, cell.id
    assert not any(cell.outputs or cell.execution_count for cell in made.cells if cell.cell_type == "code")


@each_notebook
def test_a_student_has_the_check_that_an_exercise_names_before_the_solution_is_opened(name, site):
    defined, starred = set(), 0
    for cell in copies.student(reading(site, name)).cells:
        if cell.cell_type == "code":
            defined |= set(re.findall(r"^def (check_\w+)\(", cell.source, re.M))
        elif cell.metadata.get("room"):
            named = set(re.findall(r"`(check_\w+)", cell.source))
            assert named <= defined, f"{named - defined} is not there yet, or is in a solution"
            if re.search(r"^★ ", cell.source, re.M):
                starred += 1
                assert named, f"an exercise with one star has an answer to check:\n{cell.source}"
    assert starred


@pytest.mark.parametrize("name", [next(iter(name for name in NOTEBOOKS if name.startswith("05")))])
def test_a_chapter_of_students_runs_up_to_its_first_stub(name, site, tmp_path):
    made = copies.student(reading(site, name))
    cheap = yaml.safe_load((BOOK.root / "tests" / "cheap_parameters.yml").read_text(encoding="utf-8"))
    nbformat.write(made, tmp_path / "student.ipynb")
    command = build._papermill(
        tmp_path / "student.ipynb", tmp_path / "out.ipynb", tmp_path, cheap[name]["parameters"]
    )
    environment = build._run_environment(BOOK, tmp_path / "records.json")
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode != 0
    ran = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    failed = [
        cell.id for cell in ran.cells for output in cell.get("outputs", []) if output.output_type == "error"
    ]
    first = next(cell.id for cell in made.cells if "NotImplementedError" in cell.source)
    assert failed == [first], outcome.stderr[-2000:]


# --- where copies are put -------------------------------------------------------------------------------


def one(source: str) -> dict[str, nbformat.NotebookNode]:
    cell = new_code_cell(source, id="code", outputs=[new_output("stream", text="1\n")], execution_count=1)
    return {"01.ipynb": copies.work(new_notebook(cells=[cell]))}


def source_in(path: Path) -> str:
    return nbformat.read(path, as_version=4).cells[0].source


def change(path: Path, text: str) -> None:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source = text
    nbformat.write(notebook, path)


def test_a_copy_to_work_in_has_no_outputs_and_the_reading_copy_keeps_its_own():
    cell = new_code_cell("1", outputs=[new_output("stream", text="1\n")], execution_count=1)
    reading_copy = new_notebook(cells=[cell])
    made = copies.work(reading_copy)
    assert made.cells[0].outputs == [] and made.cells[0].execution_count is None
    assert reading_copy.cells[0].outputs and reading_copy.cells[0].execution_count == 1


def test_an_unchanged_copy_follows_the_book(tmp_path):
    said: list[str] = []
    copies.place(one("old"), tmp_path, say=said.append)
    copies.place(one("new"), tmp_path, say=said.append)
    assert source_in(tmp_path / "01.ipynb") == "new" and not said
    assert not list(tmp_path.glob("*.partial")) and not list(tmp_path.glob("*.new.ipynb"))


def test_a_changed_copy_is_kept_and_the_book_s_next_version_put_beside_it(tmp_path):
    said: list[str] = []
    copies.place(one("old"), tmp_path, say=said.append)
    change(tmp_path / "01.ipynb", "mine")
    copies.place(one("old"), tmp_path, say=said.append)
    assert source_in(tmp_path / "01.ipynb") == "mine" and "kept as you changed it" in said.pop()
    assert not (tmp_path / "01.new.ipynb").exists(), "the book has nothing new"
    for text in ("new", "newer"):
        copies.place(one(text), tmp_path, say=said.append)
        assert source_in(tmp_path / "01.ipynb") == "mine"
        assert source_in(tmp_path / "01.new.ipynb") == text and "01.new.ipynb" in said.pop()
    change(tmp_path / "01.new.ipynb", "mine too")
    copies.place(one("newest"), tmp_path, say=said.append)
    assert source_in(tmp_path / "01.ipynb") == "mine" and source_in(tmp_path / "01.new.ipynb") == "mine too"
    assert "move one away" in said.pop()


def test_a_file_that_was_there_before_is_somebody_s(tmp_path):
    nbformat.write(new_notebook(cells=[new_code_cell("mine", id="code")]), tmp_path / "01.ipynb")
    said: list[str] = []
    copies.place(one("book's"), tmp_path, say=said.append)
    assert source_in(tmp_path / "01.ipynb") == "mine" and source_in(tmp_path / "01.new.ipynb") == "book's"


def test_what_equals_the_book_again_follows_it_again(tmp_path):
    said: list[str] = []
    copies.place(one("old"), tmp_path, say=said.append)
    (tmp_path / copies.SEALS).unlink()
    copies.place(one("old"), tmp_path, say=said.append)
    copies.place(one("new"), tmp_path, say=said.append)
    assert source_in(tmp_path / "01.ipynb") == "new" and not said


def test_the_command_writes_every_chapter(site, tmp_path, capsys):
    assert copies.main(["student", "--output", str(tmp_path)]) == 0
    assert sorted(path.stem for path in tmp_path.glob("*.ipynb")) == sorted(NOTEBOOKS)
    assert f"{len(NOTEBOOKS)} notebooks in {tmp_path}" in capsys.readouterr().out


def test_without_exported_notebooks_the_command_says_what_makes_them(toy_book):
    toy_book.add("01_toy", "1")
    with pytest.raises(copies.CopyError, match="make notebooks"):
        copies.reading_copies(toy_book)
