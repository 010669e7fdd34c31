"""The notebooks of students: solutions gone, a stub for each exercise, and they run up to the first stub."""

from __future__ import annotations

import re
import subprocess
import sys

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import build, student

BOOK = build.Book()
NOTEBOOKS = BOOK.notebooks()
each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


def exercise(label="ex-one", title="One"):
    return f"```{{exercise-start}} {title}\n:label: {label}\n```\n\nAsk.\n\n```{{exercise-end}}\n```"


def solution(label="ex-one"):
    return f"```{{solution-start}} {label}\n:class: dropdown\n```\n\nThe secret."


END = "```{solution-end}\n```"


def toy(*cells):
    return new_notebook(
        cells=[
            new_markdown_cell(cell[3:]) if cell.startswith("md:") else new_code_cell(cell) for cell in cells
        ]
    )


def test_a_solution_becomes_a_stub():
    made = student.without_solutions(
        toy(
            "a = 1",
            f"md:Before.\n\n{exercise()}\n\n{solution()}",
            "secret = 42",
            f"md:More secret.\n\n{END}\n\n## Verdict",
            "b = 2",
        ),
        "toy",
    )
    kinds = [(cell.cell_type, cell.source.split("\n")[0]) for cell in made.cells]
    assert kinds == [
        ("code", "a = 1"),
        ("markdown", "Before."),
        ("code", '# Your answer to "One"'),
        ("markdown", "## Verdict"),
        ("code", "b = 2"),
    ]
    assert "Ask." in made.cells[1].source and made.cells[2].id == "answer-ex-one"
    assert "ecret" not in str(made)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([f"md:{exercise()}"], "no solution"),
        ([f"md:{exercise()}\n\n{exercise('ex-two')}"], "out of step"),
        ([f"md:{solution()}\n\n{END}"], "out of step"),
        ([f"md:{exercise()}\n\n{solution('ex-two')}\n\n{END}"], "solution of ex-two follows ex-one"),
        ([f"md:{exercise()}\n\n{solution()}"], "not closed"),
        ([f"md:{END}"], "none to end"),
        (["md:```{exercise-start} One\n```\n\nAsk.\n\n```{exercise-end}\n```"], "has no label"),
    ],
)
def test_an_exercise_out_of_step_with_its_solution_is_named(cells, says):
    with pytest.raises(student.StepError, match=says):
        student.without_solutions(toy(*cells), "toy")


@each_notebook
def test_each_exercise_of_a_chapter_has_one_stub_and_nothing_of_a_solution_is_left(name):
    chapter = nbformat.read(NOTEBOOKS[name], as_version=4)
    made = student.without_solutions(chapter, name)
    text = "\n".join(cell.source for cell in chapter.cells if cell.cell_type == "markdown")
    labels = re.findall(r"\{exercise-start\}[^\n]*\n:label: *(\S+)", text)
    stubs = [cell.id for cell in made.cells if "NotImplementedError" in cell.source]
    assert stubs == [f"answer-{label}" for label in labels] and len(labels) >= 4
    kept = "\n".join(cell.source for cell in made.cells)
    assert "{solution" not in kept
    solutions = [cell.source for cell in chapter.cells if cell.id.startswith("solution")]
    assert solutions and not any(source in kept for source in solutions)
    # What is not a solution is all there.
    for cell in chapter.cells:
        if cell.cell_type == "code" and not cell.id.startswith("solution"):
            assert cell.source in kept, cell.id


@each_notebook
def test_a_student_has_the_check_that_an_exercise_names_before_the_solution_is_opened(name):
    made = student.without_solutions(nbformat.read(NOTEBOOKS[name], as_version=4), name)
    defined, starred = set(), 0
    for cell in made.cells:
        if cell.cell_type == "code":
            defined |= set(re.findall(r"^def (check_\w+)\(", cell.source, re.M))
            continue
        for exercise in re.findall(r"\{exercise-start\}(.*?)\{exercise-end\}", cell.source, re.DOTALL):
            named = set(re.findall(r"`(check_\w+)", exercise))
            assert named <= defined, f"{named - defined} is not there yet, or is in a solution"
            if re.search(r"^★ ", exercise, re.M):
                starred += 1
                assert named, f"an exercise with one star has an answer to check:\n{exercise}"
    assert starred


@pytest.mark.parametrize("name", [next(iter(name for name in NOTEBOOKS if name.startswith("05")))])
def test_a_chapter_of_students_runs_up_to_its_first_stub(name, tmp_path):
    made = student.without_solutions(nbformat.read(NOTEBOOKS[name], as_version=4), name)
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


def test_the_command_writes_every_chapter_and_nothing_else(tmp_path):
    (tmp_path / "old.ipynb").write_text("{}", encoding="utf-8")
    script = BOOK.root / "tools" / "student.py"
    subprocess.run([sys.executable, script, "--output", tmp_path], check=True, capture_output=True)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(NOTEBOOKS)
