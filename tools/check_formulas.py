"""Whether the formulas of the exported notebooks parse in the two engines that readers' programs have.

    python tools/check_formulas.py

JupyterLab, Colab and GitHub set formulas with MathJax, VS Code with KaTeX. Both run here in headless
Chromium, from the copies that the packages sphinx-mathjax-offline and sphinxcontrib-katex hold. MathJax gets
its base commands and those of AMS: one that only an extension or the site's configuration knows is a fault.
"""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import bookext, check_site, copies  # noqa: E402
from tools.build import Book  # noqa: E402

PAGE = """<!DOCTYPE html><title>formulas</title>
<script>MathJax = {tex: {packages: ["base", "ams"]}, startup: {typeset: false}}</script>
<script src="mathjax/tex-mml-chtml.js"></script><script src="katex.min.js"></script>"""
PARSE = """async formulas => {
  await MathJax.startup.promise;
  const reasons = [];
  for (const {tex, display} of formulas) {
    let reason = "";
    try {
      const tree = await MathJax.tex2mmlPromise(tex, {display});
      const wrong = /<merror[^>]*data-mjx-error="([^"]*)"/.exec(tree);
      if (wrong) reason = "MathJax: " + wrong[1];
    } catch (error) { reason = "MathJax: " + error.message; }
    try { katex.renderToString(tex, {displayMode: display, throwOnError: true}); }
    catch (error) { reason += (reason && "; ") + error.message; }
    reasons.push(reason);
  }
  return reasons;
}"""


@dataclass(frozen=True)
class Formula:
    """TeX, and whether it has a line of its own."""

    tex: str
    display: bool


@functools.cache
def markdown() -> MarkdownIt:
    """A parser of what Jupyter's programs read: CommonMark with tables and dollars."""
    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, allow_labels=False)


def formulas(notebook: NotebookNode) -> Iterator[Formula]:
    """Each formula in the text of a notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for token in markdown().parse(cell.source):
                if token.type == "math_block":
                    yield Formula(token.content.strip(), True)
                for inline in token.children or ():
                    if inline.type.startswith("math_inline"):
                        yield Formula(inline.content, inline.type == "math_inline_double")


def faults(wanted: Sequence[Formula]) -> dict[Formula, str]:
    """What MathJax or KaTeX says of each formula that it cannot read."""
    katex = next(
        file for file in importlib.metadata.files("sphinxcontrib-katex") if file.name == "katex.min.js"
    )
    with tempfile.TemporaryDirectory() as name, check_site.browser() as opened:
        folder = Path(name)
        bookext.copy_mathjax(folder / "mathjax")
        shutil.copy(katex.locate(), folder / "katex.min.js")
        (folder / "index.html").write_text(PAGE, encoding="utf-8")
        with check_site.served(folder) as address:
            tab = opened.new_page()
            tab.goto(address)
            reasons = tab.evaluate(PARSE, [{"tex": one.tex, "display": one.display} for one in wanted])
    return {formula: reason for formula, reason in zip(wanted, reasons, strict=True) if reason}


def main() -> int:
    if reason := check_site.why_not():
        print(f"error: {reason}", file=sys.stderr)
        return 1
    found = {
        name: list(dict.fromkeys(formulas(notebook)))
        for name, notebook in copies.reading_copies(Book()).items()
    }
    wrong = faults(list(dict.fromkeys(formula for each in found.values() for formula in each)))
    for name, each in found.items():
        for formula in each:
            if formula in wrong:
                print(f"{name}: {formula.tex}\n    {wrong[formula]}")
    print(f"{sum(map(len, found.values()))} formulas, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
