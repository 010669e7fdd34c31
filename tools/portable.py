"""Unit tests and chapters under the kernels of other CPUs: a number may not hang on the machine that gave it.

    python tools/portable.py                       every setting; unit tests, and the chapters that train
    python tools/portable.py 11 --settings avx2    one chapter, one setting
    python tools/portable.py all --no-tests --spread

PyTorch, OpenBLAS, MKL and NumPy choose their kernels by the CPU. A sum in another order, with or without
fused multiplication, ends in other digits, and a training of a thousand steps makes another run of them.
The settings (tools/kernels.py) make the libraries choose as on other CPUs. One that this CPU cannot run, or
whose kernels were in force already, is named and skipped. Records are held against tests/expected.yml; the
runs are kept in _build/portable/.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import build, expectations  # noqa: E402
from tools.kernels import SETTINGS, Setting, in_force  # noqa: E402

# Chapters that train something on the page: what rounding begins, training enlarges.
CHAPTERS = ("01", "04", "11")
# The tests of the package. Not those of the book: their runs would pass for the book's own.
UNIT = ("--unit",)


@dataclass(frozen=True)
class SettingBook(build.Book):
    """The book, run under a setting: its executed copies and records have a place of their own."""

    setting: Setting = SETTINGS[0]

    @property
    def build(self) -> Path:
        return self.root / "_build" / "portable" / self.setting.name

    @property
    def environment(self) -> dict[str, str]:
        return self.setting.variables


def run_tests(book: SettingBook, jobs: int, chosen: Sequence[str] = UNIT) -> tuple[bool, str]:
    """Whether tests pass under a setting, and pytest's last line; its output is kept."""
    log = book.build / "tests.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", str(jobs), *chosen]
    with log.open("w", encoding="utf-8") as out:
        environment = os.environ | book.environment
        ended = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            say(f"    {line}")
    last = re.sub(r" in [\d.]+s.*", "", lines[-1].strip("= ")) if lines else "no output"
    return ended.returncode == 0, last


def run_chapters(
    book: SettingBook, chapters: Mapping[str, Path], jobs: int, seen: dict[str, dict]
) -> tuple[bool, str]:
    """Whether chapters record what is expected under a setting, in a word too; ``seen`` takes the records."""
    expected, off = expectations.load(), []
    for run in build.execute(book, chapters, jobs=jobs, say=lambda line: say(f"    {line}")):
        faults = [run.error] if run.error else []
        if not faults:
            records = expectations.records_of(run)
            seen.setdefault(run.name, {})[book.setting.name] = records
            faults = list(expectations.differences(records, expected.get(run.name) or {}))
            for fault in faults:
                say(f"    {run.name}: {fault}")
        if faults:
            off.append(run.name[:2])
    return not off, f"chapters off: {' '.join(off)}" if off else f"{len(chapters)} chapters agree"


def spread(values: Sequence[object], tol: float | None) -> tuple[float, object, object]:
    """How far recorded values are apart in units of their tolerance, and the least and the greatest."""
    if any(isinstance(value, str | bool) for value in values):
        apart = [value for value in values if value != values[0]]
        return (math.inf, values[0], apart[0]) if apart else (0.0, values[0], values[0])
    low, high = min(values), max(values)
    return 0.0 if low == high else (high - low) / tol if tol else math.inf, low, high


def spread_table(seen: Mapping[str, Mapping[str, dict]]) -> list[str]:
    """Each recorded number's least and greatest value over the settings beside its tolerance, worst first."""
    rows = []
    for chapter, runs in seen.items():
        expected = expectations.load().get(chapter) or {}
        for name in set().union(*runs.values()):
            tol = expected[name].get("tol") if isinstance(expected.get(name), dict) else None
            found = spread([run[name]["value"] for run in runs.values() if name in run], tol)
            rows.append((*found, f"{chapter[:2]} {name}", tol))
    lines = [f"{'spread/tol':>10}  {'number':44} {'least':>16} {'greatest':>16} {'tol':>9}"]
    for ratio, low, high, name, tol in sorted(rows, key=lambda row: (-row[0], row[3])):
        least, greatest = (f"{v:.8g}" if isinstance(v, float) else str(v)[:16] for v in (low, high))
        lines.append(f"{ratio:10.3f}  {name:44} {least:>16} {greatest:>16} {'' if tol is None else tol!s:>9}")
    return lines


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    known = {setting.name: setting for setting in SETTINGS}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="01 04 11 by default; all: every one")
    named = f"of {', '.join(known)} (default all)"
    parser.add_argument(
        "--settings", nargs="+", choices=known, default=list(known), metavar="NAME", help=named
    )
    parser.add_argument("--no-tests", action="store_true", help="chapters only")
    parser.add_argument("--no-chapters", action="store_true", help="unit tests only")
    parser.add_argument("--spread", action="store_true", help="print each number's spread over the settings")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (default 2)")
    options = parser.parse_args(arguments)
    try:
        wanted = options.chapters or CHAPTERS
        chapters = build.Book().notebooks() if "all" in wanted else build.Book().select(wanted)
    except build.BuildError as error:
        parser.error(str(error))

    table, seen, done = [], {}, {}
    for name in options.settings:
        book, started = SettingBook(setting=known[name]), time.monotonic()
        facts, refusal = in_force(book.setting)
        force = ", ".join(f"{library} {what}" for library, what in facts.items())
        same = next((other for other, its in done.items() if its == facts), None)
        if refusal or same:
            why = refusal or f"the same kernels as {same}"
            say(f"{name}: skipped, {why}")
            table.append((name, "skipped", why, force))
            continue
        done[name] = facts
        say(f"{name}: {force}")
        outcomes = []
        if not options.no_tests:
            outcomes.append(run_tests(book, options.jobs))
            say(f"    unit tests: {outcomes[-1][1]}")
        if not options.no_chapters:
            outcomes.append(run_chapters(book, chapters, options.jobs, seen))
        verdict = "passed" if all(good for good, _ in outcomes) else "FAILED"
        words = "; ".join(words for _, words in outcomes)
        table.append((name, verdict, f"{words}; {time.monotonic() - started:.0f} s", force))
    if options.spread:
        say("\n" + "\n".join(spread_table(seen)))
    say("")
    for name, verdict, words, force in table:
        say(f"{name:12} {verdict:8} {words}\n{'':12} {force or 'no kernels'}")
    return 0 if done and all(verdict != "FAILED" for _, verdict, _, _ in table) else 1


if __name__ == "__main__":
    sys.exit(main())
