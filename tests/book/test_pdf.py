"""The printed book: pages bound in order, an outline, and links that stay within the file."""

from __future__ import annotations

from io import BytesIO

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Link

from tools import build, check_site, pdf


def printed(sheets: int, *addresses: str) -> bytes:
    writer = PdfWriter()
    for _ in range(sheets):
        writer.add_blank_page(width=200, height=300)
    for address in addresses:
        writer.add_annotation(0, Link(rect=(10, 10, 50, 20), url=address))
    content = BytesIO()
    writer.write(content)
    return content.getvalue()


@pytest.fixture
def bound() -> PdfReader:
    pages = {
        "book/index": printed(
            2, "http://127.0.0.1:81/notebooks/01_a.html#fig-one", "https://arxiv.org/abs/1"
        ),
        "notebooks/01_a": printed(3, "http://127.0.0.1:81/book/gone.html"),
    }
    content = BytesIO()
    pdf.bind(pages, {"book/index": "The book", "notebooks/01_a": "1. A"}).write(content)
    return PdfReader(content)


def test_pages_are_bound_in_order_with_an_outline(bound):
    assert len(bound.pages) == 5
    outline = [(item.title, bound.get_destination_page_number(item)) for item in bound.outline]
    assert outline == [("The book", 0), ("1. A", 2)]


def test_links_to_pages_of_the_book_stay_within_the_file(bound):
    first = [note.get_object() for note in bound.pages[0]["/Annots"]]
    outwards = [note["/A"]["/URI"] for note in first if "/A" in note]
    inwards = [note for note in first if "/Dest" in note]
    assert outwards == ["https://arxiv.org/abs/1"]
    assert len(inwards) == 1
    assert bound.get_page_number(inwards[0]["/Dest"][0].get_object()) == 2


def test_without_a_site_the_command_says_what_to_run(tmp_path):
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\n", encoding="utf-8")
    (tmp_path / "_config.yml").write_text(
        "title: T\nrepository: {url: https://github.com/a/b, branch: main}\n", encoding="utf-8"
    )
    (tmp_path / "address.yml").write_bytes((build.ROOT / "address.yml").read_bytes())
    (tmp_path / "index.md").write_text("# T\n", encoding="utf-8")
    with pytest.raises(pdf.PrintError, match="run make book first"):
        pdf.make(build.Book(tmp_path), tmp_path / "book.pdf")


@pytest.mark.skipif(check_site.why_not() is not None, reason=check_site.why_not() or "")
def test_a_page_is_printed_with_what_was_folded(tmp_path):
    (tmp_path / "index.html").write_text(
        "<html><head><title>T</title></head><body><h1>T</h1>"
        "<details><summary>Solution</summary><p>hidden answer</p></details></body></html>",
        encoding="utf-8",
    )
    site = check_site.Site(tmp_path, ("index",))
    (content,) = pdf.print_pages(site, say=lambda line: None).values()
    text = "".join(sheet.extract_text() for sheet in PdfReader(BytesIO(content)).pages)
    assert "hidden answer" in text


@pytest.mark.skipif(check_site.why_not() is not None, reason=check_site.why_not() or "")
def test_long_code_begins_where_it_stands_and_the_title_keeps_its_number(tmp_path):
    style = (build.ROOT / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    # What the theme says of paper and of code.
    theme = (
        "div[class*=highlight-] {break-inside: avoid; display: flex; flex-direction: column}"
        ".bd-main .bd-content .bd-article h1:first-of-type {display: none}"
    )
    code = "\n".join(f"line {number}" for number in range(40))
    (tmp_path / "index.html").write_text(
        f"<html><head><title>T</title><style>{theme}</style><style>{style}</style></head><body>"
        "<main class='bd-main'><div class='bd-content'><article class='bd-article'><h1>7. T</h1>"
        f"{'<p>Before.</p>' * 20}"
        "<div class='cell'><div class='cell_input'><div class='highlight-python'><div class='highlight'>"
        f"<pre>{code}</pre></div></div></div></div></article></div></main></body></html>",
        encoding="utf-8",
    )
    (content,) = pdf.print_pages(check_site.Site(tmp_path, ("index",)), say=lambda line: None).values()
    first, *_, last = (sheet.extract_text() for sheet in PdfReader(BytesIO(content)).pages)
    assert "7. T" in first and "line 0" in first and "line 39" in last
