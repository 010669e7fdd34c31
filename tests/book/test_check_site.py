"""The checker of the site: each rule seen to be broken, then the book itself."""

from __future__ import annotations

import pytest

from tools import build, check_site
from tools.address import Address
from tools.check_site import Site

WHY_NOT = check_site.why_not()
in_a_browser = pytest.mark.skipif(bool(WHY_NOT), reason=f"check-site skipped: {WHY_NOT}")

PIXEL = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\1\0\0"
    b"\5\0\1\r\n-\xb4\0\0\0\0IEND\xaeB`\x82"
)


def site_with(folder, body: str = "", head: str = "") -> Site:
    """A site of one good page, with ``body`` and ``head`` put into it."""
    (folder / "favicon.ico").write_bytes(PIXEL)
    (folder / "page.html").write_text(
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>A page</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<style>html[data-theme=dark] body {background: #111; color: #eee}"
        "html[data-theme=dark] a {color: #9cf}</style>"
        f"{head}</head><body><main><article><h1 id='top'>A page</h1><p>Words.</p>{body}</article></main>"
        "</body></html>",
        encoding="utf-8",
    )
    return Site(folder, ("page",))


@pytest.fixture(scope="module")
def context():
    with check_site.browser() as opened:
        yield opened.new_context()


@pytest.fixture
def faults_of(tmp_path, context, monkeypatch):
    monkeypatch.setattr(check_site, "SETTLE_MILLISECONDS", 20)

    def faults(body: str = "", head: str = "") -> list[check_site.Fault]:
        site = site_with(tmp_path, body, head)
        with check_site.served(tmp_path) as address:
            return check_site.check_page(site, "page", context, address)

    return faults


@in_a_browser
def test_a_good_page_has_no_fault(faults_of):
    assert faults_of("<p><a href='#top'>Up</a> <a href='https://example.org/a'>out</a></p>") == []


BROKEN = {
    "request": ("<img alt='a dot' src='https://example.org/dot.png'>", "", "https://example.org/dot.png"),
    "console": ("<script>console.error('it broke')</script>", "", "it broke"),
    "console, a script that stops": ("<script>nothing.at.all</script>", "", "ReferenceError"),
    "missing": ("", "<link rel='stylesheet' href='none.css'>", "404 none.css"),
    "math": ("<p>Let $x_i = 1$ be given.</p>", "", "raw TeX: Let $x_i = 1$"),
    "math, not typeset": ("<p><span class='math'>\\(x\\)</span></p>", "", "not typeset: \\(x\\)"),
    "math, with an error": ("<mjx-container><mjx-merror>x</mjx-merror></mjx-container>", "", "in a formula"),
    "overflow": ("<div style='width: 700px'>wide</div>", "", "width: 700px"),
    "link": ("<p><a href='nowhere.html'>there</a></p>", "", "nowhere.html leads to no file"),
    "link, an anchor": ("<p><a href='#bottom'>there</a></p>", "", "leads to no anchor"),
    "link, outside": ("<p><a href='https://not a host/'>there</a></p>", "", "no address of the web"),
    "accessibility": ("<button style='width: 9px'></button>", "", "button-name"),
    "accessibility, of dark alone": (
        "<p class='pale'>pale</p>",
        "<style>html[data-theme=dark] .pale {color: #333}</style>",
        "color-contrast",
    ),
    "alt": ("<img src='favicon.ico'>", "", "favicon.ico"),
    "alt, of a drawing": ("<svg width='9' height='9'></svg>", "", "<svg"),
}


@in_a_browser
@pytest.mark.parametrize("what", BROKEN)
def test_each_rule_is_seen_to_be_broken_and_alone(what, faults_of):
    rule = what.split(",")[0]
    body, head, wanted = BROKEN[what]
    faults = faults_of(body, head)
    found = [fault for fault in faults if fault.rule == rule]
    assert any(wanted in fault.element for fault in found), faults
    # A picture without words breaks two rules.
    assert {fault.rule for fault in faults} <= {rule, "accessibility"} if rule == "alt" else {rule}


@in_a_browser
def test_a_fault_says_page_width_theme_rule_and_element(faults_of):
    wide = faults_of(BROKEN["overflow"][0])
    assert {(fault.width, fault.theme) for fault in wide} == {(390, "light"), (390, "dark")}
    assert str(wide[0]).startswith("page (390 px, light): overflow: the page is 7")
    pale = faults_of(*BROKEN["accessibility, of dark alone"][:2])
    assert {(fault.width, fault.theme) for fault in pale} == {(390, "dark"), (1280, "dark")}
    assert all('<p class="pale">' in str(fault) for fault in pale)


@in_a_browser
@pytest.mark.parametrize("width", check_site.WIDTHS)
@pytest.mark.parametrize("theme", check_site.THEMES)
def test_what_is_wrong_in_one_width_and_theme_alone_is_seen_there(width, theme, faults_of):
    screen = "min-width: 1000px) and (max-width: 1500px" if width == 1280 else "max-width: 500px"
    pale = {"light": "#ccc", "dark": "#333"}[theme]
    style = f"@media ({screen}) {{html[data-theme={theme}] .it {{color: {pale}; STYLE}}}}"
    found = faults_of("<p class='it'>pale</p>", f"<style>{style.replace('STYLE', '')}</style>")
    assert [(fault.width, fault.theme) for fault in found] == [(width, theme)]
    assert "color-contrast" in found[0].element
    # A rule that has nothing to do with colours.
    style = f"@media ({screen}) {{html[data-theme={theme}] button.it {{display: block}}}}"
    found = faults_of("<button class='it'></button>", f"<style>button.it {{display: none}}{style}</style>")
    assert [(fault.width, fault.theme) for fault in found] == [(width, theme)]
    assert "button-name" in found[0].element


PANEL = "position: absolute; inset: 0; z-index: -1; background: #222"
ON_PANEL = f"<div style='position: relative; z-index: 0'><div style='{PANEL}'></div><p id=it>on it</p></div>"
CODE = "<div class='highlight'><pre><span class='k'>def</span> <span class='n'>f</span></pre></div>"

# Axe is shown one of all texts that look alike, one of all words of code, and no part of a formula: what only
# the second of two has must be seen nevertheless.
HIDDEN_FROM_AXE = {
    "on another ground": ("<p>a</p><div style='background: #222'><p id='it'>pale</p></div>", "", 'id="it"'),
    "on a ground over a picture": (
        "<p>Words</p><div style='background: linear-gradient(red, blue)'>"
        "<div style='background: #333'><p id='it'>pale</p></div></div>",
        "",
        'id="it"',
    ),
    "half transparent": ("<p>aa</p><div style='opacity: 0.4'><p id='it'>pale</p></div>", "", 'id="it"'),
    "over what does not hold it": (f"<p>some longer text</p>{ON_PANEL}", "p {margin: 0}", 'id="it"'),
    "large and small": (
        "<h2>large and long</h2><p id='it'>pale</p>",
        "h2, #it {color: #888} h2 {font-size: 2.5rem}",
        'id="it"',
    ),
    "the longest of its group cannot be seen": (
        "<div style='color: #ccc'><p style='position: absolute; left: -9999px'>a long one, away</p>"
        "<p id='it'>here</p></div>",
        "",
        'id="it"',
    ),
    "a word of code": (
        f"{CODE * 9}{CODE.replace('>f<', '>f</span><span class=mi>17<')}",
        ".highlight .mi {color: #ccc}",
        'class="mi"',
    ),
    "a word of code in another box": (
        f"{CODE * 9}<div class='box'>{CODE.replace('def', 'class')}</div>",
        ".box .k {color: #ccc}",
        'class="k"',
    ),
    "a formula": (
        "<p>Let <mjx-container style='color: #ccc'><mjx-math><mjx-c>x</mjx-c></mjx-math></mjx-container></p>",
        "",
        "formula",
    ),
    "a part of a formula": (
        "<p>Let <mjx-container><mjx-math><mjx-c style='color: #ccc'>y</mjx-c></mjx-math></mjx-container></p>",
        "",
        "in a formula of rgb(0, 0, 0)",
    ),
    "folded": (
        "<details><summary>More</summary><p id='it'>pale</p></details>",
        "#it {color: #ccc}",
        'id="it"',
    ),
}


@in_a_browser
@pytest.mark.parametrize("what", HIDDEN_FROM_AXE)
def test_nothing_pale_hides_behind_what_looks_alike(what, faults_of):
    body, style, wanted = HIDDEN_FROM_AXE[what]
    faults = faults_of(body, f"<style>{style}</style>")
    assert faults and all("color-contrast" in fault.element for fault in faults), faults
    assert any(wanted in fault.element for fault in faults), faults


@in_a_browser
def test_colours_are_looked_at_once_they_have_come_to_rest(faults_of):
    style = "#it {transition: color 9s} html[data-theme=dark] #it {color: #eee}"
    assert faults_of("<p id='it'>slow</p>", f"<style>{style}</style>") == []


@in_a_browser
def test_texts_that_look_alike_are_one_fault_and_counted(faults_of):
    faults = faults_of("<p class='it'>one</p><p class='it'>two, long</p>", "<style>.it {color: #ccc}</style>")
    assert {fault.theme for fault in faults} == {"light"}
    assert all("two, long" in fault.element and "(and 1 like it)" in fault.element for fault in faults)


@in_a_browser
def test_an_exception_for_one_of_two_that_look_alike_is_none_for_the_other(faults_of, monkeypatch):
    monkeypatch.setattr(check_site, "ALLOWED", (("color-contrast", ".theirs", "not ours"),))
    style = "<style>p {color: #ccc}</style>"
    faults = faults_of("<div class='theirs'><p>theirs, the longer one</p></div><p id='it'>ours</p>", style)
    assert faults and all('id="it"' in fault.element or "Words." in fault.element for fault in faults)
    assert not any("theirs" in fault.element.split(": ")[-1] for fault in faults)


@in_a_browser
def test_what_scrolls_inside_itself_does_not_widen_the_page(faults_of):
    box = "<div style='overflow-x: auto' tabindex='0'><div style='width: 3000px'>wide</div></div>"
    assert faults_of(box) == []


@in_a_browser
def test_a_page_that_is_too_wide_at_1920_pixels_alone_is_seen(faults_of):
    style = "<style>@media (min-width: 1900px) { p { width: 2400px } }</style>"
    assert {(fault.width, fault.rule) for fault in faults_of("", style)} == {(1920, "overflow")}


@in_a_browser
def test_the_list_of_exceptions_excepts_what_it_names_and_nothing_else(faults_of, monkeypatch):
    body = "<div class='theirs'><button></button></div><button class='ours'></button>"
    assert len([fault for fault in faults_of(body) if "button-name" in fault.element]) == 8
    monkeypatch.setattr(check_site, "ALLOWED", (("button-name", ".theirs", "not ours"),))
    faults = faults_of(body)
    assert len(faults) == 4 and all("ours" in fault.element for fault in faults)


def test_a_page_with_its_pictures_may_not_be_too_heavy(tmp_path):
    site = site_with(tmp_path, "<img alt='noise' src='noise.png'>")
    (tmp_path / "noise.png").write_bytes(bytes(check_site.MOST_BYTES - 2000))
    assert check_site.check_weight(site, "page") == []
    (tmp_path / "noise.png").write_bytes(bytes(check_site.MOST_BYTES))
    (fault,) = check_site.check_weight(site, "page")
    assert "1.50 MB in all: noise.png" in fault.element


def test_a_picture_held_by_the_page_weighs_as_part_of_it(tmp_path):
    site = site_with(tmp_path, f"<img alt='noise' src='data:image/png;base64,{'A' * 9000}'>")
    assert check_site.check_weight(site, "page") == []
    site = site_with(tmp_path, f"<img alt='noise' src='data:image/png;base64,{'A' * check_site.MOST_BYTES}'>")
    assert len(check_site.check_weight(site, "page")) == 1


@pytest.mark.parametrize(
    ("edit", "colab", "copy", "wrong"),
    [
        ("main/a/page.ipynb", "read/page.ipynb", "a/page.ipynb", []),
        ("main/a/page.md", "read/page.ipynb", "a/page.ipynb", ["edit link"]),
        ("main/a/page.ipynb", "main/a/page.ipynb", "a/page.ipynb", ["Colab"]),
        ("main/a/page.ipynb", "read/page.ipynb", "a/other.ipynb", ["download"]),
    ],
)
def test_the_links_to_source_colab_and_copy_must_be_right(tmp_path, edit, colab, copy, wrong):
    source = tmp_path / "_sources" / "a" / "page.ipynb"
    source.parent.mkdir(parents=True)
    source.write_text("{}")
    site = site_with(
        tmp_path,
        f"<a href='https://github.com/o/r/edit/{edit}'>edit</a><a href='_sources/{copy}'>copy</a>"
        f"<a href='https://colab.research.google.com/github/o/r/blob/{colab}'>run</a>",
    )
    address = Address("o/r", "https://o.github.io/r/", "main", "read", "posgeom")
    site = Site(site.folder, site.pages, {"page": "a/page.ipynb"}, address)
    assert [fault.element.split(":")[0] for fault in check_site.check_buttons(site, "page")] == wrong


@in_a_browser
def test_a_search_that_does_not_find_a_page_is_seen(tmp_path, context):
    site = site_with(tmp_path)
    search = "<div id='search-results'></div><script>document.querySelector('div').innerHTML = {!r}</script>"
    with check_site.served(tmp_path) as address:
        (tmp_path / "search.html").write_text(search.format("<a href='page.html'>A page</a>"))
        assert check_site.check_search(site, ["page"], context, address) == []
    with check_site.served(tmp_path) as address:
        (tmp_path / "search.html").write_text(search.format("<a href='other.html'>A page</a>"))
        (fault,) = check_site.check_search(site, ["page"], context, address, seconds=1)
    assert fault.rule == "search" and "A page" not in fault.page


@in_a_browser
def test_the_command_prints_a_line_a_page_and_fails_with_the_faults(tmp_path, capfd):
    site = site_with(tmp_path, "<p><a href='#bottom'>there</a></p>")
    assert check_site.main([], site) == 1
    out, err = capfd.readouterr()
    assert "page" in out.splitlines()[0] and "1 fault" in out.splitlines()[0]
    assert "page (any): link: #bottom leads to no anchor of page.html" in err
    assert "search.html was not built" in err


def test_without_a_browser_it_says_so_and_does_not_fail(monkeypatch, capfd):
    monkeypatch.setattr(check_site, "find_browser", lambda: None)
    if check_site.why_not() is not None and "Chromium" in check_site.why_not():
        assert check_site.main([]) == 0
        assert capfd.readouterr().out.startswith("check-site skipped: no Chromium is installed")


@in_a_browser
def test_the_book_keeps_every_rule(site, book, tell):
    faults = check_site.check(check_site.site_of(book), say=tell)
    assert not faults, "\n".join(map(str, faults))


def test_the_addresses_that_links_should_have_are_those_of_the_configuration():
    site = check_site.site_of(build.Book())
    assert site.address == Address.load()
    assert set(site.sources) == set(site.pages)
    assert site.sources["book/notation"] == "book/notation.md"
