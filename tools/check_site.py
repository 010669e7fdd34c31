"""Open each page of the built site in a browser, as a reader would, and say what is wrong with it.

    python tools/check_site.py                     every page of _toc.yml in _build/html
    python tools/check_site.py --only 05 --only notation

Each page is loaded once in headless Chromium, all that a reader can unfold is unfolded, and it is looked at
in two widths and two themes. The rules:

request        it asks no other host for anything
console        no error on the console, no exception in a script
missing        nothing that it asks the site for is missing
math           every formula is typeset, none with an error, and no dollar sign is left in the text
overflow       the page does not scroll sideways, at 390, 1280 and 1920 pixels
link           links within the site lead to a page and to an anchor on it; other addresses are well formed
accessibility  axe-core finds nothing serious or critical, but for what ALLOWED names
alt            every picture has words for those who cannot see it
weight         the page and its pictures are smaller than 1.5 MB
search         the site's own search finds the page by its title
buttons        the links to Colab, to the source on GitHub and for download are there, and right
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import http.server
import importlib.resources
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlparse

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import build  # noqa: E402
from tools.address import Address  # noqa: E402

WIDTHS = (390, 1280)
OVERFLOW_WIDTHS = (390, 1280, 1920)
THEMES = ("light", "dark")
HEIGHT = 900
MOST_BYTES = 1_500_000
IMPACTS = ("serious", "critical")
PATIENCE_MILLISECONDS = 120_000
SEARCH_SECONDS = 10
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# What the theme does and no setting of it can undo: rule of axe, selector of its element, reason.
ALLOWED: tuple[tuple[str, str, str], ...] = (
    (
        "label-content-name-mismatch",
        ".theme-switch-button",
        "the theme's switch is named 'Color mode', and holds the names of all modes, two of them hidden",
    ),
)


@dataclass(frozen=True)
class Fault:
    """One rule that one page breaks, in one width and theme, and what breaks it."""

    page: str
    rule: str
    element: str
    width: int | None = None
    theme: str | None = None

    def __str__(self) -> str:
        where = [f"{self.width} px" if self.width else "", self.theme or ""]
        return f"{self.page} ({', '.join(filter(None, where)) or 'any'}): {self.rule}: {self.element}"


@dataclass(frozen=True)
class Site:
    """A folder of built pages, and what their links to the outside should be."""

    folder: Path
    pages: tuple[str, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    address: Address | None = None

    def file(self, page: str) -> Path:
        return self.folder / f"{page}.html"


def site_of(book: build.Book) -> Site:
    """The built site of a book, with the addresses that its ``address.yml`` names."""
    pages = tuple(book.pages())
    sources = {page: book.source(page).relative_to(book.root).as_posix() for page in pages}
    return Site(book.html, pages, sources, Address.load(book.root))


def find_browser() -> str | None:
    """The program of a Chromium: one that is installed, else the one that playwright brought; else None."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def why_not() -> str | None:
    """Why pages cannot be opened here, in words for whoever reads the log; None if they can."""
    try:
        import axe_playwright_python  # noqa: F401
        import playwright  # noqa: F401
    except ImportError as error:
        return f"the package {error.name} is not installed: pip install -r requirements.txt brings it"
    if find_browser() is None:
        return "no Chromium is installed (apt install chromium, or playwright install chromium)"
    return None


@contextlib.contextmanager
def browser() -> Iterator[object]:
    """A headless Chromium; to be used in the thread that opened it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        # A page that is closed before it has all its files hangs up, which is no fault of the site.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder at an address of this machine, which is yielded; it ends with a slash."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


# --- what the files say ---------------------------------------------------------------------------------


def check_links(site: Site, page: str) -> list[Fault]:
    """Links of a page: within the site to a file and an anchor that exist, elsewhere of a valid form."""
    path = site.file(page)
    faults = []
    for tag in _soup(path).find_all("a", href=True):
        address = tag["href"]
        if reason := _fault_of_link(path, address):
            faults.append(Fault(page, "link", f"{address} {reason}"))
    return faults


def _fault_of_link(path: Path, address: str) -> str | None:
    parts = urlparse(address)
    if parts.scheme == "mailto":
        return None if re.fullmatch(r"[^@\s]+@[^@\s]+\.\w+", parts.path) else "is no address of mail"
    if parts.scheme or parts.netloc:
        if parts.scheme not in ("https", "http") or re.search(r"\s", address):
            return "is no address of the web"
        return None if re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc) else "names no host"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "leads to no file"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in _anchors(target):
        return f"leads to no anchor of {target.name}"
    return None


@functools.lru_cache(maxsize=64)
def _parsed(path: Path, changed: int) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def _soup(path: Path) -> BeautifulSoup:
    return _parsed(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _anchors_of(path: Path, changed: int) -> frozenset[str]:
    soup = _parsed(path, changed)
    return frozenset(tag["id"] for tag in soup.find_all(id=True)) | {
        tag["name"] for tag in soup.find_all("a", attrs={"name": True})
    }


def _anchors(path: Path) -> frozenset[str]:
    return _anchors_of(path, path.stat().st_mtime_ns)


def check_alt(site: Site, page: str) -> list[Fault]:
    """Every ``img`` has an ``alt`` with words, and every ``canvas`` and ``svg`` a name or is hidden."""
    faults = []
    for tag in _soup(site.file(page)).find_all(["img", "svg", "canvas"]):
        named = tag.get("alt", "") if tag.name == "img" else tag.get("aria-label", "")
        named = named or (tag.get("aria-labelledby", "") if tag.name != "img" else "")
        hidden = any(parent.get("aria-hidden") == "true" for parent in [tag, *tag.parents])
        if not hidden and not named.strip():
            faults.append(Fault(page, "alt", str(tag)[:160]))
    return faults


def check_weight(site: Site, page: str) -> list[Fault]:
    """The file of a page and the pictures in it, without what all pages share, are small."""
    path = site.file(page)
    files = {path}
    for tag in _soup(path).find_all(["img", "source", "video", "audio"], src=True):
        # A picture that the page itself holds is in the size of the page.
        if urlparse(tag["src"]).scheme:
            continue
        file = (path.parent / unquote(urlparse(tag["src"]).path)).resolve()
        if file.is_file() and "_static" not in file.parts:
            files.add(file)
    total = sum(file.stat().st_size for file in files)
    if total <= MOST_BYTES:
        return []
    heaviest = sorted(files, key=lambda file: -file.stat().st_size)[:3]
    names = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in heaviest)
    return [Fault(page, "weight", f"{total / 1e6:.2f} MB in all: {names}")]


def check_buttons(site: Site, page: str) -> list[Fault]:
    """The links that lead from a page to its source, to Colab (chapters) and to a copy for download."""
    if page not in site.sources:
        return []
    source, path = site.sources[page], site.file(page)
    found = [tag["href"] for tag in _soup(path).find_all("a", href=True)]
    faults = []

    def demand(what: str, wanted: set[str], having: set[str]) -> None:
        if having != wanted:
            faults.append(
                Fault(page, "buttons", f"{what}: {sorted(having) or 'none'} instead of {sorted(wanted)}")
            )

    edit = f"{site.address.repository_url}/edit/{site.address.branch}/{source}"
    demand("edit link", {edit}, {address for address in found if "/edit/" in address})
    downloads = {(path.parent / address).resolve() for address in found if "_sources/" in address}
    wanted = {(site.folder / "_sources" / source).resolve()}
    names = {file.relative_to(site.folder.resolve()).as_posix() for file in downloads}
    demand("download", {f"_sources/{source}"}, names)
    for file in downloads & wanted:
        if not file.is_file():
            faults.append(Fault(page, "buttons", f"download: {file.name} is not there"))
    colab = {address for address in found if "colab.research.google.com/" in address}
    chapter = source.endswith(".ipynb")
    demand("Colab", {site.address.colab(Path(source).stem)} if chapter else set(), colab)
    return faults


# --- what the browser says ------------------------------------------------------------------------------

SCRIPT = (Path(__file__).parent / "check_site.js").read_text(encoding="utf-8")

# The theme and book.js look at what has become too wide a moment after the window has changed.
SETTLE_MILLISECONDS = 450


def axe_source() -> str:
    """The text of axe-core, from the package that carries it."""
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def check_in_browser(page: str, context: object, address: str) -> list[Fault]:
    """All rules that take a browser, on one page: loaded once, then seen in each width and theme."""
    faults: list[Fault] = []
    tab = context.new_page()
    tab.set_default_timeout(PATIENCE_MILLISECONDS)
    tab.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
    tab.emulate_media(color_scheme=THEMES[0], reduced_motion="reduce")
    try:
        state = {"width": WIDTHS[0], "theme": THEMES[0]}

        def note(rule: str, element: str) -> None:
            fault = Fault(page, rule, " ".join(element.split())[:400], **state)
            if fault not in faults:
                faults.append(fault)

        def asked(request) -> None:
            if urlparse(request.url).scheme in ("http", "https", "ws", "wss") and not request.url.startswith(
                address
            ):
                note("request", request.url)

        def answered(response) -> None:
            if response.url.startswith(address) and response.status >= 400:
                note("missing", f"{response.status} {response.url.removeprefix(address)}")

        def said(message) -> None:
            # The browser writes a line of its own for what is missing or refused; those have rules.
            if message.type == "error" and not message.text.startswith("Failed to load resource"):
                note("console", message.text)

        tab.on("request", asked)
        tab.on("response", answered)
        tab.on("console", said)
        tab.on("pageerror", lambda error: note("console", f"{error.name}: {error.message}"))
        # Nothing leaves this machine, whatever a page asks for.
        tab.route(lambda url: not url.startswith(address) and url.startswith("http"), lambda r: r.abort())
        tab.goto(address + quote(f"{page}.html"), wait_until="load")
        tab.evaluate(
            "() => window.MathJax && MathJax.startup && MathJax.startup.promise.then(() => undefined)"
        )
        tab.evaluate(axe_source())
        tab.evaluate(SCRIPT)
        for fault in tab.evaluate("checkSite.math()"):
            note("math", fault)
        tab.evaluate("checkSite.open()")
        tab.evaluate("checkSite.foldCode()")
        allowed = [[rule, selector] for rule, selector, _ in ALLOWED]
        for width in OVERFLOW_WIDTHS:
            tab.set_viewport_size({"width": width, "height": HEIGHT})
            tab.evaluate("checkSite.settle", SETTLE_MILLISECONDS)
            for theme in THEMES:
                state.update(width=width, theme=theme)
                tab.emulate_media(color_scheme=theme, reduced_motion="reduce")
                tab.evaluate("checkSite.theme", theme)
                if wide := tab.evaluate("checkSite.overflow()"):
                    note("overflow", wide)
                if width in WIDTHS:
                    for fault in tab.evaluate("checkSite.formulas()"):
                        note("accessibility", fault)
                    for fault in tab.evaluate("checkSite.accessibility", [allowed, IMPACTS]):
                        note("accessibility", fault)
    finally:
        tab.close()
    return faults


def check_search(
    site: Site, pages: Sequence[str], context: object, address: str, *, seconds: int = SEARCH_SECONDS
) -> list[Fault]:
    """The search page finds each page by the words of its title, within so many ``seconds``."""
    faults = []
    tab = context.new_page()
    try:
        for number, page in enumerate(pages):
            words = " ".join(re.findall(r"[A-Za-z]{3,}", _soup(site.file(page)).find("h1").get_text()))
            if number == 0:
                tab.goto(f"{address}search.html?q={quote(words)}")
            else:
                tab.evaluate("words => Search.performSearch(words)", words)
            link = tab.locator(f'#search-results a[href*="{page}.html"]').first
            for _ in range(seconds * 10):
                if found := link.count():
                    break
                tab.wait_for_timeout(100)
            if not found:
                faults.append(Fault(page, "search", f"not found by the words of its title: {words}"))
    finally:
        tab.close()
    return faults


STATIC = (check_links, check_alt, check_weight, check_buttons)


def check_page(site: Site, page: str, context: object, address: str) -> list[Fault]:
    """All faults of one page, but for those of the search."""
    if not site.file(page).is_file():
        return [Fault(page, "missing", f"{page}.html was not built")]
    return [fault for rule in STATIC for fault in rule(site, page)] + check_in_browser(page, context, address)


def check(site: Site, pages: Sequence[str] | None = None, *, jobs: int = 2, say=print) -> list[Fault]:
    """Check ``pages`` (all of the site by default), ``jobs`` browsers at a time, one line a page."""
    pages = list(pages or site.pages)
    waiting = list(pages)
    lock, faults = threading.Lock(), []

    def work(address: str) -> None:
        with browser() as opened:
            context = opened.new_context()
            while True:
                with lock:
                    if not waiting:
                        return
                    page = waiting.pop(0)
                started = time.monotonic()
                found = check_page(site, page, context, address)
                with lock:
                    faults.extend(found)
                    state = f"{len(found)} fault{'s' * (len(found) > 1)}" if found else "ok"
                    say(f"  {page:40} {state:10} {time.monotonic() - started:5.1f} s")

    def search(address: str, built: list[str]) -> list[Fault]:
        with browser() as opened:
            return check_search(site, built, opened.new_context(), address)

    with served(site.folder) as address:
        built = [page for page in pages if site.file(page).is_file()]
        # A browser needs a thread in which no other one is open, whoever calls this.
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for outcome in [pool.submit(work, address) for _ in range(min(jobs, len(waiting)))]:
                outcome.result()
            if (site.folder / "search.html").is_file() and built:
                faults += pool.submit(search, address, built).result()
            else:
                faults.append(Fault("search", "missing", "search.html was not built"))
    order = {page: place for place, page in enumerate(pages)}
    return sorted(faults, key=lambda fault: (order.get(fault.page, -1), str(fault)))


def main(arguments: Sequence[str] | None = None, site: Site | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--only", action="append", metavar="WORD", help="pages whose name holds this word")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="pages at a time (default 2)")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {options.jobs}")
    if reason := why_not():
        print(f"check-site skipped: {reason}")
        return 0
    site = site or site_of(build.Book())
    pages = [page for page in site.pages if not options.only or any(w in page for w in options.only)]
    if not pages:
        parser.error(f"no page of _toc.yml holds {' or '.join(options.only)}")
    started = time.monotonic()
    faults = check(site, pages, jobs=options.jobs, say=lambda line: print(line, flush=True))
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {len(faults)} faults, {time.monotonic() - started:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
