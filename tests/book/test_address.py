"""One file says where the book lives; changing it changes every file that shows an address."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import address, build, setup_cell
from tools.address import Address

ROOT = build.ROOT
# Words that stand nowhere in the book, so that one left behind is seen wherever it is.
FIRST = {
    "repository": "quokka-org/quokka-book",
    "site": "https://wombat.example.org/pages/",
    "branch": "numbat",
    "notebooks_branch": "bilby",
    "package": "bandicoot",
}
SECOND = {
    "repository": "kea/kakapo.book",
    "site": "http://tuatara.example/",
    "branch": "weta/2",
    "notebooks_branch": "moa",
    "package": "kiwi_fork",
}


def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("this copy of the repository has no history, so git cannot say which files belong to it")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture
def tree(tmp_path) -> Path:
    """The files of the repository, in a folder of their own."""
    for name in tracked():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def contents(tree: Path) -> dict[str, bytes]:
    files = [path for path in tree.rglob("*") if path.is_file()]
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in files}


def assert_nowhere(pattern: str, tree: Path) -> None:
    for name, content in contents(tree).items():
        # This file has the words that it looks for.
        if name != "tests/book/test_address.py":
            assert not (left := re.findall(pattern, content.decode("utf-8", "ignore"))), (name, left)


def move(tree: Path, values: dict[str, str]) -> None:
    """Change address.yml as whoever hosts the book does, and run the command."""
    path = tree / "address.yml"
    text = path.read_text(encoding="utf-8")
    for key, value in values.items():
        text, changed = re.subn(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.M)
        assert changed == 1
    path.write_text(text, encoding="utf-8")
    assert address.main([], tree) == 1
    assert address.main(["--write"], tree) == 0
    assert address.main([], tree) == 0


def test_no_file_of_the_repository_is_behind():
    assert list(address.stale(Address.load())) == []


def test_changing_the_file_changes_every_address_and_changing_it_back_changes_nothing(tree):
    before, own = contents(tree), Address.load(tree)
    move(tree, FIRST)
    # The first move starts from today's addresses, whose words (posgeom, main, notebooks) also stand where no
    # address is: whole addresses are looked for. The name of the PDF is the title of the book.
    assert_nowhere(
        rf"{re.escape(own.repository)}|{re.escape(own.site)}|{re.escape(own.name)}(?!\.pdf)"
        rf"|refs/heads/(?:{own.branch}|{own.notebooks_branch})\b|{own.package} @ ",
        tree,
    )
    changed = {name for name, content in contents(tree).items() if content != before[name]}
    assert changed >= {
        ".github/workflows/book.yml",
        "CITATION.cff",
        "LICENSE-text.md",
        "README.md",
        "_config.yml",
        "book/how-to-use.md",
        "book/your-corpus.md",
        "pyproject.toml",
        "tools/template.ipynb",
        *(path.relative_to(ROOT).as_posix() for path in build.Book().notebooks().values()),
    }
    move(tree, SECOND)
    assert_nowhere("quokka|wombat|numbat|bilby|bandicoot", tree)
    move(tree, {key: getattr(own, key) for key in FIRST})
    assert contents(tree) == before


def test_a_line_is_all_that_changes_in_a_notebook(tree):
    name = "notebooks/05_mds_construction.ipynb"
    before, own = (tree / name).read_bytes().splitlines(keepends=True), Address.load(tree)
    move(tree, FIRST)
    after = (tree / name).read_bytes().splitlines(keepends=True)
    assert len(after) == len(before)
    ((old, new),) = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert own.requirement.encode() in old
    assert b"bandicoot @ git+https://github.com/quokka-org/quokka-book@v" in new


def test_what_runs_reads_the_file(tree):
    move(tree, FIRST)
    told = Address.load(tree)
    assert told.colab("05_x") == (
        "https://colab.research.google.com/github/quokka-org/quokka-book/blob/bilby/05_x.ipynb"
    )
    assert told.notebook("05_x") == "https://github.com/quokka-org/quokka-book/blob/bilby/05_x.ipynb"
    assert told.download("05_x") == "https://github.com/quokka-org/quokka-book/raw/bilby/05_x.ipynb"
    assert told.page("book/verdicts") == "https://wombat.example.org/pages/book/verdicts.html"
    # The set-up cell is made from the address, so it is the one that the notebooks got.
    cell = setup_cell.SETUP_CELL.replace(Address.load().requirement, told.requirement)
    assert told.requirement in cell
    for line in cell.splitlines():
        assert line.replace('"', '\\"') in (tree / "tools" / "template.ipynb").read_text(encoding="utf-8")


def test_line_ends_are_left_alone(tree):
    page = tree / "LICENSE-text.md"
    page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    lines = page.read_bytes().count(b"\r\n")
    move(tree, FIRST)
    assert page.read_bytes().count(b"\r\n") == page.read_bytes().count(b"\n") == lines


def test_an_address_that_is_behind_is_named_with_its_line(tree, capsys):
    page = tree / "CITATION.cff"
    page.write_bytes(page.read_bytes().replace(b"code: https://github.com/", b"code: https://x.org/"))
    before, own = contents(tree), Address.load(tree)
    assert address.main([], tree) == 1
    assert contents(tree) == before
    said = capsys.readouterr().err
    assert f"CITATION.cff:8: https://x.org/{own.repository} should be {own.repository_url}\n" in said


def test_an_address_that_was_taken_out_is_missed(tree, capsys):
    page = tree / "README.md"
    page.write_bytes(page.read_bytes().replace(b"- The pages: <", b"- Pages: <"))
    assert address.main(["--write"], tree) == 1
    assert "README.md: no address at" in capsys.readouterr().err


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("repository", "https://github.com/a/b", "repository: 'https://github.com/a/b' has not the form"),
        ("site", "https://a.org/book", "site: "),
        ("package", "a b", "package: "),
        ("notebooks_branch", "main", "overwrites notebooks_branch"),
        ("sites", "https://a.org/", "needs exactly the keys repository, site, branch"),
    ],
)
def test_a_value_that_is_no_address_is_refused_and_nothing_is_written(tree, capsys, key, value, said):
    path = tree / "address.yml"
    text = re.sub(rf"^{key}: .*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    path.write_text(f"{text}{key}: {value}\n", encoding="utf-8")
    before = contents(tree)
    assert address.main(["--write"], tree) == 1
    assert said in capsys.readouterr().err
    assert contents(tree) == before
