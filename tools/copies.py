"""Copies of the exported notebooks to write in; a copy that somebody changed is never overwritten.

    python tools/copies.py work                  into workbooks: no outputs, to run and to change
    python tools/copies.py student               into _build/student: a stub where a solution was
    python tools/copies.py student --output DIR  elsewhere

Both are made from the reading copies in _build/notebooks, which `make notebooks` writes. A stub raises, so
that *run all cells* stops at the first exercise that has no answer yet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.build import Book  # noqa: E402

SEALS = ".as-written.json"
STUB = '# Your answer to "{title}"\nraise NotImplementedError("{label} has no answer yet")'


class CopyError(Exception):
    """Why there is no copy; the message says how to get one."""


def work(reading: NotebookNode) -> NotebookNode:
    """The copy for running: the same cells without outputs."""
    copy = nbformat.from_dict(reading)
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return copy


def student(reading: NotebookNode) -> NotebookNode:
    """The copy for students: as for running, with a stub for each solution.

    Raises
    ------
    CopyError
        for a solution that does not follow its exercise, or an exercise without one.
    """
    copy = work(reading)
    copy.cells = list(_without_solutions(copy.cells))
    copy.metadata.get("colab", {}).pop("collapsed_sections", None)
    nbformat.validate(copy)
    return copy


def _without_solutions(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    open_exercise = title = None
    before = None
    for cell in cells:
        room = cell.metadata.get("room")
        if room != before:
            if room and room.kind == "exercise":
                if open_exercise:
                    raise CopyError(f"the exercise {open_exercise} has no solution")
                open_exercise, title = room.label, cell.source.split("\n")[0].lstrip("# ")
            elif room:
                if room.label != open_exercise:
                    raise CopyError(f"the solution of {room.label} does not follow its exercise")
                yield stub(open_exercise, title)
                open_exercise = None
        before = room
        if not (room and room.kind == "solution"):
            yield cell
    if open_exercise:
        raise CopyError(f"the exercise {open_exercise} has no solution")


def stub(label: str, title: str) -> NotebookNode:
    """The cell in which an answer to an exercise is to be written."""
    return new_code_cell(STUB.format(title=title.replace('"', "'"), label=label), id=f"answer-{label}"[:64])


def place(notebooks: Mapping[str, NotebookNode], folder: Path, *, say: Callable[[str], None] = print) -> None:
    """Write notebooks, name -> notebook, into a folder, and leave alone what somebody has changed there.

    What this function wrote is known by its hash. A file with another content is its owner's: it stays, and
    where the book has moved on, the book's version is put beside it as ``name.new.ipynb``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seals_file = folder / SEALS
    seals = json.loads(seals_file.read_text(encoding="utf-8")) if seals_file.is_file() else {}
    for name, notebook in notebooks.items():
        text = nbformat.writes(notebook) + "\n"
        path = folder / name
        if _changed(path, seals.get(name)) and _seal(path.read_text(encoding="utf-8")) != _seal(text):
            if seals.get(name) == _seal(text):
                say(f"{path}: kept as you changed it")
                continue
            fresh = path.with_suffix(".new.ipynb")
            if _changed(fresh, seals.get(fresh.name)):
                say(
                    f"{path} and {fresh.name}: both kept, as you changed both; move one away"
                )
                continue
            say(f"{path}: kept as you changed it; the book's version is now in {fresh.name}")
            path = fresh
        _write(path, text)
        seals[path.name] = _seal(text)
        # Noted at once: a copy whose note was lost would look like a changed one.
        _write(seals_file, json.dumps(seals, indent=1) + "\n")


def _changed(path: Path, seal: str | None) -> bool:
    return path.is_file() and _seal(path.read_text(encoding="utf-8")) != seal


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)


def reading_copies(book: Book) -> dict[str, NotebookNode]:
    """File name -> exported notebook of each chapter, in reading order."""
    files = {f"{name}.ipynb": book.reading_copies / f"{name}.ipynb" for name in book.notebooks()}
    if missing := [name for name, path in files.items() if not path.is_file()]:
        raise CopyError(f"{missing[0]} has not been exported: run make notebooks first")
    return {name: nbformat.read(path, as_version=4) for name, path in files.items()}


def main(arguments: list[str] | None = None) -> int:
    kinds = {"work": (work, ROOT / "workbooks"), "student": (student, ROOT / "_build" / "student")}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("kind", choices=kinds, help="which copies")
    parser.add_argument("--output", type=Path, help="folder to write to")
    options = parser.parse_args(arguments)
    make, folder = kinds[options.kind]
    try:
        made = {name: make(notebook) for name, notebook in reading_copies(Book()).items()}
    except CopyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    place(made, options.output or folder)
    print(f"{len(made)} notebooks in {options.output or folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
