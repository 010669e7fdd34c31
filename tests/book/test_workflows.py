"""The workflows of GitHub: actions pinned by commit, and commands that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from tools import build, colab_check, environment
from tools.address import Address

ROOT = build.ROOT
BOOK = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text(encoding="utf-8"))
MAIN = f"refs/heads/{Address.load().branch}"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def steps(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@each_workflow
def test_actions_are_pinned_by_commit_and_say_which_version_that_is(path):
    uses = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), action


@each_workflow
def test_commands_are_those_of_the_repository(path):
    run = "\n".join(step.get("run", "") for step in steps(path))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"\bmake ([a-z-]+)", run)) <= targets
    for script in re.findall(r"\btools/\w+\.py", run):
        assert (ROOT / script).is_file()


def test_a_push_is_tested_with_a_browser_and_as_on_colab():
    # YAML reads the key `on` as true.
    assert "push" in BOOK[True]
    run = {
        name: [step["run"] for step in job["steps"] if "run" in step] for name, job in BOOK["jobs"].items()
    }
    assert run["test"] == ["chromium --version", "make test", "make notebooks"]
    assert run["colab"] == ["make check-colab"]


def test_the_package_is_tested_on_three_systems_with_two_versions_of_python_and_without_make():
    unit = BOOK["jobs"]["unit"]
    strategy = unit["strategy"]
    assert strategy["matrix"] == {
        "os": ["ubuntu-latest", "windows-latest", "macos-latest"],
        "python": ["3.11", "3.13"],
    }
    # One that fails does not hide what the others say.
    assert strategy["fail-fast"] is False and unit["runs-on"] == "${{ matrix.os }}"
    (python,) = [step["with"]["python-version"] for step in unit["steps"] if "python" in step.get("uses", "")]
    assert python == "${{ matrix.python }}"
    run = [step["run"] for step in unit["steps"] if "run" in step]
    # What every shell understands, the Windows one too, and the same steps that `make` takes.
    for command in run:
        assert re.fullmatch(r"python -m [\w ./-]+", command), command
    for _, file, arguments in environment.STEPS:
        assert f"python -m pip install {' '.join(arguments)}" in run, file
    assert run[-1].startswith("python -m pytest --unit")


def test_the_unit_tests_leave_out_what_needs_the_book_or_its_tools():
    files = ["tests/geometry/test_mds.py", "tests/book/test_site.py", "tests/book/test_build.py"]
    command = [sys.executable, "-m", "pytest", "--unit", "--collect-only", "-q", "-p", "no:cacheprovider"]
    outcome = subprocess.run([*command, "tests"], cwd=ROOT, capture_output=True, text=True)
    found = set(re.findall(r"^(tests/[\w/]+\.py)::", outcome.stdout, re.M))
    assert [file in found for file in files] == [True, False, False], outcome.stdout + outcome.stderr
    for file in found:
        # The package, and at most the tools that compute its data or open a browser.
        text = (ROOT / file).read_text(encoding="utf-8")
        assert set(re.findall(r"^from tools import (\w+)", text, re.M)) <= {
            "check_site", "make_accuracy_results", "make_mlm_results"
        }, file  # fmt: skip


def test_colab_runs_weekly_in_its_own_image_with_options_that_the_check_has(capsys):
    path = ROOT / ".github" / "workflows" / "colab.yml"
    (trigger,) = yaml.safe_load(path.read_text(encoding="utf-8"))[True]["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", trigger["cron"])
    (command,) = [step["run"] for step in steps(path) if "docker run" in step.get("run", "")]
    assert "us-docker.pkg.dev/colab-images/public/runtime" in command
    (options,) = re.findall(r"colab_check\.py ([^\"]*)\"", command)
    with pytest.raises(SystemExit):
        colab_check.main([*options.split(), "--help"])
    assert options in capsys.readouterr().out
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8").split()
    assert set(re.findall(r"\S+==\S+", command)) <= set(pins)


def test_dependabot_looks_after_actions_and_packages():
    path = ROOT / ".github" / "dependabot.yml"
    updates = yaml.safe_load(path.read_text(encoding="utf-8"))["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}


def test_one_workflow_publishes_what_was_tested_and_one_opens_an_issue_when_colab_fails():
    for publish in (BOOK["jobs"]["publish"], BOOK["jobs"]["publish-notebooks"]):
        assert publish["needs"] == "test" and publish["if"] == f"github.ref == '{MAIN}'"
    colab = next(path for path in WORKFLOWS if path.stem == "colab")
    (report,) = [step for step in steps(colab) if "gh issue create" in step.get("run", "")]
    assert "failure()" in report["if"]
    assert yaml.safe_load(colab.read_text(encoding="utf-8"))["permissions"]["issues"] == "write"


def test_only_the_job_that_publishes_the_notebooks_may_write_to_the_repository():
    assert BOOK["permissions"] == {"contents": "read"}
    writers = [name for name, job in BOOK["jobs"].items() if "contents" in job.get("permissions", {})]
    assert writers == ["publish-notebooks"]
    assert BOOK["jobs"]["publish-notebooks"]["permissions"] == {"contents": "write"}


def test_the_notebooks_that_are_published_are_those_of_the_tested_build():
    tested, publishing = (BOOK["jobs"][name]["steps"] for name in ("test", "publish-notebooks"))
    always = [step for step in tested if "if" not in step]
    (kept,) = [step["with"] for step in always if "upload-artifact" in step.get("uses", "")]
    (taken,) = [step["with"] for step in publishing if "download-artifact" in step.get("uses", "")]
    assert kept["name"] == taken["name"] and kept["path"] == taken["path"]
    assert kept["path"] == build.Book().reading_copies.relative_to(ROOT).as_posix()


@pytest.mark.skipif(sys.platform == "win32", reason="the step is for bash on Linux")
def test_publishing_puts_the_notebooks_alone_into_their_branch_twice_over(tmp_path):
    (step,) = [step for step in BOOK["jobs"]["publish-notebooks"]["steps"] if "run" in step]

    def git(*arguments, folder=tmp_path / "checkout"):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        outcome = subprocess.run(
            ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
        )
        return outcome.stdout.splitlines()

    git("init", "-q", "--bare", "origin.git", folder=tmp_path)
    git("clone", "-q", "origin.git", "checkout", folder=tmp_path)
    copies = tmp_path / "checkout" / "_build" / "notebooks"
    copies.mkdir(parents=True)
    for name in ("address.yml", ".gitignore"):
        (tmp_path / "checkout" / name).write_bytes((ROOT / name).read_bytes())
    git("add", ".")
    git("commit", "-q", "-m", "sources")
    git("push", "-q", "origin", f"HEAD:{MAIN}")
    branch = Address.load().notebooks_branch
    for number in (1, 2):
        for old in copies.iterdir():
            old.unlink()
        (copies / f"0{number}_a.ipynb").write_text(json.dumps({"number": number}), encoding="utf-8")
        given = {key: text.replace("${{ runner.temp }}", str(tmp_path)) for key, text in step["env"].items()}
        (tmp_path / "notebooks-index").unlink(missing_ok=True)
        subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=tmp_path / "checkout",
            env=os.environ | given | {"GITHUB_SHA": "0123abc"},
            check=True,
            capture_output=True,
        )
        origin = tmp_path / "origin.git"
        assert git("ls-tree", "-r", "--name-only", branch, folder=origin) == [f"0{number}_a.ipynb"]
        assert git("log", "--format=%s", branch, folder=origin) == [
            "The notebooks of 0123abc, with their outputs"
        ]
        assert git("log", "--format=%s", MAIN, folder=origin) == ["sources"]
    assert git("status", "--short") == []
