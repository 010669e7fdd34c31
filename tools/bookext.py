"""The Sphinx extension of the site: nothing from other hosts, and what no setting of the theme can do.

* MathJax comes from the package sphinx-mathjax-offline, cut down to what pages load. It cannot lie in the
  book's ``_static``: Jupyter Book would load each of its scripts on each page.
* sphinx-thebe, which Jupyter Book always loads, names a CDN and declares a variable twice: it is unhooked.
* The theme's colour mode gets its default, which Jupyter Book leaves empty.
* A chapter has the number of its file, also while chapters before it are missing, so that "chapter 5" in a
  text is chapter 5 in the contents.
* Under the title of each chapter stands where it can be run: Colab and the download open the exported
  notebook (notebook_export.py), not its source. Roles and ids of the body are made valid.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

from tools.address import Address

CHAPTER = re.compile(r"notebooks/(\d+)_")

# The start-up file, then what it may load later: fonts, TeX packages, and the speech for a screen reader.
MATHJAX_PARTS = (
    "tex-mml-chtml.js",
    "output/chtml",
    "input/tex",
    "a11y",
    "sre/mathmaps/base.json",
    "sre/mathmaps/en.json",
    "sre/mathmaps/nemeth.json",
)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", _settle_config)
    app.connect("builder-inited", _unhook_thebe, priority=1)
    app.connect("builder-inited", _number_chapters_by_file)
    app.connect("html-page-context", _mend_page, priority=900)
    app.connect("build-finished", _copy_icon)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _settle_config(app: Sphinx, config: Config) -> None:
    config.html_context = {"default_mode": "auto", **(config.html_context or {})}
    vendor = Path(app.doctreedir).parent / "vendor"
    copy_mathjax(vendor / "mathjax")
    config.html_static_path.append(str(vendor))


def copy_mathjax(target: Path) -> None:
    """The parts of MathJax that pages load, from the installed package to the folder ``target``."""
    distribution = importlib.metadata.distribution("sphinx-mathjax-offline")
    source = Path(distribution.locate_file("sphinx-mathjax-offline/static/mathjax"))
    shutil.rmtree(target, ignore_errors=True)
    for part in MATHJAX_PARTS:
        destination = target / part
        destination.parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, destination)
        else:
            shutil.copy(source / part, destination)


def _unhook_thebe(app: Sphinx) -> None:
    for listeners in app.events.listeners.values():
        listeners[:] = [item for item in listeners if not item.handler.__module__.startswith("sphinx_thebe")]


def _number_chapters_by_file(app: Sphinx) -> None:
    # Figures, equations and statements take their numbers from these in the next step of the same event, so
    # there is no event to wait for.
    assign = TocTreeCollectorWithStyles.assign_section_numbers
    if getattr(assign, "by_file", False):
        return

    def assign_by_file(collector: TocTreeCollectorWithStyles, env: BuildEnvironment) -> list[str]:
        changed = assign(collector, env)
        for page, numbers in env.toc_secnumbers.items():
            chapter = CHAPTER.match(page)
            if chapter:
                first = int(chapter[1])
                env.toc_secnumbers[page] = {
                    anchor: (first, *rest[1:]) for anchor, rest in numbers.items() if rest
                }
                for numbered in [env.titles[page], *env.tocs[page].findall(nodes.reference)]:
                    if numbered.get("secnumber"):
                        numbered["secnumber"] = [first, *numbered["secnumber"][1:]]
        return changed

    assign_by_file.by_file = True
    TocTreeCollectorWithStyles.assign_section_numbers = assign_by_file


def _mend_page(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    if "body" not in context:
        return
    context["body"] = mend_body(context["body"])
    if context.get("page_source_suffix") == ".ipynb":
        colab = Address.load(Path(app.srcdir)).colab(page.rpartition("/")[2])
        download = context["pathto"](f"_sources/{context['sourcename']}", resource=True)
        context["body"] = add_run_line(context["body"], colab, download)
        for group in context.get("header_buttons", ()):
            for button in group.get("buttons", ()):
                if "colab" in str(button.get("url")):
                    button["url"] = colab


def add_run_line(html: str, colab: str, download: str) -> str:
    """The body of a chapter with a line under its title that says where it can be run."""
    line = (
        f'<p class="run-it"><a href="{colab}">Run this chapter in Colab</a>'
        f'<a href="{download}" download>Download the notebook</a></p>'
    )
    return html.replace("</h1>", "</h1>\n" + line, 1)


def mend_body(html: str) -> str:
    """The body of a page with roles that exist, and each id once (all exercises and all proofs share one)."""
    html = html.replace('role="doc-biblioentry"', 'role="listitem"')
    # sphinx-proof writes "Proof." as the first word of the proof itself.
    html = re.sub(
        r'<div class="proof admonition" id="proof">(\s*<p>)Proof\. ?',
        r'<div class="proof argument admonition">\1<em>Proof.</em> ',
        html,
    )
    return re.sub(r'(<section[^>]*) id="(?:proof|exercise|solution)-content"', r"\1", html)


def _copy_icon(app: Sphinx, error: Exception | None) -> None:
    # Browsers ask for it by this name, whatever a page declares.
    if error is None and app.builder.format == "html":
        shutil.copy(Path(app.srcdir) / "_static" / "favicon.ico", Path(app.outdir) / "favicon.ico")
