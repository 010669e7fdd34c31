"""What a chapter's run must find again: tests/expected.yml, and how recorded numbers are held against it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml

from tools import build

FILE = build.ROOT / "tests" / "expected.yml"


def load() -> dict[str, dict]:
    """Chapter -> recorded name -> ``{"value", "tol", "needs"}``; beside the names the key ``unchecked``."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8")) or {}


def records_of(run: build.Run) -> dict[str, dict]:
    """What a run recorded: name -> ``{"value", "unit", "tol"}``."""
    return json.loads(run.records.read_text(encoding="utf-8"))


def differences(records: dict[str, dict], expected: dict) -> Iterator[str]:
    """What of the recorded numbers is not as expected.yml says, one line each."""
    unchecked = expected.get("unchecked") or {}
    checked = {name: entry for name, entry in expected.items() if name != "unchecked"}
    for name, reason in unchecked.items():
        if not (isinstance(reason, str) and reason.strip()):
            yield f"{name}: unchecked, but no reason is given"
        if name in checked:
            yield f"{name}: both checked and unchecked"
        if name not in records:
            yield f"{name}: unchecked, but not recorded either"
    for name, entry in checked.items():
        if name not in records:
            if entry.get("needs") != "sst2" or build.sst2_state() != build.NO_SST2:
                yield f"{name}: expected, but not recorded"
        elif not agrees(recorded := records[name]["value"], entry["value"], tol := entry.get("tol")):
            yield f"{name}: recorded {recorded!r}, expected {entry['value']!r} within {tol}"
    for name in sorted(set(records) - set(checked) - set(unchecked)):
        entry = {"value": records[name]["value"], "tol": records[name]["tol"]}
        given = {key: value for key, value in entry.items() if value is not None}
        # YAML's own dumper: it takes 1e-06, as JSON has it, for a string.
        line = yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=10_000).strip()
        yield f"  {name}: {line}    # recorded, but not expected"


def agrees(recorded: object, expected: object, tol: float | None) -> bool:
    """Whether a recorded value is the expected one: within ``tol``, or equal where none is given."""
    if tol is None or isinstance(recorded, str | bool) or isinstance(expected, str | bool):
        return type(recorded) is type(expected) and recorded == expected
    return abs(recorded - expected) <= tol
