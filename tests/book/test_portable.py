"""Runs under the kernels of other CPUs: what is chosen, where it goes, what is skipped, when it fails."""

from __future__ import annotations

import math
import os

import pytest

from tools import expectations, kernels, portable
from tools.kernels import SETTINGS, Setting, in_force

ASKED = """
import os
from posbook.record import record
record("threads", int(os.environ["OMP_NUM_THREADS"]))
"""


def test_a_setting_is_in_force_or_is_refused_with_the_reason(monkeypatch):
    facts, refusal = in_force(Setting("two", threads=2, wants={"threads": ("2",)}))
    assert (facts["threads"], refusal) == ("2", "") and set(facts) >= {"torch", "openblas", "numpy", "mkl"}
    assert in_force(Setting("x", wants={"threads": ("7",)}))[1] == "threads uses 1 here, not 7"
    monkeypatch.setattr(kernels, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert in_force(SETTINGS[0]) == ({}, "this CPU lacks its instructions (SIGILL)")
    monkeypatch.setattr(kernels, "PROBE", "raise SystemExit('no torch')")
    assert in_force(SETTINGS[0]) == ({}, "no torch")


def test_tests_run_in_the_environment_of_a_setting_and_a_failure_is_told(tmp_path, capsys):
    book = portable.SettingBook(root=tmp_path, setting=Setting("x", {"POSGEOM_ASKED": "y"}))
    file = tmp_path / "test_asked.py"
    file.write_text("import os\n\ndef test_asked():\n    assert os.environ['POSGEOM_ASKED'] == 'y'\n")
    assert portable.run_tests(book, 0, [str(file)]) == (True, "1 passed")
    other = portable.SettingBook(root=tmp_path, setting=Setting("x", {"POSGEOM_ASKED": "n"}))
    assert portable.run_tests(other, 0, [str(file)]) == (False, "1 failed")
    assert "FAILED" in capsys.readouterr().out and (other.build / "tests.log").is_file()


def test_a_chapter_runs_beside_the_book_s_own_run_and_is_held_against_what_is_expected(
    toy_book, tmp_path, monkeypatch, capsys
):
    path = toy_book.add("01_asked", ASKED)
    book = portable.SettingBook(root=toy_book.root, setting=Setting("two", threads=2))
    monkeypatch.setattr(expectations, "FILE", tmp_path / "expected.yml")
    for value, outcome in ((2, (True, "1 chapters agree")), (1, (False, "chapters off: 01"))):
        expectations.FILE.write_text(f"01_asked:\n  threads: {{value: {value}}}\n")
        seen = {}
        assert portable.run_chapters(book, {"01_asked": path}, 1, seen) == outcome
        assert seen["01_asked"]["two"]["threads"]["value"] == 2
    assert "threads: recorded 2, expected 1" in capsys.readouterr().out
    assert book.records(path).is_file() and not toy_book.records(path).exists()


def test_spread_by_hand():
    assert portable.spread([1.0, 1.5, 1.2], 2.0) == (0.25, 1.0, 1.5)
    assert portable.spread([3, 3], None)[0] == 0 and portable.spread([3, 4], None)[0] == math.inf
    assert (
        portable.spread(["a", "b"], None) == (math.inf, "a", "b") and portable.spread([True, True], 1)[0] == 0
    )


def test_a_spread_table_begins_with_the_worst(tmp_path, monkeypatch):
    monkeypatch.setattr(expectations, "FILE", tmp_path / "expected.yml")
    expectations.FILE.write_text("01_x:\n  a: {value: 1.0, tol: 1.0}\n  b: {value: 1.0, tol: 0.1}\n")
    runs = {name: {"a": {"value": v}, "b": {"value": v}} for name, v in (("own", 1.0), ("avx2", 1.05))}
    _, first, second = portable.spread_table({"01_x": runs})
    assert first.split() == ["0.500", "01", "b", "1", "1.05", "0.1"] and second.split()[:3] == [
        "0.050",
        "01",
        "a",
    ]


@pytest.mark.parametrize("good, status", [(True, 0), (False, 1)])
def test_what_cannot_be_run_is_named_and_the_exit_code_tells(good, status, monkeypatch, capsys):
    kinds = {"own": ({"torch": "A"}, ""), "oldest": ({"torch": "B"}, ""), "avx512": ({}, "this CPU lacks it")}
    monkeypatch.setattr(portable, "in_force", lambda setting: kinds.get(setting.name, ({"torch": "A"}, "")))
    monkeypatch.setattr(portable, "run_tests", lambda *_: (True, "3 passed"))
    monkeypatch.setattr(
        portable, "run_chapters", lambda book, *_: (good or book.setting.name != "oldest", "a word")
    )
    assert portable.main([]) == status
    table = capsys.readouterr().out.split("\n\n")[-1]
    assert "zen          skipped  the same kernels as own" in table
    assert "avx512       skipped  this CPU lacks it" in table
    assert f"oldest       {'passed  ' if good else 'FAILED  '} 3 passed; a word" in table
    assert portable.main(["--settings", "avx512"]) == 1, "nothing was run"


def test_a_setting_reaches_the_key_of_a_run(toy_book):
    from tools import build

    path = toy_book.add("01_asked", ASKED)
    keys = {
        build.execution_key(portable.SettingBook(root=toy_book.root, setting=setting), path, {})
        for setting in SETTINGS
    }
    assert len(keys) == len(SETTINGS)
    assert build.execution_key(build.Book(toy_book.root), path, {}) not in keys
    assert "POSGEOM_ASKED" not in os.environ
