"""The Sphinx extension that writes each chapter as a notebook that reads anywhere, into _build/notebooks.

Colab, JupyterLab, VS Code and GitHub know no MyST. So the text of a chapter comes from the build's own
doctree, as plain Markdown with every number, title and link in it (plain_markdown.py), and the code cells,
with their outputs, from the executed notebook. These are the *reading copies*; tools/copies.py makes others
from them.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from PIL import Image
from sphinx.application import Sphinx

from tools import plain_markdown
from tools.address import Address
from tools.plain_markdown import Cell, Room, Text

__all__ = ["ROOM", "compose", "setup"]

FOLDER = "notebooks"
# Cells with one of these tags hold what a reader may leave closed; so does the set-up cell.
FOLDED = {"hide-input", "hide-cell"}
SETUP_CELL_ID = "setup"
# The name that Colab, JupyterLab and VS Code all have, whatever the kernel of the build was called.
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
# Where a cell says that it belongs to an exercise or a solution, and to which.
ROOM = "room"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _export)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _export(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    address = Address.load(Path(app.srcdir))
    target = Path(app.outdir).parent / FOLDER
    target.mkdir(exist_ok=True)
    chapters = sorted(doc for doc in app.env.found_docs if doc.startswith(f"{FOLDER}/"))
    for docname in chapters:
        stem = docname.partition("/")[2]
        # The builder keeps the numbers of the page that it wrote last.
        app.builder.fignumbers = app.env.toc_fignumbers.get(docname, {})
        doctree = app.env.get_and_resolve_doctree(docname, app.builder)
        pieces = plain_markdown.pieces(doctree, docname, app.builder, address.page(docname))
        executed = nbformat.read(Path(app.srcdir) / f"{docname}.ipynb", as_version=4)
        notebook = compose(pieces, executed, header(address, stem))
        nbformat.write(notebook, target / f"{stem}.ipynb")
        # The page's own download links lead here.
        nbformat.write(notebook, Path(app.outdir) / "_sources" / f"{docname}.ipynb")
    for old in set(target.glob("*.ipynb")) - {target / f"{doc.partition('/')[2]}.ipynb" for doc in chapters}:
        old.unlink()


def header(address: Address, stem: str) -> str:
    """The line under a chapter's title that says what the copy is."""
    return (
        f"*[This chapter on the site]({address.page(f'{FOLDER}/{stem}')}) · "
        f"[in Colab]({address.colab(stem)}) · all chapters: [{address.site}]({address.site})*"
    )


def compose(pieces: Iterable[object], executed: NotebookNode, under_the_title: str) -> NotebookNode:
    """A notebook of the pieces of a chapter, with the code cells of its executed copy.

    Raises
    ------
    ValueError
        for a code cell of the executed copy that the pieces leave out or have twice.
    """
    cells = list(_cells(pieces, executed))
    code = [cell.id for cell in cells if cell.cell_type == "code"]
    if code != (wanted := [cell.id for cell in executed.cells if cell.cell_type == "code"]):
        raise ValueError(f"the page has not the code cells of its notebook: {set(code) ^ set(wanted)}")
    title, *rest = cells[0].source.split("\n", 1)
    cells[0].source = "\n".join([title, "", under_the_title, *rest])
    notebook = nbformat.v4.new_notebook(
        cells=cells,
        metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}},
    )
    # Colab keeps the list of closed headings with the notebook, JupyterLab with the cell.
    closed = [cell.metadata["id"] for cell in cells if "id" in cell.metadata]
    notebook.metadata["colab"] = {"collapsed_sections": closed, "provenance": []}
    nbformat.validate(notebook)
    return notebook


def _cells(pieces: Iterable[object], executed: NotebookNode) -> Iterator[NotebookNode]:
    room: Room | None = None
    numbers = itertools.count()
    for piece in pieces:
        if isinstance(piece, Text):
            cell = nbformat.v4.new_markdown_cell(piece.markdown, id=f"text-{next(numbers)}")
        elif isinstance(piece, Cell):
            cell = code_cell(executed.cells[piece.index])
        else:
            # A heading has done its work: the text after it is a piece of its own.
            if isinstance(piece, Room):
                room = piece if piece.edge == "start" else None
            continue
        if room:
            cell.metadata[ROOM] = {"kind": room.kind, "label": room.label}
            if room.kind == "solution" and cell.cell_type == "markdown" and cell.source.startswith("#"):
                cell.metadata |= {"jp-MarkdownHeadingCollapsed": True, "id": cell.id}
        yield cell


def code_cell(executed: NotebookNode) -> NotebookNode:
    """A code cell for readers: closed where the page closes it, without outputs that only the site reads."""
    cell = nbformat.v4.new_code_cell(
        executed.source, id=executed.id, execution_count=executed.execution_count
    )
    tags = executed.metadata.get("tags", [])
    if tags:
        cell.metadata["tags"] = list(tags)
    if executed.id == SETUP_CELL_ID or FOLDED & set(tags):
        cell.metadata |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
    cell.outputs = [
        output
        for output in executed.outputs
        if "scrapbook" not in output.get("metadata", {}) and output.get("name") != "stderr"
    ]
    for output in cell.outputs:
        if "image/png" in output.get("data", {}):
            output.metadata.setdefault("image/png", {})["width"] = shown_width(output.data["image/png"])
    return cell


def shown_width(png: str) -> int:
    """The width of a picture in the pixels of a style sheet, of which an inch has 96."""
    picture = Image.open(BytesIO(base64.b64decode(png)))
    return round(picture.width * 96 / picture.info["dpi"][0])
