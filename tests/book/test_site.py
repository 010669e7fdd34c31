"""The built site: complete, self-contained, and usable without seeing or pointing."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlparse

import pytest
from bs4 import BeautifulSoup

from tools import build
from tools.address import Address

BOOK = build.Book()
PAGES = BOOK.pages()
NOTEBOOKS = BOOK.notebooks()

each_page = pytest.mark.parametrize("page", PAGES)
each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)

# Attributes by which a browser fetches something without being asked to.
FETCHES = {
    "script": ["src"],
    "img": ["src", "srcset"],
    "source": ["src", "srcset"],
    "iframe": ["src"],
    "object": ["data"],
    "embed": ["src"],
    "video": ["src", "poster"],
    "audio": ["src"],
    "input": ["src"],
    "use": ["href", "xlink:href"],
    "image": ["href", "xlink:href"],
}
FETCHING_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
    "manifest",
}


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def page_file(site: Path, page: str) -> Path:
    return site / f"{page}.html"


def fetched(html: BeautifulSoup) -> list[str]:
    addresses = [
        tag[attribute]
        for tag in html.find_all(list(FETCHES))
        for attribute in FETCHES[tag.name]
        if tag.get(attribute)
    ]
    for link in html.find_all("link"):
        if FETCHING_LINKS & set(link.get("rel", [])):
            addresses.append(link.get("href", ""))
    for style in [tag.get("style", "") for tag in html.find_all(style=True)] + [
        s.text for s in html.find_all("style")
    ]:
        addresses += fetched_by_css(style)
    return addresses


def fetched_by_css(text: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.findall(r"url\(\s*['\"]?([^'\")]+)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)


def foreign(addresses: list[str]) -> list[str]:
    return [address for address in addresses if re.match(r"\s*(?:https?:)?//", address)]


@each_page
def test_every_page_of_the_toc_was_built_and_is_linked_from_every_other(page, site):
    html = soup(page_file(site, page))
    assert html.find("h1") is not None
    here = urljoin("/", f"{page}.html")
    links = {urljoin(here, tag["href"]).split("#")[0] for tag in html.find_all("a", href=True)}
    assert {f"/{other}.html" for other in PAGES if other != page} <= links


def test_the_front_door_leads_to_the_first_page(site):
    html = soup(site / "index.html")
    assert html.find("meta", {"http-equiv": "refresh"})["content"] == f"0; url={PAGES[0]}.html"
    assert (site / "favicon.ico").is_file()


@each_notebook
def test_each_chapter_opens_itself_in_colab(name, site):
    html = soup(page_file(site, f"notebooks/{name}"))
    found = {tag["href"] for tag in html.find_all("a", href=re.compile("colab.research.google.com"))}
    assert found == {Address.load().colab(name)}


@each_notebook
def test_the_notebook_offered_for_download_is_the_exported_one(name, site):
    path = page_file(site, f"notebooks/{name}")
    links = {tag["href"] for tag in soup(path).find_all("a", href=re.compile(r"\.ipynb$"))}
    offered = {address for address in links if "//" not in address}
    assert offered == {soup(path).find("a", string="Download the notebook")["href"]}
    exported = site.parent / "notebooks" / f"{name}.ipynb"
    for address in offered:
        assert (path.parent / address).resolve().read_bytes() == exported.read_bytes()


@each_notebook
def test_a_chapter_has_the_number_of_its_file_everywhere(name, site):
    number = str(int(name.split("_")[0]))
    html = soup(page_file(site, f"notebooks/{name}"))
    assert html.select_one("article h1").get_text().startswith(f"{number}. ")
    entry = html.select_one("nav.bd-links .current.active > a")
    assert entry.get_text().strip().startswith(f"{number}. ")
    captions = " ".join(span.get_text() for span in html.select("article .caption-number, article .eqno"))
    numbers = set(re.findall(r"(\d+)\.\d+", captions))
    assert numbers <= {number}


def test_no_page_fetches_anything_from_another_host(site):
    faults = {
        path.relative_to(site).as_posix(): foreign(fetched(soup(path)))
        for path in site.rglob("*.html")
        if foreign(fetched(soup(path)))
    }
    assert not faults


def test_no_style_sheet_fetches_anything_from_another_host(site):
    sheets = list(site.rglob("*.css"))
    assert sheets
    assert not [path.name for path in sheets if foreign(fetched_by_css(path.read_text(encoding="utf-8")))]


@each_page
def test_no_script_of_a_page_names_a_cdn(page, site):
    scripts = soup(page_file(site, page)).find_all("script")
    hosts = re.compile(
        r"https?://(?:cdn|unpkg|fonts\.|ajax\.)[^\"' ]*|https?://[^\"' ]*(?:jsdelivr|cloudflare)[^\"' ]*"
    )
    assert not [hosts.findall(script.text) for script in scripts if hosts.search(script.text)]
    assert not [script for script in scripts if "thebe" in script.text or "thebe" in script.get("src", "")]


@each_page
def test_what_a_page_needs_and_links_to_on_the_site_is_there(page, site):
    path = page_file(site, page)
    html = soup(path)
    links = [tag["href"] for tag in html.find_all("a", href=True)]
    local = [
        address
        for address in fetched(html) + links
        if not urlparse(address).scheme and not foreign([address])
    ]
    missing = [
        address
        for address in local
        if (file := unquote(urlparse(address).path)) and not (path.parent / file).resolve().exists()
    ]
    assert not missing
    ids = {tag["id"] for tag in html.find_all(id=True)}
    anchors = [unquote(address[1:]) for address in links if address.startswith("#") and len(address) > 1]
    assert not [anchor for anchor in anchors if anchor not in ids]


@each_page
def test_every_picture_has_its_words(page, site):
    images = soup(page_file(site, page)).find_all("img")
    assert not [image.get("src") for image in images if not image.get("alt", "").strip()]


@each_notebook
def test_the_words_of_a_figure_are_not_its_file_name(name, site):
    images = soup(page_file(site, f"notebooks/{name}")).select("article img, main img")
    assert not [
        image["alt"] for image in images if re.search(r"_images|\.png|^Figure$", image.get("alt", ""))
    ]


@each_page
def test_each_id_is_on_a_page_once(page, site):
    ids = Counter(tag["id"] for tag in soup(page_file(site, page)).select("article [id]"))
    assert not [name for name, times in ids.items() if times > 1]


@each_page
def test_no_reference_and_no_number_is_left_unresolved(page, site):
    text = soup(page_file(site, page)).find("article").get_text()
    assert not re.findall(r"\{(?:glue|numref|prf|cite|eq|ref|doc)[:\w]*\}`|\[\?\]|No key '", text)


@each_notebook
def test_a_proof_is_set_as_one(name, site):
    html = soup(page_file(site, f"notebooks/{name}"))
    boxes = html.select("div.proof.admonition")
    proofs = [box for box in boxes if not box.find(class_="admonition-title", recursive=False)]
    for proof in proofs:
        assert "argument" in proof["class"] and proof.find("p").find("em").get_text() == "Proof.", proof
        assert not proof.has_attr("id")


def test_mathematics_is_served_by_the_site_itself(site):
    script = next(site.rglob("tex-mml-chtml.js"))
    assert script.relative_to(site).as_posix() == "_static/mathjax/tex-mml-chtml.js"
    fonts = list((script.parent / "output").rglob("*.woff"))
    assert len(fonts) > 20
    with_mathematics = [page for page in PAGES if soup(page_file(site, page)).select(".math")]
    for page in with_mathematics:
        sources = [tag.get("src", "") for tag in soup(page_file(site, page)).find_all("script")]
        assert any("mathjax/tex-mml-chtml.js" in source for source in sources), page


def test_the_checks_of_this_file_see_what_they_look_for():
    html = BeautifulSoup(
        "<script src='https://x.org/a.js'></script><link rel='preload' href='//x.org/f.woff'><a href='https://x.org'>"
        "<link rel='canonical' href='https://x.org'><img src='a.png'><p style=\"background:url('https://x.org/p.png')\">",
        "html.parser",
    )
    assert foreign(fetched(html)) == ["https://x.org/a.js", "//x.org/f.woff", "https://x.org/p.png"]
    assert fetched_by_css("@import 'https://x.org/s.css'; /* url(https://x.org/comment) */") == [
        "https://x.org/s.css"
    ]
