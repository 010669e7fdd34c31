"""The workflows of GitHub: actions pinned by commit, and commands that exist."""

from __future__ import annotations

import re

import pytest
import yaml

from tools import build, colab_check
from tools.address import Address

ROOT = build.ROOT
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
    book = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text(encoding="utf-8"))
    # YAML reads the key `on` as true.
    assert "push" in book[True]
    run = {
        name: [step["run"] for step in job["steps"] if "run" in step] for name, job in book["jobs"].items()
    }
    assert run["test"] == ["chromium --version", "make test"]
    assert run["colab"] == ["make check-colab"]


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
    book, colab = (next(path for path in WORKFLOWS if path.stem == name) for name in ("book", "colab"))
    publish = yaml.safe_load(book.read_text(encoding="utf-8"))["jobs"]["publish"]
    assert publish["needs"] == "test" and MAIN in publish["if"]
    (report,) = [step for step in steps(colab) if "gh issue create" in step.get("run", "")]
    assert "failure()" in report["if"]
    assert yaml.safe_load(colab.read_text(encoding="utf-8"))["permissions"]["issues"] == "write"
