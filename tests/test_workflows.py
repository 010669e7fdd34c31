"""The workflows of GitHub: actions pinned by commit, and commands that exist."""

from __future__ import annotations

import re

import pytest
import yaml

from tools import build

ROOT = build.ROOT
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


def test_one_workflow_publishes_what_was_tested_and_one_opens_an_issue_when_colab_fails():
    book, colab = (next(path for path in WORKFLOWS if path.stem == name) for name in ("book", "colab"))
    publish = yaml.safe_load(book.read_text(encoding="utf-8"))["jobs"]["publish"]
    assert publish["needs"] == "test" and "refs/heads/main" in publish["if"]
    (report,) = [step for step in steps(colab) if "gh issue create" in step.get("run", "")]
    assert "failure()" in report["if"]
    assert yaml.safe_load(colab.read_text(encoding="utf-8"))["permissions"]["issues"] == "write"
