"""The set-up: what it asks of uv and pip, what it says of a download, and the cure for each failure."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import build, commands, environment

ROOT = build.ROOT
Version = namedtuple("Version", "major minor micro")
WHEEL = "https://index.example/{}.whl"


@pytest.fixture
def setting_up(monkeypatch, tmp_path):
    """The set-up of a folder, with commands that are noted instead of run; `answers` says what they print."""
    for file in ("requirements.txt", "requirements-data.txt", "pyproject.toml"):
        (tmp_path / file).write_text("")
    for variable in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(variable)
    # The set-up sets variables of its own process.
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "READY", tmp_path / ".venv" / "ready.json")
    monkeypatch.setattr(environment, "PYTHON", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setattr(environment, "PIP", ["pip"])
    monkeypatch.chdir(tmp_path)
    world = SimpleNamespace(
        main=environment.main,
        commands=commands,
        folder=tmp_path,
        asked=[],
        installed=[],
        fails={},
        configured="",
        plain={"numpy": 16_000_000},
        cpu=None,
    )

    def ask(*command, **variables):
        words = " ".join(command)
        world.asked.append(words)
        for part, output in world.fails.items():
            if part in words:
                raise commands.Failed(output)
        if "venv" in command:
            (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
            (tmp_path / ".venv" / "bin" / "python").touch()
        if command[-2:] == ("config", "list"):
            return world.configured
        if "compile" in command:
            plan(Path(command[command.index("-o") + 1]), "--torch-backend=cpu" in command)
        return str(tmp_path / "cache")

    def plan(file, cpu):
        if cpu and world.cpu is None:
            raise commands.Failed("error: Failed to fetch: https://index.example/cpu/torch/")
        sizes = world.cpu if cpu else world.plain
        lines = (
            f'[[packages]]\nname = "{name}"\nwheels = [{{ url = "{WHEEL.format(name)}"'
            + (f", size = {size} }}]\n" if size else " }]\n")
            for name, size in sizes.items()
        )
        file.write_text("".join(lines))

    def watch(command, megabytes):
        world.installed.append((" ".join(command), megabytes))
        for part, output in world.fails.items():
            if part in world.installed[-1][0]:
                raise commands.Failed(output)

    monkeypatch.setattr(environment, "ask", ask)
    monkeypatch.setattr(environment, "watch", watch)
    return world


def ready(world):
    return json.loads((world.folder / ".venv" / "ready.json").read_text())


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_another_python_is_turned_away_with_the_names_of_those_that_do(
    setting_up, monkeypatch, capsys, version
):
    monkeypatch.setattr(sys, "version_info", Version(*version))
    assert setting_up.main() == 1 and not setting_up.asked
    assert re.fullmatch(
        r"error: Python 3\.11, 3\.12 or 3\.13 is needed.*`make PYTHON=.*\n", capsys.readouterr().err
    )


@pytest.mark.parametrize("version", [(3, 11, 2), (3, 12, 1), (3, 13, 0)])
def test_the_set_up_plans_says_how_much_comes_and_then_installs(setting_up, monkeypatch, capsys, version):
    monkeypatch.setattr(sys, "version_info", Version(*version))
    assert setting_up.main() == 0
    out = capsys.readouterr().out
    assert out.index("1 packages, up to 16 MB to fetch\n") < out.index("installing packages")
    assert [megabytes for _, megabytes in setting_up.installed] == [16, 16, 0]
    packages, data, posgeom = (command for command, _ in setting_up.installed)
    assert packages.endswith("-r " + str(setting_up.folder / ".venv" / "pylock.requirements.toml"))
    assert "--no-deps" in data and posgeom.endswith("--no-build-isolation --editable .")
    assert all("torch-backend" not in words for words in setting_up.asked)


def test_what_is_ready_is_left_alone_and_a_changed_file_redoes_its_step(setting_up):
    assert setting_up.main() == 0
    setting_up.asked.clear(), setting_up.installed.clear()
    assert setting_up.main() == 0
    assert not setting_up.asked and not setting_up.installed
    (setting_up.folder / "pyproject.toml").write_text("# changed")
    assert setting_up.main() == 0
    assert ["--editable ." in command for command, _ in setting_up.installed] == [True]
    (setting_up.folder / "requirements.txt").write_text("# changed")
    assert setting_up.main() == 0
    assert len(setting_up.installed) == 4 and any("-m venv" in words for words in setting_up.asked)


def test_a_step_that_failed_is_not_taken_for_ready_and_is_where_the_next_run_goes_on(setting_up, capsys):
    setting_up.fails["--no-deps -r"] = "error: a wheel is broken"
    assert setting_up.main() == 1
    assert "a wheel is broken" in capsys.readouterr().err and set(ready(setting_up)) == {"home", "packages"}
    setting_up.fails.clear(), setting_up.installed.clear()
    assert setting_up.main() == 0
    assert len(setting_up.installed) == 2
    assert set(ready(setting_up)) == {"home", "packages", "data and models", "posgeom"}


def test_a_changed_step_that_fails_is_done_again_even_when_its_file_is_changed_back(setting_up):
    project = setting_up.folder / "pyproject.toml"
    assert setting_up.main() == 0
    written = project.read_text(encoding="utf-8")
    project.write_text("# changed", encoding="utf-8")
    setting_up.fails["--editable"] = "error: no such backend"
    assert setting_up.main() == 1
    setting_up.fails.clear(), setting_up.installed.clear()
    project.write_text(written, encoding="utf-8")
    assert setting_up.main() == 0
    assert ["--editable ." in command for command, _ in setting_up.installed] == [True]


def test_uv_is_told_what_pip_is_configured_with_and_the_environment_outweighs_files(setting_up, monkeypatch):
    setting_up.configured = (
        ":env:.find-links='/wheels /more'\n"
        "global.cert='/ca.crt'\n"
        "global.extra-index-url='https://one.example/simple https://two.example/simple'\n"
        "global.find-links='/elsewhere'\n"
        "global.index-url='https://index.example/simple'\n"
        "global.timeout='3'\n"
    )
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["UV_DEFAULT_INDEX"] = "https://mine.example/simple"
    assert setting_up.main() == 0
    told = {
        name: value for name, value in os.environ.items() if name.startswith("UV_") or name == "SSL_CERT_FILE"
    }
    assert told == {
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_EXTRA_INDEX_URL": "https://one.example/simple https://two.example/simple",
        "UV_DEFAULT_INDEX": "https://mine.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/ca.crt",
    }


CUDA = {"torch": 500_000_000, "nvidia-cublas": 2_500_000_000}


def test_the_cpu_build_is_taken_where_its_index_answers(setting_up, capsys):
    setting_up.plain, setting_up.cpu = CUDA, {"torch": None, "numpy": 16_000_000}
    assert setting_up.main() == 0
    out = capsys.readouterr().out
    assert "2 packages, up to 16 MB to fetch and torch\n" in out and "CUDA" not in out


def test_without_that_index_the_gigabytes_are_said_before_the_download(setting_up, capsys):
    setting_up.plain = CUDA
    assert setting_up.main() == 0
    out = capsys.readouterr().out
    assert out.index("CUDA comes") < out.index("up to 3,000 MB to fetch") < out.index("installing packages")


def test_pip_does_the_work_where_uv_cannot_be_had(setting_up, capsys):
    setting_up.fails["requirements-setup.txt"] = "ERROR: No matching distribution found for uv==0.13.9"
    assert setting_up.main() == 0
    assert [command for command, _ in setting_up.installed] == [
        "pip install -r requirements.txt",
        "pip install --no-deps -r requirements-data.txt",
        "pip install --no-deps --no-build-isolation --editable .",
    ]
    assert "pip does its work" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "words", "sentence"),
    [
        (
            "-m venv",
            "not created successfully because ensurepip is not\navailable",
            "apt install python3-venv",
        ),
        ("-m venv", "OSError: [Errno 28] No space left on device", "the disk is full"),
        (
            "requirements-setup.txt",
            "connection broken by 'NewConnectionError: [Errno -3] Temporary failure in name resolution'"
            "\nERROR: No matching distribution found for uv==0.13.9",
            "no package index answers",
        ),
        ("compile", "error: Failed to fetch: https://a/\n  cause: dns error", "no package index answers"),
        ("install --python", "cause: Connection refused (os error 111)", "no package index answers"),
        (
            "install --python",
            "failed to write to file `a`: No space left on device (os error 28)",
            "the disk is full",
        ),
        ("install --python", "failed to create `a`: Permission denied (os error 13)", "cannot be written"),
    ],
)
def test_a_failure_that_is_known_is_one_sentence_with_its_cure(setting_up, capsys, command, words, sentence):
    setting_up.fails[command] = words
    assert setting_up.main() == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and sentence in error and error.count("\n") == 1
    assert "run the same command again" in error


def test_a_home_that_cannot_be_written_moves_the_cache_beside_the_book(setting_up, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert setting_up.main() == 0
    assert os.environ["UV_CACHE_DIR"] == str(setting_up.folder / "_build" / "uv")


# Draws bars as uv does: all of those in flight, again and again, over the ones before.
FAKE_UV = """\
import sys, time
assert sys.stderr.isatty()
for done in (10, 60, 100):
    for name, of in ("torch", 200), ("scipy", 20):
        if done < of or name == "torch":
            bar = f"{name:<20} ------------------------------ {done:>6.2f} MiB/{of:.2f} MiB"
            print(bar, end="\\x1b[1A\\x1b[2K", file=sys.stderr, flush=True)
    time.sleep(0.2)
print("\\r\\nerror: the last words", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def test_progress_says_seconds_bytes_of_how_many_and_the_package(setting_up, monkeypatch, capsys):
    monkeypatch.setattr(setting_up.commands, "SECONDS", 0)
    # Only what was redrawn lately is in flight.
    monkeypatch.setattr(setting_up.commands, "WINDOW", 100)
    setting_up.commands.watch([sys.executable, "-c", FAKE_UV, "0"], 500)
    # A line may come before the first bar is whole.
    lines = [line for line in capsys.readouterr().out.splitlines() if "of 500 MB" in line]
    line = re.compile(r"    \d s: [\d.]+ of 500 MB(; (torch|scipy): [\d.]+ of [\d.]+ MB)?")
    assert all(map(line.fullmatch, lines)), lines
    # 20 MiB of scipy that are no longer drawn are there, 100 MiB of torch are on their way.
    assert any(line.endswith("s: 126 of 500 MB; torch: 104.9 of 209.7 MB") for line in lines), lines


def test_a_watched_command_that_fails_gives_its_last_words(setting_up):
    with pytest.raises(setting_up.commands.Failed, match="error: the last words"):
        setting_up.commands.watch([sys.executable, "-c", FAKE_UV, "3"], 0)


def test_make_takes_the_first_python_that_runs(tmp_path):
    for name, code in ("python3.11", 127), ("python3.12", 0), ("python3.13", 0):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    variables = {
        key: value for key, value in os.environ.items() if key not in ("PYTHON", "MAKEFLAGS", "MAKEOVERRIDES")
    }
    variables["PATH"] = f"{tmp_path}{os.pathsep}{variables['PATH']}"
    command = [shutil.which("make"), "-n", "--no-print-directory", "environment"]
    outcome = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert outcome.stdout == "python3.12 tools/environment.py\n", outcome.stderr


@pytest.mark.parametrize("file", sorted(ROOT.glob("requirements*.txt")), ids=lambda file: file.name)
def test_requirements_are_exact(file):
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r'[\w.-]+==[\w.]+( ; \w+ == "[\w.]+")?', line), line
