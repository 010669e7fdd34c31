"""Print the built site as one PDF: _build/geometry-of-positional-encodings.pdf.

    python tools/pdf.py
    python tools/pdf.py --output FILE

Every page of the table of contents is printed by headless Chromium with its formulas typeset, its solutions
and folded cells open, and the static picture where a page has a moving one. Links from page to page become
links within the file, and the table of contents its outline.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlparse

from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Link
from pypdf.generic import ArrayObject, Fit, NameObject

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import build, check_site  # noqa: E402

OUTPUT = "geometry-of-positional-encodings.pdf"
MARGIN = {"top": "18mm", "bottom": "18mm", "left": "18mm", "right": "18mm"}
SCALE = 0.75
FOOTER = (
    '<div style="width:100%;font-size:7pt;text-align:center;color:#555">'
    '<span class="title"></span>, sheet <span class="pageNumber"></span></div>'
)
# What a reader would click open, open; what only a screen is for, gone.
PRINT_STYLE = """
  .bd-sidebar-primary, .bd-sidebar-secondary, .bd-header, .bd-header-article, .prev-next-footer,
  .bd-footer, .skip-link, .headerlink, button.copybtn { display: none !important; }
  .bd-main, .bd-content, .bd-article-container, .bd-article
    { margin-left: 0 !important; max-width: none !important; padding: 0 !important; }
  pre, code { white-space: pre-wrap !important; overflow-wrap: anywhere; }
  h1, h2, h3 { break-after: avoid; }
"""
OPEN_ALL = """() => {
  for (const details of document.querySelectorAll('details')) details.open = true;
  for (const box of document.querySelectorAll('.toggle-hidden')) box.classList.remove('toggle-hidden');
}"""


class PrintError(Exception):
    """Why there is no PDF; the message says how to get one."""


def print_pages(site: check_site.Site, *, say=print) -> dict[str, bytes]:
    """Each page of the site as a PDF of its own, in reading order."""
    printed = {}
    with check_site.served(site.folder) as address, check_site.browser() as opened:
        context = opened.new_context(viewport={"width": 1000, "height": 1400}, color_scheme="light")
        for number, page in enumerate(site.pages, 1):
            tab = context.new_page()
            tab.goto(f"{address}{page}.html", wait_until="networkidle")
            tab.wait_for_function("!window.MathJax || !MathJax.startup || MathJax.startup.promise")
            tab.evaluate("() => window.MathJax?.startup?.promise")
            tab.evaluate(OPEN_ALL)
            tab.add_style_tag(content=PRINT_STYLE)
            printed[page] = tab.pdf(
                format="A4", scale=SCALE, margin=MARGIN, print_background=True, display_header_footer=True,
                header_template="<span></span>", footer_template=FOOTER,
            )  # fmt: skip
            tab.close()
            say(f"  [{number}/{len(site.pages)}] {page}")
    return printed


def bind(printed: Mapping[str, bytes], titles: Mapping[str, str]) -> PdfWriter:
    """One document of all pages, with an outline, and links between them turned inwards."""
    writer, first = PdfWriter(), {}
    for page, content in printed.items():
        first[page] = len(writer.pages)
        for sheet in PdfReader(BytesIO(content)).pages:
            writer.add_page(sheet)
        writer.add_outline_item(title=titles[page], page_number=first[page])
    for number, sheet in enumerate(writer.pages):
        kept = ArrayObject()
        inwards = []
        for reference in sheet.get("/Annots", ArrayObject()):
            annotation = reference.get_object()
            target = page_of(annotation, first)
            if target is None:
                kept.append(reference)
            else:
                inwards.append((annotation["/Rect"], first[target]))
        if "/Annots" in sheet:
            sheet[NameObject("/Annots")] = kept
        for rect, goal in inwards:
            writer.add_annotation(
                number, Link(rect=tuple(rect), target_page_index=goal, fit=Fit.fit_horizontally())
            )
    writer.compress_identical_objects()
    return writer


def page_of(annotation: Mapping[str, object], first: Mapping[str, int]) -> str | None:
    """The page of the book that a link of a printed page leads to; None for any other annotation."""
    action = annotation.get("/A")
    address = urlparse(str(action.get("/URI", ""))) if action else urlparse("")
    if address.hostname != "127.0.0.1":
        return None
    page = unquote(address.path).strip("/").removesuffix(".html")
    return page if page in first else None


def titles_of(site: check_site.Site) -> dict[str, str]:
    """What each page is called."""
    from bs4 import BeautifulSoup

    found = {}
    for page in site.pages:
        soup = BeautifulSoup(site.file(page).read_text(encoding="utf-8"), "html.parser")
        found[page] = " ".join(soup.title.string.split("—")[0].split())
    return found


def make(book: build.Book, output: Path, *, say=print) -> Path:
    """Print the built site of a book.

    Raises
    ------
    PrintError
        where there is no site yet, or no browser.
    """
    site = check_site.site_of(book)
    missing = [page for page in site.pages if not site.file(page).is_file()]
    if missing:
        raise PrintError(f"{missing[0]} has not been built: run make book first")
    if reason := check_site.why_not():
        raise PrintError(reason)
    writer = bind(print_pages(site, say=say), titles_of(site))
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    with partial.open("wb") as file:
        writer.write(file)
    partial.replace(output)
    return output


def main() -> int:
    book = build.Book()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=book.build / OUTPUT, help="where to write it")
    try:
        written = make(book, parser.parse_args().output, say=lambda line: print(line, flush=True))
    except PrintError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{written}: {len(PdfReader(written).pages)} pages, {written.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
