"""From the template to a built page, by the steps of CONTRIBUTING.md, in a copy of the repository."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import build

ROOT = build.ROOT
COPIED = (
    "posgeom",
    "posbook",
    "tools",
    "book",
    "_config.yml",
    "address.yml",
    "requirements.txt",
    "requirements-data.txt",
    "pyproject.toml",
)
TESTS = ("conftest.py", "book/test_notebooks.py", "book/test_quizzes.py")
NAME = "13_neighbours"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The repository with no chapter and one page in its table of contents."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    for page in (tmp_path / "book").glob("*.md"):
        page.unlink()
    (tmp_path / "book" / "index.md").write_text("# A book of one chapter\n", encoding="utf-8")
    for folder in ("notebooks", "tests/book"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / "ruff.toml", tmp_path / "notebooks")
    for name in TESTS:
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    toc = {"format": "jb-book", "root": "book/index", "parts": [{"numbered": True, "chapters": []}]}
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    for name in ("expected.yml", "cheap_parameters.yml"):
        (tmp_path / "tests" / name).write_text("", encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


def test_contributing_tells_these_steps():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for step in ("cp tools/template.ipynb notebooks/NN_name.ipynb", "`_toc.yml`", "tests/expected.yml"):
        assert step in text
    assert "tests/cheap_parameters.yml" in text and "tools/build.py --only" in text


def test_the_template_becomes_a_page(repository: Path):
    # cp tools/template.ipynb notebooks/NN_name.ipynb
    shutil.copy(repository / "tools" / "template.ipynb", repository / "notebooks" / f"{NAME}.ipynb")
    # name it in _toc.yml
    toc = yaml.safe_load((repository / "_toc.yml").read_text(encoding="utf-8"))
    toc["parts"][0]["chapters"].append({"file": f"notebooks/{NAME}"})
    (repository / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    # smaller parameters, and a number that they change
    cheap = {NAME: {"parameters": {"n": 5}, "changes": ["neighbours"]}}
    (repository / "tests" / "cheap_parameters.yml").write_text(yaml.safe_dump(cheap), encoding="utf-8")

    built = run(repository, "tools/build.py")
    assert built.returncode == 0, built.stdout + built.stderr
    page = (repository / "_build" / "html" / "notebooks" / f"{NAME}.html").read_text(encoding="utf-8")
    recorded = json.loads((repository / "_build" / "records" / f"{NAME}.json").read_text(encoding="utf-8"))
    assert f"{recorded['neighbours']['value']:.3f} apart" in re.sub(r"<[^>]+>", "", page)

    # The failing test prints the lines for tests/expected.yml; with them it passes.
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    failing = run(repository, *tests)
    lines = re.findall(r"^E? +(\w+: \{.*\})    # recorded, but not expected", failing.stdout, re.M)
    assert failing.returncode == 1 and len(set(lines)) == len(recorded), failing.stdout[-3000:]
    expected = f"{NAME}:\n" + "".join(f"  {line}\n" for line in sorted(set(lines)))
    (repository / "tests" / "expected.yml").write_text(expected, encoding="utf-8")
    passing = run(repository, *tests)
    assert passing.returncode == 0, passing.stdout[-3000:]
