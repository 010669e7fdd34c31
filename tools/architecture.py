"""Who imports whom: the layers of pyproject.toml hold, and docs/ARCHITECTURE.md shows the imports.

    python tools/architecture.py          names an import that breaks a layer, and a drawing that is out of
    date python tools/architecture.py --write  draws it again
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from pathlib import Path

import grimp
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
DRAWING = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)
PACKAGES = ("posgeom", "posbook")
# Everything uses these, or they use everything: their arrows would say nothing.
LEFT_OUT = {"posgeom", "posgeom.__main__", "posgeom._lazy", "posgeom.checks", "posbook"}


def broken_layers(root: Path = ROOT) -> str:
    """What import-linter says of the contracts in ``pyproject.toml``; empty where all are kept."""
    said = io.StringIO()
    before = Path.cwd()
    os.chdir(root)
    try:
        with contextlib.redirect_stdout(said):
            status = lint_imports(config_filename="pyproject.toml", no_cache=True)
    finally:
        os.chdir(before)
    return "" if status == EXIT_STATUS_SUCCESS else said.getvalue()


def drawing() -> str:
    """The rooms as boxes and the imports between them as arrows, in Mermaid's language."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    arrows = {
        (room(importer), room(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    shown = sorted((b, a) for a, b in arrows if a != b and not {a, b} & LEFT_OUT)
    lines = [f"    {imported} --> {importer}" for imported, importer in shown]
    return "\n".join(["```mermaid", "flowchart LR", *lines, "```", ""])


def room(module: str) -> str:
    """The room of a module: the first two parts of its name, and the whole of posbook as one."""
    return "posbook" if module.startswith("posbook") else ".".join(module.split(".")[:2])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--write", action="store_true", help="draw the imports into docs/ARCHITECTURE.md")
    options = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    new = DRAWING.sub(lambda _: drawing(), text, count=1)
    if options.write:
        PAGE.write_text(new, encoding="utf-8", newline="\n")
        text = new
    faults = [broken_layers()] if broken_layers() else []
    if text != new:
        faults.append("docs/ARCHITECTURE.md is not of this code: python tools/architecture.py --write")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
