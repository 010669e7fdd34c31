"""The book that the tests of notebooks and site look at, executed and built by the tool that readers use."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from xdist.scheduler import LoadScopeScheduling

from tools import build

ROOT = build.ROOT
# No test needs a hub; a library that finds none tries again for half a minute. It reads this when imported.
os.environ["HF_HUB_OFFLINE"] = "1"
# What takes minutes and is made once, and the files whose tests need it.
MADE_ONCE = {"runs", "variants", "site"}
OF_THE_BOOK = {
    f"tests/book/test_{name}.py"
    for name in ("notebooks", "site", "check_site", "verdicts", "exported", "copies")
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="the tests of the package only; they need no make")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    unit = config.getoption("--unit")
    return True if unit and collection_path == ROOT / "tests" / "book" else None


class OneWorkerHasTheBook(LoadScopeScheduling):
    """With several workers: files are handed out whole, and those that need the book to one worker.

    The marks of ``--dist loadgroup`` would say it too, but pytest-xdist 3.8 loses them with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "the book" if file in OF_THE_BOOK else file


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> OneWorkerHasTheBook:
    return OneWorkerHasTheBook(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        file = item.nodeid.partition("::")[0]
        if MADE_ONCE & set(getattr(item, "fixturenames", ())) and file not in OF_THE_BOOK:
            raise pytest.UsageError(f"{file} needs the book: name it in OF_THE_BOOK of tests/conftest.py")


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Who waits a minute sees what is running, whatever pytest captures, and from whichever worker."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, file=sys.stderr, flush=True)

    return line


@pytest.fixture(scope="session")
def cluster():
    """A Dask cluster of two worker processes on this machine; a worker that dies is replaced."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0") as made:
        yield made


@pytest.fixture(scope="session")
def book() -> build.Book:
    return build.Book()


@pytest.fixture(scope="session")
def runs(book: build.Book, tell: Callable[[str], None]) -> dict[str, build.Run]:
    """Every notebook of the book, executed (or found unchanged). Tests ask a run for its error themselves."""
    return {run.name: run for run in build.execute(book, book.notebooks(), say=tell)}


@pytest.fixture(scope="session")
def site(book: build.Book, runs: dict[str, build.Run]) -> Path:
    """The folder of the built site."""
    failed = [name for name, run in runs.items() if run.error]
    if failed:
        pytest.fail(f"no site: {', '.join(failed)} did not run", pytrace=False)
    return build.build_site(book, say=lambda line: None)


@pytest.fixture
def one_thread():
    """torch on one thread: what it adds up does not depend on the machine's cores then."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def toy_book(tmp_path: Path) -> ToyBook:
    """An empty book with the settings of this one, to which a test adds chapters."""
    return ToyBook(tmp_path / "toy")


class ToyBook(build.Book):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (root / "notebooks").mkdir(parents=True)
        (root / "tools").mkdir()
        (root / "posgeom").mkdir()
        for name in build.SITE_SOURCES:
            shutil.copy(ROOT / name, root / name)
        shutil.copytree(ROOT / "book" / "_static", root / "book" / "_static")
        shutil.copy(ROOT / "book" / "references.bib", root / "book" / "references.bib")
        (root / "book" / "index.md").write_text("# A toy book\n", encoding="utf-8")
        (root / "requirements.txt").write_text("", encoding="utf-8")
        self.write_toc([])

    def write_toc(self, chapters: list[str]) -> None:
        lines = ["format: jb-book", "root: book/index"]
        if chapters:
            lines += ["chapters:", *(f"  - file: notebooks/{name}" for name in chapters)]
        (self.root / "_toc.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def add(self, name: str, *cells: str, parameters: str | None = None) -> Path:
        """Write a chapter of code cells with ids code-0, code-1, ..., and put it into the toc."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells.append(nbformat.v4.new_markdown_cell(f"# {name}", id="title"))
        if parameters is not None:
            cell = nbformat.v4.new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]})
            notebook.cells.append(cell)
        for index, source in enumerate(cells):
            notebook.cells.append(nbformat.v4.new_code_cell(source, id=f"code-{index}"))
        path = self.root / "notebooks" / f"{name}.ipynb"
        nbformat.write(notebook, path)
        self.write_toc(sorted(file.stem for file in (self.root / "notebooks").glob("*.ipynb")))
        return path
