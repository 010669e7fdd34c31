"""Run the chapters as on Colab: posgeom and its data are absent, so each set-up cell has to do its work.

    python tools/colab_check.py           every chapter, in a stand-in for Colab
    python tools/colab_check.py 05 09     these two
    python tools/colab_check.py --here    in the environment of this Python: for Colab's own image
    python tools/colab_check.py --tag     posgeom from the address in the set-up cell, not from this folder

The stand-in is made anew for each chapter: a virtual environment that sees all that this Python has, except
what the set-up cell installs. Unless told otherwise, the git address in that cell is swapped for a wheel of
this folder, and nothing else is. A chapter starts in an empty folder, without the text of SST-2 and without a
hub of models. Afterwards no package may have another version, and none be new but those of the set-up cell.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.address import Address  # noqa: E402
from tools.setup_cell import SETUP_CELL  # noqa: E402

PACKAGE = Address.load().package
ADDRESS = re.compile(re.escape(PACKAGE) + r" @ git\+[^\"]*")
# All that the set-up cell asks of Colab; the real module wants Colab's own front end.
STARTUP = "import sys, types\nsys.modules.setdefault('google.colab', types.ModuleType('google.colab'))\n"
NOT_SOURCE = shutil.ignore_patterns("_build", ".venv", ".git", "build", "*.egg-info", "__pycache__")
UNSET = ("PYTHONPATH", "PYTHONHOME", "POSGEOM_DATA", "POSGEOM_RECORDS")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chapters", nargs="*", metavar="NN", help="numbers of chapters; none means all")
    parser.add_argument("--here", action="store_true", help="no stand-in: install into this environment")
    parser.add_argument("--tag", action="store_true", help="leave the address in the set-up cell as it is")
    options = parser.parse_args(arguments)
    found = {path: path.name[:2] for path in sorted(ROOT.glob("notebooks/[0-9][0-9]_*.ipynb"))}
    if unknown := set(options.chapters) - set(found.values()):
        parser.error(f"no chapter {', '.join(sorted(unknown))}; there are {', '.join(found.values())}")
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        requirement = None if options.tag else f"{PACKAGE} @ {build_wheel(Path(scratch)).as_uri()}"
        for notebook, number in found.items():
            if options.chapters and number not in options.chapters:
                continue
            started = time.monotonic()
            problems = check(notebook, requirement, here=options.here)
            print(f"{notebook.stem}: {time.monotonic() - started:.0f} s", *problems, sep="\n  ", flush=True)
            if problems:
                failed.append(notebook.stem)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def check(
    notebook: Path,
    requirement: str | None = None,
    *,
    here: bool = False,
    absent: Collection[str] | None = None,
) -> list[str]:
    """What goes wrong when ``notebook`` runs as on Colab; ``requirement`` replaces the address of posgeom.

    The packages ``absent``, without which it starts, are those that the set-up cell installs if not given.
    """
    installed = set(installed_by_setup())
    with tempfile.TemporaryDirectory() as folder:
        if here:
            python = Path(sys.executable)
            subprocess.run([python, "-m", "pip", "uninstall", "-qq", "-y", *installed], check=True)
        else:
            python = stand_in(Path(folder) / "environment", without=absent or installed)
        before = versions(python)
        problems = run(notebook, python, Path(folder), requirement)
        after = versions(python)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return problems + [
        f"{name} was {before.get(name, 'absent')} and is {after.get(name, 'absent')} now"
        for name in sorted(changed - installed)
    ]


def installed_by_setup() -> Iterator[str]:
    """The names of the packages that the set-up cell installs."""
    for line in re.findall(r"%pip install (.*)", SETUP_CELL):
        for word in shlex.split(line):
            if not word.startswith("-"):
                yield canonical(re.match(r"[\w.-]+", word)[0])


def canonical(name: str) -> str:
    """The name of a package as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def build_wheel(folder: Path, *options: str) -> Path:
    """A wheel of this folder, built from a copy: pip leaves traces where it builds."""
    source = shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCE)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *options]
    subprocess.run([*pip, "-w", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def stand_in(folder: Path, *, without: Collection[str]) -> Path:
    """The Python of a new environment that sees what this one has, except the packages ``without``.

    What it sees is linked in a folder of its own, so pip installs beside it and never into this environment.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib"))
    hidden = {"__pycache__"}
    for distribution in metadata.distributions(path=[str(packages)]):
        if canonical(distribution.metadata["Name"]) in without:
            hidden.update(Path(file).parts[0] for file in distribution.files or ())
    seen = folder / "seen"
    seen.mkdir()
    for entry in packages.iterdir():
        if entry.name not in hidden:
            (seen / entry.name).symlink_to(entry)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "seen.pth").write_text(f"{seen}\n", encoding="utf-8")
    return folder / "bin" / "python"


def run(notebook: Path, python: Path, folder: Path, requirement: str | None) -> list[str]:
    """Execute a copy of ``notebook`` with ``python``, in an empty folder inside ``folder``."""
    text = notebook.read_text(encoding="utf-8")
    if not ADDRESS.search(text):
        return ["it has no set-up cell that installs posgeom from its address"]
    content = json.loads(text)
    for cell in content["cells"]:
        source = "".join(cell["source"])
        cell["source"] = ADDRESS.sub(requirement, source) if requirement else source
    copy, executed = folder / notebook.name, folder / "executed.ipynb"
    copy.write_text(json.dumps(content), encoding="utf-8")
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"argv": argv, "display_name": "Colab", "language": "python"}
    for name, what in {
        "ipython/profile_default/startup/colab.py": STARTUP,
        "jupyter/kernels/colab/kernel.json": json.dumps(kernel),
    }.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(what, encoding="utf-8")
    work = folder / "work"
    work.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in UNSET} | OFFLINE
    environment |= {"IPYTHONDIR": str(folder / "ipython"), "JUPYTER_PATH": str(folder / "jupyter")}
    papermill = [str(python), "-m", "papermill", "--no-progress-bar", "--kernel", "colab", "--cwd", str(work)]
    outcome = subprocess.run(
        [*papermill, str(copy), str(executed)], env=environment, capture_output=True, text=True
    )
    if outcome.returncode == 0:
        return []
    return [*setup_output(executed), outcome.stderr.strip()]


def setup_output(executed: Path) -> list[str]:
    """What the set-up cell said: pip reports there, and does not stop the notebook."""
    if not executed.is_file():
        return []
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells if cell.get("id") == "setup" for output in cell["outputs"]]
    said = "".join("".join(output.get("text", "")) for output in outputs).splitlines()
    # IPython's advice to restart the kernel comes after each %pip, whatever pip did.
    said = [line for line in said if line.strip() and not line.startswith("Note: ")]
    return ["the set-up cell said: " + "\n".join(said)] if said else []


def versions(python: Path) -> dict[str, str]:
    """Name and version of each package that ``python`` sees, asked in a process of its own."""
    question = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({n: m.version(n) for n in {d.metadata['Name'] for d in m.distributions()}}))"
    )
    # Isolated from PYTHONPATH and from the folder of this script, as the kernel is.
    answer = subprocess.run([python, "-I", "-c", question], capture_output=True, check=True, text=True)
    return {canonical(name): version for name, version in json.loads(answer.stdout).items()}


if __name__ == "__main__":
    sys.exit(main())
