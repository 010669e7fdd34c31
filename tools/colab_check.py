"""Run the chapters as on Colab: posgeom absent, so that the set-up cell of each has to do its work.

    python tools/colab_check.py                        the chapters exactly as they are committed
    python tools/colab_check.py --package /a/checkout  posgeom from there instead of from the tag

Run it in Colab's image, or where numpy, torch and papermill are installed but posgeom is not. Each chapter
starts in an empty folder and without posgeom; numpy and torch must have the same versions afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = re.compile(r'"posgeom @ [^"]*"')
# All that the set-up cell asks of Colab; the real module wants Colab's own front end.
STARTUP = "import sys, types\nsys.modules.setdefault('google.colab', types.ModuleType('google.colab'))\n"
KEPT = ("numpy", "torch")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", metavar="FOLDER", help="install posgeom from this folder or wheel")
    options = parser.parse_args()
    before = _versions()
    failed = []
    for notebook in sorted(ROOT.glob("notebooks/*.ipynb")):
        _pip("uninstall", "-y", "posgeom")
        print(f"{notebook.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            if not _run(notebook, Path(folder), options.package):
                failed.append(notebook.name)
        after = _versions()
        if after != before:
            print(f"{notebook.name} changed {before} to {after}", file=sys.stderr)
            return 1
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(notebook: Path, folder: Path, package: str | None) -> bool:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if package and PACKAGE.search(source):
            cell["source"] = PACKAGE.sub(lambda _: f'"{package}"', source)
    copy = folder / notebook.name
    copy.write_text(json.dumps(content), encoding="utf-8")
    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "colab.py").write_text(STARTUP, encoding="utf-8")
    work = folder / "work"
    work.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["IPYTHONDIR"] = str(folder / "ipython")
    command = [sys.executable, "-m", "papermill", str(copy), str(folder / "executed.ipynb")]
    command += ["--cwd", str(work), "--kernel", "python3", "--no-progress-bar"]
    return subprocess.run(command, env=environment).returncode == 0


def _versions() -> dict[str, str]:
    # In a process of its own: this one would remember what it saw first.
    question = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {KEPT}}}))"
    return json.loads(
        subprocess.run([sys.executable, "-c", question], capture_output=True, check=True).stdout
    )


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
