"""The layers are held by import-linter, and a broken one is seen; the drawing is that of the code."""

from __future__ import annotations

import shutil
import subprocess
import sys

from tools import architecture, build

ROOT = build.ROOT


def test_the_layers_are_kept_and_the_drawing_is_up_to_date(capsys):
    assert architecture.main([]) == 0, capsys.readouterr().err


def test_the_drawing_shows_the_flow_of_a_text_and_no_arrow_back():
    drawn = architecture.drawing()
    for arrow in ("corpora --> posgeom.counts", "counts --> posgeom.noise", "noise --> posgeom.diagnosis"):
        assert f"posgeom.{arrow}" in drawn
    assert "posgeom.diagnosis -->" not in drawn and "posbook" not in drawn


def test_an_import_against_the_flow_is_named(tmp_path):
    for name in ("posgeom", "posbook", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    module = tmp_path / "posgeom" / "corpora" / "synthetic.py"
    module.write_text(module.read_text(encoding="utf-8") + "\nfrom posgeom.laws import power_line  # noqa\n")
    run = subprocess.run(
        [sys.executable, "tools/architecture.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "posgeom.corpora.synthetic -> posgeom.laws" in run.stderr and "out" not in run.stdout
