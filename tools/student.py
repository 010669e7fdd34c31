"""Write the notebooks as students get them: the same chapters, a stub where a solution was.

    python tools/student.py              into _build/student
    python tools/student.py --output DIR

A stub raises, so that *run all cells* stops at the first exercise that has no answer yet.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.build import Book  # noqa: E402

GATE = re.compile(
    r"^```\{(?P<kind>exercise|solution)-(?P<edge>start|end)\}(?P<argument>[^\n]*)\n"
    r"(?P<options>(?:(?!```)[^\n]*\n)*?)```[ \t]*$",
    re.M,
)
LABEL = re.compile(r"^:label: *(\S+)", re.M)
STUB = '# Your answer to "{title}"\nraise NotImplementedError("{label} has no answer yet")'


class StepError(ValueError):
    """An exercise and its solution that are out of step; the message names the notebook and the label."""


@dataclass(frozen=True)
class Gate:
    """The start or the end of an exercise or a solution."""

    kind: str
    edge: str
    argument: str
    label: str | None
    source: str


def without_solutions(notebook: NotebookNode, name: str) -> NotebookNode:
    """A copy of the notebook in which a stub stands for each solution; ``name`` is for messages.

    Raises
    ------
    StepError
        for an exercise without label or solution, a solution that does not follow its exercise, and a start
        without its end.
    """
    cells: list[NotebookNode] = []
    inside: str | None = None
    open_exercise: Gate | None = None  # the one whose solution is still to come
    for piece in pieces(notebook):
        if not isinstance(piece, Gate):
            if inside != "solution":
                cells.append(piece)
            continue
        if piece.edge == "start":
            if inside or (piece.kind == "exercise") != (open_exercise is None):
                raise StepError(
                    f"{name}: {piece.kind} {piece.argument!r} is out of step with what is before it"
                )
            if piece.kind == "exercise":
                if piece.label is None:
                    raise StepError(f"{name}: the exercise {piece.argument!r} has no label")
                open_exercise = piece
            elif piece.argument != open_exercise.label:
                raise StepError(f"{name}: the solution of {piece.argument} follows {open_exercise.label}")
            inside = piece.kind
        elif inside != piece.kind:
            raise StepError(f"{name}: an end of {piece.kind} where there is none to end")
        else:
            inside = None
            if piece.kind == "solution":
                cells.append(stub(open_exercise))
                open_exercise = None
        if piece.kind == "exercise":
            cells.append(markdown(piece.source))
    if inside or open_exercise:
        raise StepError(f"{name}: {inside or open_exercise.label} is not closed, or has no solution")
    student = nbformat.from_dict({**notebook, "cells": list(joined(cells))})
    nbformat.validate(student)
    return student


def pieces(notebook: NotebookNode) -> Iterator[NotebookNode | Gate]:
    """The cells, text split at the gates of exercises and solutions."""
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            yield cell
            continue
        end = 0
        for found in GATE.finditer(cell.source):
            if text := cell.source[end : found.start()].strip("\n"):
                yield markdown(text, cell)
            label = LABEL.search(found["options"])
            yield Gate(
                found["kind"], found["edge"], found["argument"].strip(), label and label[1], found[0].strip()
            )
            end = found.end()
        if text := cell.source[end:].strip("\n"):
            yield markdown(text, cell)


def markdown(source: str, like: NotebookNode | None = None) -> NotebookNode:
    """A cell of text, with the metadata of another one."""
    cell = nbformat.v4.new_markdown_cell(source)
    if like is not None:
        cell.metadata = like.metadata
    return cell


def stub(exercise: Gate) -> NotebookNode:
    """The cell in which an answer to the exercise is to be written."""
    cell = new_code_cell(STUB.format(title=exercise.argument.replace('"', "'"), label=exercise.label))
    cell.id = f"answer-{exercise.label}"[:64]
    return cell


def joined(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells with neighbouring cells of text made one, and ids in the order of the chapter."""
    texts: list[str] = []
    number = 0
    for cell in [*cells, None]:
        if cell is not None and cell.cell_type == "markdown":
            texts.append(cell.source)
            continue
        if texts:
            one = markdown("\n\n".join(texts))
            one.id = f"text-{number}"
            number += 1
            texts = []
            yield one
        if cell is not None:
            yield cell


def write(book: Book, output: Path) -> list[Path]:
    """Write every chapter of the book into a folder; none is left from before."""
    output.mkdir(parents=True, exist_ok=True)
    chapters = {
        path.name: without_solutions(nbformat.read(path, as_version=4), path.name)
        for path in book.notebooks().values()
    }
    for old in output.glob("*.ipynb"):
        old.unlink()
    for name, notebook in chapters.items():
        nbformat.write(notebook, output / name)
    return [output / name for name in chapters]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "_build" / "student", help="folder to write to")
    try:
        written = write(Book(), parser.parse_args().output)
    except StepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
