r"""Which symbols the formulas of the book use, and whether the page book/notation.md has them.

    python tools/notation.py            what is missing there, and what is listed in vain
    python tools/notation.py --symbols  the symbols of each page

A symbol is a letter with what is set above it or around it: ``\mu``, ``\hat{\mu}``, ``\mathbf{1}``. Capitals
below belong to its name, and so do infinity, a star and a ring: ``d_{H}``, ``P_{\infty}``, ``R^{*}``. Any
other subscript is an index: ``N_i`` and ``N`` are one symbol, ``i`` is another. Primes count for nothing.
What a reader brings from school need not be listed (SCHOOL); every other command must be.

On the page, symbols stand in the first cell of a table's row. A table under the heading LOCAL is of the
symbols of the page to which the line above it links. Every other table is of symbols that hold in the whole
book; the last cell of a row links to the page that has them first and, after the words OTHERWISE, to
pages where one of them means something of that page's own.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
import yaml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.macros import BRACES, COMMAND, bare, expand  # noqa: E402

NOTATION = "book/notation"
LOCAL = "Symbols of one page"
OTHERWISE = "but see"

# How a formula is set, not what it says; of two brackets, the second says it.
LAYOUT = set(
    r"""\left \right \big \bigl \bigr \Big \Bigl \Bigr \quad \qquad \displaystyle \nolimits
    \frac \tfrac \dfrac \Vert \lvert \rvert \lVert \langle \lfloor""".split()
)
# What a reader brings from school.
SCHOOL = set(
    r"""\sqrt \sum \int \log \exp \sin \cos \tan \cot \arcsin \arccos \max \min \sup \bmod \binom \tbinom
    \le \ge \ne \neq \approx \pm \cdot \times \infty \in \subseteq \to \longrightarrow \leftrightarrow
    \dots \cdots""".split()
)

NO_SYMBOLS = re.compile(r"\\(?:text|begin|end)\s*\{[^{}]*\}")
AROUND = r"\\(?:hat|tilde|bar|mathbf|mathrm|mathcal|mathbb|operatorname)(?![A-Za-z])"
SYMBOL = re.compile(
    rf"(?P<around>{AROUND})\s*(?P<inner>{BRACES}|{COMMAND}|\w)|(?P<plain>{COMMAND}|\\\#|[A-Za-z])"
)
SCRIPT = re.compile(rf"\s*(?:'|(?P<sign>[_^])\s*(?P<what>{BRACES}|{COMMAND}|[^\s{{}}]))")
# The small letters name, too: the corrected distances, the matrix of the queries.
SUBSCRIPT_OF_A_NAME = re.compile(r"([A-Z]+|\\infty|[cq])(?:,[a-z]+)?")
SUPERSCRIPTS_OF_A_NAME = {"*", r"\circ"}
SIGNS_ABOVE = {"+", r"\top"}


@dataclass(frozen=True)
class Row:
    """Symbols that hold in the whole book, the page that has them first, and pages that lend them out."""

    symbols: frozenset[str]
    first: str
    elsewhere: frozenset[str]


@dataclass(frozen=True)
class Listed:
    """What the notation page lists: for the whole book, and for one page each."""

    rows: list[Row]
    local: dict[str, set[str]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--symbols", action="store_true", help="list the symbols of each page")
    used = used_symbols()
    if parser.parse_args().symbols:
        for page, symbols in used.items():
            print(f"{page}: {'  '.join(sorted(symbols))}")
        return 0
    problems = faults(used, listed((ROOT / f"{NOTATION}.md").read_text(encoding="utf-8")))
    print(*problems, sep="\n")
    return 1 if problems else 0


def faults(used: Mapping[str, set[str]], page: Listed) -> list[str]:
    """What is wrong with the notation page, a line each."""
    found = []
    everywhere = set().union(*(row.symbols for row in page.rows))
    for name, symbols in used.items():
        own = page.local.get(name, set())
        found += [f"{name} uses {symbol}, which is not listed" for symbol in symbols - own - everywhere]
        found += [f"{symbol} is listed for {name}, which does not use it" for symbol in own - symbols]
        for symbol in own & everywhere:
            if not any(name in row.elsewhere for row in page.rows if symbol in row.symbols):
                found.append(f"{symbol} has a meaning of its own in {name}; its row says nothing of that")
    for row in page.rows:
        for symbol in row.symbols - used.get(row.first, set()):
            found.append(f"{symbol} is said to come from {row.first or 'no page'}, which does not use it")
        for name in row.elsewhere:
            if not row.symbols & page.local.get(name, set()):
                found.append(
                    f"{', '.join(sorted(row.symbols))}: see {name}, it says, which has no row for it"
                )
    found += [f"{name} has a table and is no page of the book" for name in page.local.keys() - used.keys()]
    return sorted(found)


# --- the pages ------------------------------------------------------------------------------------------


def used_symbols(root: Path = ROOT) -> dict[str, set[str]]:
    """The symbols of each page of the table of contents, except the notation page itself."""
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    names = [contents["root"], *(page["file"] for part in contents["parts"] for page in part["chapters"])]
    return {
        name: {
            symbol for text in texts(root, name) for formula in formulas(text) for symbol in symbols(formula)
        }
        for name in names
        if name != NOTATION
    }


def texts(root: Path, name: str) -> Iterator[str]:
    """The pieces of Markdown that make a page."""
    if (root / f"{name}.ipynb").is_file():
        for cell in nbformat.read(root / f"{name}.ipynb", as_version=4).cells:
            if cell.cell_type == "markdown":
                yield cell.source
            yield cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
    else:
        yield (root / f"{name}.md").read_text(encoding="utf-8")
    if name == "book/verdicts":
        # Its claims are patterns, in which a brace is written twice.
        for text in _strings(yaml.safe_load((root / "book" / "claims.yml").read_text(encoding="utf-8"))):
            yield text.replace("{{", "{").replace("}}", "}")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def formulas(markdown: str) -> Iterator[str]:
    """Each formula in a text: between dollars, in a role, in a directive or in its title."""
    for token in parse(markdown):
        for inline in token.children or ():
            if inline.type.startswith("math_inline") or inline.meta.get("name") == "math":
                yield inline.content
        if token.type.startswith("math_block") or token.type == "amsmath":
            yield token.content
        if directive := re.match(r"\{([\w:-]+)\}(.*)", token.info):
            if directive[1] == "math":
                yield re.sub(r"^:.*", "", token.content, flags=re.MULTILINE)
            elif directive[1] not in ("code-block", "code-cell"):
                yield from formulas(directive[2])
                yield from formulas(token.content)


def parse(markdown: str) -> list[Token]:
    return _parser().parse(markdown)


@cache
def _parser():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    extensions = set(config["parse"]["myst_enable_extensions"])
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


# --- a formula ------------------------------------------------------------------------------------------


def symbols(formula: str, *, indices: bool = True) -> set[str]:
    """The symbols of a formula, each written in one way; those of its indices and exponents too, or not."""
    return set(_symbols(expand(NO_SYMBOLS.sub(" ", formula)), indices=indices))


def _symbols(formula: str, *, indices: bool = True) -> Iterator[str]:
    at = 0
    while found := SYMBOL.search(formula, at):
        at = found.end()
        name, rest = found["plain"], []
        if found["around"]:
            inner = bare(found["inner"])
            # A word is upright whichever way it was made so.
            around = r"\operatorname" if found["around"] == r"\mathrm" and len(inner) > 1 else found["around"]
            name = f"{around}{{{inner}}}"
        named = name not in LAYOUT | SCHOOL
        name = r"^{\top}" if name == r"\top" else name
        while script := SCRIPT.match(formula, at):
            at = script.end()
            what = bare(script["what"] or "")
            of_name = SUBSCRIPT_OF_A_NAME.fullmatch(what) if script["sign"] == "_" else None
            if named and of_name:
                name += f"_{{{of_name[1]}}}"
                rest.append(what[of_name.end(1) :])
            elif named and script["sign"] == "^" and what in SUPERSCRIPTS_OF_A_NAME:
                name += f"^{{{what}}}"
            elif script["sign"] == "^" and what in SIGNS_ABOVE:
                yield f"^{{{what}}}"
            else:
                rest.append(what)
        if name not in LAYOUT | SCHOOL:
            yield name
        for part in rest if indices else ():
            yield from _symbols(part)


# --- the notation page ----------------------------------------------------------------------------------


def listed(markdown: str) -> Listed:
    """The rows of the tables of the notation page that begin with a symbol."""
    rows, local = [], {}
    section = page = ""
    tokens = parse(markdown)
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            section = tokens[at + 1].content
        elif token.type == "paragraph_open":
            named = [child.content for child in tokens[at + 1].children if child.meta.get("name") == "doc"]
            page = _page(named[0]) if named else ""
        elif token.type == "tr_open" and tokens[at + 1].type == "td_open":
            end = next(i for i in range(at, len(tokens)) if tokens[i].type == "tr_close")
            first, *_, last = [cell for cell in tokens[at:end] if cell.type == "inline"]
            found = {
                symbol for formula in formulas(first.content) for symbol in symbols(formula, indices=False)
            }
            if found and section == LOCAL:
                local.setdefault(page, set()).update(found)
            elif found:
                rows.append(Row(frozenset(found), *_chapters(last)))
    return Listed(rows, local)


def _chapters(cell: Token) -> tuple[str, frozenset[str]]:
    """The pages to which the last cell of a row links, before and after the words OTHERWISE."""
    first, elsewhere, otherwise = "", set(), False
    for child in cell.children:
        if child.type == "text" and OTHERWISE in child.content:
            otherwise = True
        elif child.type == "link_open" and otherwise:
            elsewhere.add(_page(child.attrs["href"]))
        elif child.type == "link_open":
            first = _page(child.attrs["href"])
    return first, frozenset(elsewhere)


def _page(target: str) -> str:
    path = posixpath.join(posixpath.dirname(NOTATION), target)
    return posixpath.splitext(posixpath.normpath(path))[0]


if __name__ == "__main__":
    sys.exit(main())
