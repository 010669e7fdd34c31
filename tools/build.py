"""Execute the notebooks of the book once each, then build the site and the readers' notebooks from them.

    python tools/build.py                      execute what has changed, build html and notebooks in _build
    python tools/build.py --no-site            execute only
    python tools/build.py --only 05 --no-site  execute one chapter only

A notebook runs again when its text, the package posgeom, the requirements, the Python version or the
presence of the SST-2 text under POSGEOM_DATA has changed since its last run without an error; otherwise
its executed copy in _build/executed/ stands. The numbers that it records are in _build/records/.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml
from filelock import FileLock
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import verdicts  # noqa: E402

SETUP_CELL_ID = "setup"
CELL_SECONDS = 900
HEARTBEAT_SECONDS = 20
ANSI = re.compile(r"\x1b\[[0-9;]*m")
NO_SST2 = "no sst2 text"
VERDICTS = "book/verdicts"
SOURCES = (
    "posgeom/**/*.py",
    "posgeom/data/*",
    "posbook/**/*.py",
    "posbook/data/*",
    "posbook/static/*",
    "requirements.txt",
    "requirements-data.txt",
)
SITE_SOURCES = (
    "_config.yml",
    "_toc.yml",
    "address.yml",
    "requirements.txt",
    "tools/address.py",
    "tools/bookext.py",
    "tools/macros.py",
    "tools/notebook_export.py",
    "tools/plain_markdown.py",
)

NO_KERNEL = "Kernel died before replying to kernel_info"
KERNEL_STARTS = 3

# One thread a notebook: two share the cores, and a sum split over threads may differ in its last digits.
RUN_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "PYTHONHASHSEED": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "JUPYTER_PREFER_ENV_PATH": "1",
}


class BuildError(Exception):
    """Something in the book that its author has to mend; the message says where and how."""


@dataclass(frozen=True)
class Run:
    """What became of one notebook."""

    name: str
    executed: Path
    records: Path
    seconds: float
    cached: bool
    error: str | None = None


@dataclass(frozen=True)
class Book:
    """A folder that holds a book: ``_toc.yml``, its pages, and everything derived from them in ``_build``."""

    root: Path = ROOT

    @property
    def build(self) -> Path:
        return self.root / "_build"

    @property
    def html(self) -> Path:
        return self.build / "html"

    @property
    def environment(self) -> Mapping[str, str]:
        """What its chapters' environment holds beyond RUN_ENVIRONMENT, and instead of it."""
        return {}

    @property
    def reading_copies(self) -> Path:
        """Where the exported notebooks are: plain Markdown, with their outputs."""
        return self.build / "notebooks"

    def executed(self, notebook: Path) -> Path:
        """Where the executed copy of a notebook is."""
        return self.build / "executed" / notebook.relative_to(self.root)

    def records(self, notebook: Path) -> Path:
        """Where the numbers that a notebook recorded are."""
        return self.build / "records" / f"{notebook.stem}.json"

    def pages(self) -> list[str]:
        """Every page of the table of contents, in reading order, as the toc writes it (no suffix)."""
        return list(_toc_files(yaml.safe_load((self.root / "_toc.yml").read_text(encoding="utf-8"))))

    def source(self, page: str) -> Path:
        """The file of a page of the table of contents."""
        for suffix in (".ipynb", ".md"):
            path = self.root / (page + suffix)
            if path.is_file():
                return path
        raise BuildError(f"_toc.yml names {page}, but there is neither {page}.ipynb nor {page}.md")

    def notebooks(self) -> dict[str, Path]:
        """Name (no folder, no suffix) -> file of each notebook of the table of contents, in reading order."""
        found = {}
        for page in self.pages():
            path = self.root / (page + ".ipynb")
            if path.is_file() or page.startswith("notebooks/"):
                found[path.stem] = path
        return found

    def select(self, names: Iterable[str]) -> dict[str, Path]:
        """The notebooks that ``names`` mean: a whole name, its number, or its path."""
        notebooks = self.notebooks()
        chosen = {}
        for wanted in names:
            stem = Path(wanted).stem
            matches = [name for name in notebooks if name == stem or name.startswith(stem + "_")]
            if len(matches) != 1:
                known = ", ".join(notebooks)
                raise BuildError(f"no single notebook is meant by {wanted!r}; _toc.yml has {known}")
            chosen[matches[0]] = notebooks[matches[0]]
        return chosen


def _toc_files(entry: object) -> Iterator[str]:
    if isinstance(entry, list):
        for item in entry:
            yield from _toc_files(item)
    elif isinstance(entry, dict):
        for key in ("root", "file"):
            if key in entry:
                yield str(entry[key])
        for key in ("parts", "chapters", "sections"):
            yield from _toc_files(entry.get(key, []))


# --- one execution --------------------------------------------------------------------------------------


def sst2_state() -> str:
    """Whether the text of SST-2 is at hand: with it, chapters compute more than from the committed counts."""
    folder = os.environ.get("POSGEOM_DATA")
    text = Path(folder, "sst2", "train.tsv") if folder else None
    if text is None or not text.is_file():
        return NO_SST2
    return f"sst2 text of {text.stat().st_size} bytes"


def _digest(root: Path, files: Iterable[Path], *facts: str) -> str:
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    for path in sorted(files):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _matching(root: Path, patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in root.glob(pattern) if path.is_file()]


def execution_key(book: Book, notebook: Path, parameters: Mapping[str, object]) -> str:
    """A digest of all that the outcome of a run depends on."""
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    facts = (python, sst2_state(), json.dumps(dict(parameters), sort_keys=True))
    if book.environment:
        facts += (json.dumps(dict(book.environment), sort_keys=True),)
    return _digest(book.root, [notebook, *_matching(book.root, SOURCES)], *facts)


def run_notebook(
    book: Book,
    notebook: Path,
    *,
    parameters: Mapping[str, object] | None = None,
    force: bool = False,
) -> Run:
    """Execute one notebook with papermill, unless an executed copy of the same content stands.

    With ``parameters`` the run replaces the values of the cell tagged ``parameters`` and is kept apart from
    the book's own, in ``_build/variants``. A run that fails leaves nothing that could be taken for done.
    """
    parameters = dict(parameters or {})
    if not notebook.is_file():
        raise BuildError(f"_toc.yml names {notebook.relative_to(book.root)}, which does not exist")
    name = notebook.stem
    if parameters:
        label = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:12]
        folder = book.build / "variants" / f"{name}-{label}"
        executed, records = folder / notebook.name, folder / "records.json"
    else:
        executed, records = book.executed(notebook), book.records(notebook)
    key = execution_key(book, notebook, parameters)
    if not force and (seconds := _seconds_of(executed, records, key)) is not None:
        return Run(name, executed, records, seconds, cached=True)

    stamp = _stamp(executed)
    for old in (stamp, executed, records):
        old.parent.mkdir(parents=True, exist_ok=True)
        old.unlink(missing_ok=True)
    mark = f".partial-{os.getpid()}"
    partial = executed.with_name(executed.name + mark)
    partial_records = records.with_name(records.name + mark)
    # Notebooks run in an empty folder: a chapter that reads a path beside it would not run in Colab either.
    scratch = book.build / "scratch" / f"{name}{mark}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        partial_records.write_text("{}\n", encoding="utf-8")
        started = time.monotonic()
        outcome = _started(
            _papermill(notebook, partial, scratch, parameters), _run_environment(book, partial_records)
        )
        seconds = time.monotonic() - started
        if outcome.returncode != 0:
            error = _failure(book, notebook, partial, outcome.stdout)
            return Run(name, executed, records, seconds, cached=False, error=error)
        partial_records.replace(records)
        partial.replace(executed)
        _write(stamp, json.dumps({"key": key, "seconds": round(seconds, 1)}) + "\n")
        return Run(name, executed, records, seconds, cached=False)
    finally:
        partial.unlink(missing_ok=True)
        partial_records.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _started(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run papermill, and again when its kernel did not start.

    A kernel's ports are chosen before it binds them, so of two kernels that start at once one can lose its
    port to the other. It dies then before it has run anything.
    """
    for _ in range(KERNEL_STARTS):
        outcome = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        if outcome.returncode == 0 or NO_KERNEL not in outcome.stdout:
            break
    return outcome


def _stamp(executed: Path) -> Path:
    return executed.with_suffix(".key.json")


def _seconds_of(executed: Path, records: Path, key: str) -> float | None:
    """How long the run took that ended without an error with this key; None if there was none."""
    if not all(path.is_file() for path in (executed, records, _stamp(executed))):
        return None
    stamp = json.loads(_stamp(executed).read_text(encoding="utf-8"))
    return stamp["seconds"] if stamp["key"] == key else None


def _papermill(notebook: Path, output: Path, folder: Path, parameters: Mapping[str, object]) -> list[str]:
    command = [sys.executable, "-m", "papermill", str(notebook), str(output), "--kernel", "python3"]
    command += ["--cwd", str(folder), "--no-progress-bar", "--execution-timeout", str(CELL_SECONDS)]
    if parameters:
        command += ["--language", "python", "--parameters_yaml", json.dumps(dict(parameters))]
    return command


def _run_environment(book: Book, records: Path) -> dict[str, str]:
    environment = os.environ | RUN_ENVIRONMENT | book.environment | {"POSGEOM_RECORDS": str(records)}
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [book.root, *(Path(entry).resolve() for entry in inherited)]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    if environment.get("POSGEOM_DATA"):
        environment["POSGEOM_DATA"] = str(Path(environment["POSGEOM_DATA"]).resolve())
    return environment


def _failure(book: Book, notebook: Path, partial: Path, log: str) -> str:
    where = notebook.relative_to(book.root)
    if partial.is_file():
        for index, cell in enumerate(nbformat.read(partial, as_version=4).cells):
            for output in cell.get("outputs", []):
                if output.output_type == "error":
                    source = "\n".join("    " + line for line in cell.source.splitlines())
                    traceback = "\n".join(output.traceback)
                    text = f"{where}, {_cell_label(index, cell)} failed:\n\n{source}\n\n{traceback}"
                    return text if sys.stderr.isatty() else ANSI.sub("", text)
    tail = "\n".join(ANSI.sub("", log).splitlines()[-40:])
    return f"{where} did not run to its end, and no cell raised an error (a kernel that died?):\n\n{tail}"


def _cell_label(index: int, cell: NotebookNode) -> str:
    # Papermill puts a banner above the first cell and above the failing one, so a number would mislead there.
    return f"cell {cell.get('id', index)!r}"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# --- all executions -------------------------------------------------------------------------------------


def execute(
    book: Book, notebooks: Mapping[str, Path], *, jobs: int = 2, force: bool = False, say=print
) -> list[Run]:
    """Run ``notebooks``, ``jobs`` at a time; every one runs, also when another fails."""
    width = max((len(name) for name in notebooks), default=0)
    runs: dict[str, Run] = {}
    running: dict[str, float] = {}

    def start(name: str, path: Path) -> Run:
        running[name] = time.monotonic()
        try:
            return run_notebook(book, path, force=force)
        except BuildError as error:
            return Run(name, path, path, 0.0, cached=False, error=str(error))
        finally:
            del running[name]

    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        waiting = {pool.submit(start, name, path) for name, path in notebooks.items()}
        if waiting:
            say(f"executing {len(waiting)} notebooks, {jobs} at a time")
        while waiting:
            done, waiting = concurrent.futures.wait(
                waiting, timeout=HEARTBEAT_SECONDS, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                run = future.result()
                runs[run.name] = run
                state = "FAILED" if run.error else "unchanged, took" if run.cached else "done"
                say(f"  [{len(runs)}/{len(notebooks)}] {run.name:{width}}  {state:15} {run.seconds:6.1f} s")
                if run.error:
                    print(f"\n{run.error}\n", file=sys.stderr, flush=True)
            if not done:
                now = time.monotonic()
                still = ", ".join(f"{name} ({now - since:.0f} s)" for name, since in list(running.items()))
                say(f"        running: {still}")
    return [runs[name] for name in notebooks]


# --- staging --------------------------------------------------------------------------------------------


def tidy(notebook: NotebookNode, name: str, *, machine_paths: Sequence[str] = ()) -> NotebookNode:
    """An executed notebook as the site shows it and offers it for download.

    What papermill and the kernel wrote about the run and the machine goes; the alternative text that a figure
    carries in its output goes where MyST-NB reads it, the metadata of its cell.

    Raises
    ------
    BuildError
        for a figure without alternative text, a cell with figures of two different texts, an output with a
        path of this machine, or a cell that writes to stderr without the tag ``remove-stderr``.
    """
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    for index, cell in enumerate(notebook.cells):
        for key in ("papermill", "execution", "ExecuteTime"):
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if cell.cell_type != "code":
            continue
        # It is of use on Colab only: open there, closed on the page.
        if cell.get("id") == SETUP_CELL_ID:
            cell.metadata["tags"] = ["hide-input"]
        where = f"{name}, {_cell_label(index, cell)}"
        _check_outputs(cell, where, machine_paths)
        texts = {alt for output in cell.outputs for alt in _alternative_texts(output, where)}
        if len(texts) > 1:
            raise BuildError(f"{where}: figures with different alt texts; give each figure a cell of its own")
        if texts:
            image = cell.metadata.setdefault("mystnb", {}).setdefault("image", {})
            image["alt"] = texts.pop()
    return notebook


def _alternative_texts(output: NotebookNode, where: str) -> Iterator[str]:
    for mime in output.get("data", {}):
        if mime.startswith("image/"):
            alt = output.metadata.get(mime, {}).get("alt", "")
            if not alt.strip():
                raise BuildError(
                    f"{where}: a figure without alternative text; posgeom.figures takes it as alt="
                )
            yield " ".join(alt.split())


def _check_outputs(cell: NotebookNode, where: str, machine_paths: Sequence[str]) -> None:
    for output in cell.outputs:
        texts = [output.get("text", ""), *map(str, output.get("data", {}).values())]
        for path in machine_paths:
            if any(path in text for text in texts):
                raise BuildError(f"{where}: its output shows a path of this machine: {path}")
        if output.get("name") == "stderr" and "remove-stderr" not in cell.metadata.get("tags", []):
            raise BuildError(f"{where}: writes to stderr, which a reader sees as an error:\n{output.text}")


def machine_paths(book: Book) -> list[str]:
    """What no page may show: the folders of this checkout, of this Python and of whoever builds."""
    return [str(book.root), sys.prefix, str(Path.home()) + os.sep]


def stage(book: Book) -> Path:
    """Prose and executed notebooks in ``_build/stage``, at the paths that they have in the repository."""
    target = book.build / "stage"
    shutil.rmtree(target, ignore_errors=True)
    (target / "tools").mkdir(parents=True)
    for name in SITE_SOURCES:
        shutil.copy(book.root / name, target / name)
    shutil.copytree(book.root / "book", target / "book", ignore=shutil.ignore_patterns("_static"))
    # Jupyter Book takes the site's own style sheets and scripts from _static beside _config.yml.
    shutil.copytree(book.root / "book" / "_static", target / "_static")
    for page in book.pages():
        source = book.source(page)
        staged = target / source.relative_to(book.root)
        staged.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".ipynb":
            if not book.executed(source).is_file():
                raise BuildError(f"{source.name} has not been executed: run tools/build.py without --only")
            notebook = nbformat.read(book.executed(source), as_version=4)
            notebook = tidy(notebook, source.name, machine_paths=machine_paths(book))
            nbformat.write(notebook, staged)
        elif page == VERDICTS:
            _write(staged, verdicts_page(book, source))
        elif not staged.exists():
            shutil.copy(source, staged)
    return target


def verdicts_page(book: Book, frame: Path) -> str:
    """The page of verdicts, computed from the numbers of the book's runs."""
    titles = {name[:2]: name for name in book.notebooks()}
    try:
        claims = verdicts.load_claims(frame.with_name("claims.yml"))
        records = verdicts.load_records(book.build / "records")
        return verdicts.fill(frame.read_text(encoding="utf-8"), claims, records, titles)
    except verdicts.ClaimError as error:
        raise BuildError(f"{frame.relative_to(book.root)}: {error}") from error


# --- the site -------------------------------------------------------------------------------------------

# `python -m jupyter_book` does not exist, and the script of that name may belong to another environment.
JUPYTER_BOOK = (sys.executable, "-c", "from jupyter_book.cli.main import main; main()")

FRONT_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="favicon.ico">
<link rel="canonical" href="{page}">
<meta http-equiv="refresh" content="0; url={page}">
</head>
<body><p><a href="{page}">{title}</a></p></body>
</html>
"""


def build_site(book: Book, *, say=print) -> Path:
    """Build ``_build/html`` from the executed notebooks; warnings are errors. Skipped if nothing changed."""
    book.build.mkdir(exist_ok=True)
    with FileLock(book.build / "site.lock"):
        staged = stage(book)
        key = _digest(staged, _matching(staged, ["**/*"]))
        stamp = book.build / "site.key"
        built = stamp.is_file() and stamp.read_text(encoding="utf-8") == key
        if built and (book.html / "index.html").is_file():
            say("site unchanged")
            return book.html
        stamp.unlink(missing_ok=True)
        for old in (book.html, book.reading_copies, book.build / ".doctrees", book.build / "jupyter_execute"):
            shutil.rmtree(old, ignore_errors=True)
        started = time.monotonic()
        outcome = subprocess.run(
            [
                *JUPYTER_BOOK,
                "build",
                str(staged),
                "--path-output",
                str(book.root),
                "-W",
                "-n",
                "--keep-going",
            ],
            cwd=staged,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        log = ANSI.sub("", outcome.stdout)
        _write(book.build / "site.log", log)
        if outcome.returncode != 0:
            faults = [line for line in log.splitlines() if re.search(r"WARNING|ERROR|CRITICAL|Error:", line)]
            text = "\n".join(faults or log.splitlines()[-40:]).replace(str(staged) + os.sep, "")
            raise BuildError(f"the site was not built (its whole log is _build/site.log):\n{text}")
        pages = book.pages()
        missing = [page for page in pages if not (book.html / f"{page}.html").is_file()]
        copies = (book.reading_copies / f"{name}.ipynb" for name in book.notebooks())
        missing += [copy.name for copy in copies if not copy.is_file()]
        if missing:
            raise BuildError(f"pages of _toc.yml that were not built: {', '.join(missing)}")
        title = yaml.safe_load((book.root / "_config.yml").read_text(encoding="utf-8"))["title"]
        _write(book.html / "index.html", FRONT_PAGE.format(title=title, page=f"{pages[0]}.html"))
        _write(stamp, key)
        say(f"site built in {time.monotonic() - started:.1f} s: {len(pages)} pages")
    return book.html


def main(arguments: Sequence[str] | None = None, book: Book | None = None) -> int:
    """The command line; returns the exit code."""
    book = book or Book()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="execute this notebook only: 05, 05_mds_construction or its path; may be given several times",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="notebooks at a time (default 2)")
    parser.add_argument("--no-site", action="store_true", help="execute, but do not build the site")
    parser.add_argument("--force", action="store_true", help="execute unchanged notebooks too")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {options.jobs}")

    def say(line: str) -> None:
        print(line, flush=True)

    started = time.monotonic()
    try:
        notebooks = book.notebooks()
        chosen = book.select(options.only) if options.only else notebooks
        runs = execute(book, chosen, jobs=options.jobs, force=options.force, say=say)
        failed = [run.name for run in runs if run.error]
        if failed:
            print(f"failed: {', '.join(failed)}", file=sys.stderr)
            return 1
        if not options.no_site:
            _require_executed(book, {name: path for name, path in notebooks.items() if name not in chosen})
            html = build_site(book, say=say)
            say(f"open {os.path.relpath(html / 'index.html')}")
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say(f"{time.monotonic() - started:.1f} s in all")
    return 0


def _require_executed(book: Book, notebooks: Mapping[str, Path]) -> None:
    lacking = [
        name
        for name, path in notebooks.items()
        if _seconds_of(book.executed(path), book.records(path), execution_key(book, path, {})) is None
    ]
    if lacking:
        raise BuildError(
            f"the site needs every chapter, and there is no current run of {', '.join(lacking)}: "
            "leave --only out, or add --no-site"
        )


if __name__ == "__main__":
    sys.exit(main())
