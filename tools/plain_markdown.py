"""A chapter's doctree as plain Markdown, cut where code cells, headings and rooms begin.

The Sphinx build has parsed the chapter, and knows the number and title of everything in it. What
sphinx-markdown-builder makes of such a tree is taken from there; here stands what it does not know (theorems,
exercises, code cells, dropdowns) and what a notebook needs otherwise: formulas without macros and with their
numbers, links that lead to the site, block quotes that Jupyter's Markdown reads.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urljoin

from docutils import nodes
from sphinx.builders import Builder
from sphinx.util.math import get_node_equation_number
from sphinx_markdown_builder.contexts import IndentContext, SubContext, SubContextParams, TableContext
from sphinx_markdown_builder.translator import MarkdownTranslator

from tools import macros

__all__ = ["Cell", "Heading", "Room", "Text", "pieces"]

# A piece that is no text is a mark in the text until the whole is cut: a character that no page has.
MARK = "\N{REPLACEMENT CHARACTER}"
OPTION = re.compile(r"([a-z])\) ")


@dataclass(frozen=True)
class Text:
    """Markdown, without marks."""

    markdown: str


@dataclass(frozen=True)
class Heading:
    """Before a heading, and after one that can be closed: the text that follows is a cell of its own."""


@dataclass(frozen=True)
class Cell:
    """The code cell with this index in the notebook that was parsed."""

    index: int


@dataclass(frozen=True)
class Room:
    """The start or the end of an exercise or a solution, with the label of the exercise."""

    kind: str
    edge: str
    label: str


def pieces(doctree: nodes.document, docname: str, builder: Builder, page: str) -> Iterator[object]:
    """The chapter as ``Text``, ``Heading``, ``Cell`` and ``Room``, in order.

    ``doctree`` is resolved for ``builder``, an HTML builder with the numbers of this document; ``page`` is
    the address of the document on the site, to which its relative links are relative.
    """
    translator = PlainMarkdown(doctree, builder, docname, page)
    doctree.walkabout(translator)
    for position, part in enumerate(re.split(f"{MARK}(.*?){MARK}", translator.astext())):
        if position % 2 == 0:
            if text := part.strip("\n"):
                yield Text(text)
            continue
        kind, *rest = part.split()
        yield {"heading": Heading, "cell": lambda index: Cell(int(index)), "room": Room}[kind](*rest)


def has_code(node: nodes.Element) -> bool:
    """Whether a code cell of the notebook is part of the node."""
    return any(part.get("nb_element") == "cell_code" for part in node.findall(nodes.container))


class PlainTable(TableContext):
    """A table whose bars inside cells are no borders, and whose numbers keep their digits."""

    def make(self) -> str:
        head, *body = (
            "| " + " | ".join("".join(cell).strip().replace("\n", " ") for cell in row) + " |"
            for row in [*self.headers, *self.body]
        )
        return "\n".join([head, "|" + "---|" * len(self.headers[0]), *body])


class PlainMarkdown(MarkdownTranslator):
    """One chapter; ``pieces`` calls it."""

    def __init__(self, document: nodes.document, builder: Builder, docname: str, page: str) -> None:
        super().__init__(document, builder)
        self.docname, self.page = docname, page
        self.quotes = self.tables = 0

    # --- help

    def mark(self, *words: object) -> None:
        self.add(MARK + " ".join(map(str, words)) + MARK, prefix_eol=2, suffix_eol=2)

    def rendered(self, *parts: nodes.Node) -> str:
        """The Markdown of some nodes, in one line."""
        self._push_context(SubContext())
        for part in parts:
            part.walkabout(self)
        return " ".join(self._ctx_queue.pop().make().split())

    def number(self, node: nodes.Element, kind: str) -> str:
        numbers = self.builder.env.toc_fignumbers.get(self.docname, {}).get(kind, {})
        return ".".join(map(str, numbers.get(node["ids"][0], ())))

    def start_quote(self, head: str) -> None:
        self.quotes += 1
        self._push_context(IndentContext("> ", empty=True, params=SubContextParams(2, 2)))
        self.add(f"**{head}**", suffix_eol=2)

    def end_quote(self, _node: nodes.Node | None = None) -> None:
        self._pop_context()
        self.quotes -= 1

    def start_fold(self, summary: str) -> None:
        self.add(f"<details>\n<summary>{summary}</summary>", prefix_eol=2, suffix_eol=2)

    def end_fold(self, _node: nodes.Node | None = None) -> None:
        self.add("</details>", prefix_eol=2, suffix_eol=2)

    # --- text

    def visit_Text(self, node: nodes.Text) -> None:
        text = " ".join(re.split(r"\s*\n\s*", node.astext()))
        if self.status.preserve_line_breaks:
            text = node.astext()
        if self.status.escape_text:
            text = re.sub(r"([\\*`$~]|(?:^|(?<=[\s_]))_|(?<=^)#|(?<=\s)\[(?=[^\]]*\]\())", r"\\\1", text)
            text = text.replace("<", "&lt;")
            if node.parent.index(node) == 0:
                # A sentence that begins with a number is no list.
                text = re.sub(r"^(\s*\d+)([.)]\s)|^(\s*)([-+]\s)", r"\1\3\\\2\4", text)
            if self.tables:
                text = text.replace("|", r"\|")
        self.add(text)

    def visit_emphasis(self, node: nodes.emphasis) -> None:
        self.add(f"*{self.rendered(*node.children)}*")
        raise nodes.SkipNode

    def visit_strong(self, node: nodes.strong) -> None:
        self.add(f"**{self.rendered(*node.children)}**")
        raise nodes.SkipNode

    def visit_raw(self, node: nodes.raw) -> None:
        raise nodes.SkipNode

    def visit_math(self, node: nodes.math) -> None:
        self.add(f"${self.formula(node)}$")
        raise nodes.SkipNode

    def visit_math_block(self, node: nodes.math_block) -> None:
        formula = self.formula(node)
        if node.get("label"):
            formula += rf" \tag{{{get_node_equation_number(self, node)}}}"
        # The signs of a quotation would be read as part of a formula over several lines.
        lines = " ".join(formula.split()) if self.quotes else f"\n{formula}\n"
        self.add(f"$${lines}$$", prefix_eol=2, suffix_eol=2)
        raise nodes.SkipNode

    def formula(self, node: nodes.Element) -> str:
        formula = macros.expand(node.astext().strip(), self.config.mathjax3_config["tex"]["macros"])
        formula = re.sub(r"\n\s*\n", "\n", formula)
        if self.tables:
            formula = formula.replace(r"\|", r"\Vert ").replace("|", r"\vert ")
        return formula

    def visit_reference(self, node: nodes.reference) -> None:
        place = node.get("refuri") or "#" + node.get("refid", "")
        text = self.rendered(*node.children)
        self.add(f"[{text}]({urljoin(self.page, place)})")
        raise nodes.SkipNode

    visit_number_reference = visit_reference

    def visit_target(self, node: nodes.target) -> None:
        raise nodes.SkipNode

    def visit_title(self, node: nodes.title) -> None:
        anchor = "#" + node.parent["ids"][0]
        numbers = self.builder.env.toc_secnumbers.get(self.docname, {})
        number = numbers.get(anchor) or (self.status.section_level == 1 and numbers.get("")) or ()
        self.heading(
            " ".join([".".join(map(str, number)) + "."] * bool(number) + [self.rendered(*node.children)])
        )
        raise nodes.SkipNode

    def heading(self, text: str, deeper: int = 0) -> None:
        self.mark("heading")
        level = min(self.status.section_level + deeper, 6)
        self.add(f"{'#' * level} {text}", prefix_eol=2, suffix_eol=2)

    def visit_table(self, node: nodes.table) -> None:
        self.tables += 1
        self._push_context(PlainTable(params=SubContextParams(2, 2)))

    def depart_table(self, node: nodes.table) -> None:
        self._pop_context()
        self.tables -= 1

    # --- boxes

    def visit_admonition(self, node: nodes.admonition) -> None:
        title = node.next_node(nodes.title)
        self.start_quote(self.rendered(*title.children))
        node.remove(title)

    depart_admonition = end_quote

    def visit_note(self, node: nodes.note) -> None:
        self.start_quote("Note")

    depart_note = end_quote

    def visit_statement(self, node: nodes.Element) -> None:
        """A theorem or one of its relatives: kind, number and title, then what it states."""
        title = node.next_node(nodes.title)
        words = [
            node["realtype"].title(),
            self.number(node, node["countertype"]),
            self.rendered(*title.children),
        ]
        node.remove(title)
        self.start_quote(" ".join(filter(None, words)) + ".")

    depart_statement = end_quote

    def visit_proof_node(self, node: nodes.Element) -> None:
        # Its content is an admonition that begins with the word "Proof."; the word becomes the summary.
        (content,) = node.children
        first = content.next_node(nodes.Text)
        first.parent.replace(first, nodes.Text(first.astext().removeprefix("Proof.").lstrip()))
        node.children = content.children
        self.start_fold("Proof")

    depart_proof_node = end_fold

    def visit_dropdown_main(self, node: nodes.Element) -> None:
        words = node.next_node(lambda part: "sd-summary-text" in part.get("classes", ()), descend=True)
        title = self.rendered(*words.children)
        if option := OPTION.match(title):
            # The options stand open: not every renderer sets a formula in a summary.
            self.add(f"**{option[0].strip()}** {title[option.end() :]}", prefix_eol=2, suffix_eol=2)
            self.start_fold(f"Is it {option[1]})?")
        else:
            self.start_fold(html.escape(words.astext(), quote=False))

    depart_dropdown_main = end_fold

    def visit_dropdown_title(self, node: nodes.Element) -> None:
        raise nodes.SkipNode

    def visit_exercise_enumerable_node(self, node: nodes.Element) -> None:
        title = node.next_node(nodes.title)
        self.mark("room", "exercise", "start", node["label"])
        kind = f"Exercise {self.number(node, 'exercise')}"
        self.heading(f"{kind}{' ' + self.rendered(*title.children) if title.children else ''}", deeper=1)
        node.remove(title)

    def depart_exercise_enumerable_node(self, node: nodes.Element) -> None:
        self.mark("room", "exercise", "end", node["label"])

    def visit_solution_node(self, node: nodes.Element) -> None:
        title = node.next_node(nodes.title)
        number = re.search(r"Exercise ([\d.]+)", title.astext())
        head = f"Solution to Exercise {number[1]}" if number else "Solution"
        node.remove(title)
        self.mark("room", "solution", "start", node["target_label"])
        # A fold cannot hold code cells; a heading that is closed can, and hides all cells but its own.
        if has_code(node):
            self.heading(head, deeper=2)
            self.mark("heading")
        else:
            self.start_fold(head)

    def depart_solution_node(self, node: nodes.Element) -> None:
        if not has_code(node):
            self.end_fold()
        self.mark("room", "solution", "end", node["target_label"])

    # --- code

    def visit_container(self, node: nodes.container) -> None:
        if node.get("nb_element") != "cell_code":
            return
        self.mark("cell", node["cell_index"])
        for figure in node.findall(nodes.figure):
            if caption := figure.next_node(nodes.caption):
                number = self.number(figure, "figure")
                text = f"**Fig. {number}** {self.rendered(*caption.children)}"
                if any("posgeom-moves" in raw.astext() for raw in node.findall(nodes.raw)):
                    text += " *(Run the cell above, and the figure moves.)*"
                self.add(text, prefix_eol=2, suffix_eol=2)
        raise nodes.SkipNode


for _kind in (
    "theorem",
    "proposition",
    "lemma",
    "corollary",
    "definition",
    "conjecture",
    "remark",
    "example",
):
    setattr(PlainMarkdown, f"visit_{_kind}_node", PlainMarkdown.visit_statement)
    setattr(PlainMarkdown, f"depart_{_kind}_node", PlainMarkdown.depart_statement)
