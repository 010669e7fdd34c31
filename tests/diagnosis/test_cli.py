"""The command: one report from every kind of input, and the manners of a command-line tool."""

from __future__ import annotations

import array
import csv
import gzip
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posgeom.diagnosis import cli
from tests.corpora_for_tests import arc_texts

if sys.platform != "win32":
    import fcntl
    import pty
    import termios

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="signals to a child, named pipes and terminals are those of POSIX"
)
ROOT = Path(__file__).parents[2]
TEXTS = [f'{text}, "quoted", naïve\ttab' for text in arc_texts(120, 9, -0.5)]
OWN = ("command", "name", "sources", "format")


def run(*arguments, capsys) -> tuple[int, str, str]:
    status = cli.main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    return status, seen.out, seen.err


def child(*arguments, interruptible: bool = True, **options) -> subprocess.Popen:
    """The command in a process of its own. A child inherits that SIGINT is ignored, as the shell of a
    script has it for what it starts in the background; whether this one is, the test says."""
    disposition = signal.SIG_DFL if interruptible else signal.SIG_IGN
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-m", "posgeom", *map(str, arguments)],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        env=environment,
        preexec_fn=None if sys.platform == "win32" else lambda: signal.signal(signal.SIGINT, disposition),
        **options,
    )


def numbers(report: str) -> dict:
    """A report without what names its file."""
    held = json.loads(report)
    for part in (held, held["read"], held["settings"]):
        for name in OWN:
            part.pop(name, None)
    return held


def as_csv(texts) -> str:
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["id", "text", "label"])
    writer.writerows((k, text, "NaN") for k, text in enumerate(texts))
    return table.getvalue()


def as_jsonl(texts) -> str:
    return "".join(json.dumps({"text": text, "label": None}) + "\n" for text in texts)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def write_parquet(path: Path, texts, **more) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": texts} | more), path, row_group_size=50)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict:
    path = write(tmp_path_factory.mktemp("plain") / "corpus.txt", "\n".join(TEXTS) + "\n")
    with (path.parent / "out").open("w+") as out:
        process = child("stress", path, "--json", "--tokenizer", "whitespace", stdout=out)
        assert process.wait() == 0
        out.seek(0)
        return numbers(out.read())


# --- one corpus, one report -----------------------------------------------------------------------------

FILES = {
    "corpus.txt": "\n".join(TEXTS),
    "corpus.txt.gz": "\r\n".join(TEXTS) + "\r\n",
    "corpus.csv": as_csv(TEXTS),
    "corpus.CSV.GZ": as_csv(TEXTS),
    "corpus.jsonl": as_jsonl(TEXTS),
    "corpus.jsonl.gz": as_jsonl(TEXTS),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_report(name, tmp_path, plain, capsys):
    raw = FILES[name].encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.lower().endswith(".gz") else raw)
    status, out, err = run("stress", path, "--json", "--tokenizer", "whitespace", capsys=capsys)
    assert (status, err) == (0, "")
    assert numbers(out) == plain


def test_parquet_gives_the_same_report(tmp_path, plain, capsys):
    path = write_parquet(tmp_path / "corpus.parquet", TEXTS)
    status, out, _ = run("stress", path, "--json", "--tokenizer", "whitespace", capsys=capsys)
    assert status == 0 and numbers(out) == plain


def test_a_folder_is_its_files_in_the_order_of_their_paths(tmp_path, plain, capsys):
    write(tmp_path / "b" / "second.csv", as_csv(TEXTS[40:80]))
    write(tmp_path / "a.txt.gz", "\n".join(TEXTS[:40]))
    write_parquet(tmp_path / "c.parquet", TEXTS[80:])
    write(tmp_path / ".hidden.txt", "not this\n")
    write(tmp_path / ".git" / "x.txt", "nor this\n")
    write(tmp_path / "README.md", "nor this\n")
    status, out, _ = run("stress", tmp_path, "--json", "--tokenizer", "whitespace", capsys=capsys)
    assert status == 0 and numbers(out) == plain
    assert json.loads(out)["read"]["sources"] == ["a.txt.gz", "b/second.csv", "c.parquet"]


@pytest.mark.parametrize("kind", ["txt", "csv", "jsonl", "gz", "parquet"])
def test_standard_input_gives_the_same_report(kind, tmp_path, plain):
    content = {"txt": "\n".join(TEXTS), "csv": as_csv(TEXTS), "jsonl": as_jsonl(TEXTS), "gz": as_csv(TEXTS)}
    path = (
        write_parquet(tmp_path / "x.parquet", TEXTS)
        if kind == "parquet"
        else write(tmp_path / f"x.{kind}", content[kind])
    )
    say = {"csv": ["--format", "csv"], "gz": ["--format", "csv"], "jsonl": ["--format", "jsonl"]}.get(
        kind, []
    )
    with path.open("rb") as stream:
        process = child("stress", "-", "--json", "--tokenizer", "whitespace", *say, stdin=stream)
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert numbers(out) == plain


@posix
def test_a_pipe_with_a_name_is_read_too(tmp_path, plain):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = child("stress", pipe, "--json", "--tokenizer", "whitespace")
    pipe.write_text("\n".join(TEXTS))
    out, _ = process.communicate()
    assert process.returncode == 0 and numbers(out) == plain


def test_the_hub_s_library_gives_the_same_report(tmp_path, plain, capsys):
    pytest.importorskip("datasets")
    write_parquet(tmp_path / "train.parquet", TEXTS)
    status, out, _ = run(
        "stress", f"hf:{tmp_path}:text", "--json", "--tokenizer", "whitespace", capsys=capsys
    )
    assert status == 0 and numbers(out) == plain


def test_a_cluster_gives_the_same_report(cluster, tmp_path, plain, capsys):
    path = write(tmp_path / "corpus.csv.gz", as_csv(TEXTS))
    there = ["--dask", cluster.scheduler_address]
    status, out, err = run("stress", path, *there, "--json", "--tokenizer", "whitespace", capsys=capsys)
    assert (status, err) == (0, "")
    assert numbers(out) == plain
    both = ["compare", path, path, "--json", "--tokenizer", "whitespace"]
    reports = [run(*both, *options, capsys=capsys) for options in ([], there)]
    assert reports[0] == reports[1] and reports[0][0] == 0


def test_whole_files_are_texts(tmp_path, plain, capsys):
    for number, text in enumerate(TEXTS):
        write(tmp_path / f"{number:03}.txt", text.replace(", ", ",\n"))
    status, out, _ = run(
        "stress", tmp_path, "--whole-files", "--json", "--tokenizer", "whitespace", capsys=capsys
    )
    assert status == 0
    assert json.loads(out)["counts_sha256"] == plain["counts_sha256"]


def test_a_column_by_name(tmp_path, plain, capsys):
    write(tmp_path / "x.csv", as_csv(TEXTS).replace("id,text,label", "text,my words,label"))
    status, out, _ = run(
        "stress",
        tmp_path / "x.csv",
        "--column",
        "my words",
        "--json",
        "--tokenizer",
        "whitespace",
        capsys=capsys,
    )
    assert status == 0 and json.loads(out)["counts_sha256"] == plain["counts_sha256"]


def test_a_corpus_by_name_without_a_flag(capsys):
    status, out, err = run("stress", "rotten_tomatoes", capsys=capsys)
    assert (status, err) == (0, "")
    for words in (
        "n = 24 (chosen",
        "4,583, which have all of them",
        "RECOMMENDATION",
        "made by: posgeom stress",
    ):
        assert words in out


def test_a_tokenizer_from_a_folder_needs_no_network(tmp_path, capsys):
    from posgeom.counts.tokens import load_tokenizer

    load_tokenizer().save(str(tmp_path / "tokenizer.json"))
    write(tmp_path / "x.txt", "\n".join(TEXTS))
    digests = []
    for name in (tmp_path, "bert-base-uncased"):
        status, out, _ = run("stress", tmp_path / "x.txt", "--tokenizer", name, "--json", capsys=capsys)
        assert status == 0
        digests.append(json.loads(out)["counts_sha256"])
    assert digests[0] == digests[1]


# --- output ---------------------------------------------------------------------------------------------


def test_the_html_file_is_written_whole_and_nothing_else(tmp_path, capsys):
    corpus = write(tmp_path / "in" / "x.txt", "\n".join(TEXTS))
    target = write(tmp_path / "out" / "report.html", "old")
    status, out, err = run("stress", corpus, "--tokenizer", "whitespace", "--html", target, capsys=capsys)
    assert (status, err) == (0, "") and "RECOMMENDATION" in out
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


@posix
def test_progress_on_a_terminal_and_none_in_a_pipe(tmp_path):
    corpus = write(tmp_path / "x.txt", "\n".join(TEXTS * 30))
    for quiet in ([], ["--quiet"]):
        main, side = pty.openpty()
        process = child("stress", corpus, "--tokenizer", "whitespace", *quiet, stderr=side)
        os.close(side)
        out = process.stdout.read().decode()
        seen = b""
        try:
            while block := os.read(main, 4096):
                seen += block
        except OSError:
            pass
        os.close(main)
        assert process.wait() == 0 and "RECOMMENDATION" in out and "\x1b" not in out
        if quiet:
            assert seen == b""
        else:
            assert b"reading" in seen and b"measuring" in seen and seen.endswith(b"\r\x1b[K")
    process = child("stress", corpus, "--tokenizer", "whitespace")
    assert process.communicate()[1] == b""


def test_rate_and_time_left_by_hand():
    progress = cli._Progress(cli._parser().parse_args(["stress", "x"]))
    assert progress.line("reading", 0.25, 3000, 2.0) == "reading  3,000 texts  1,500/s  25%  0:06 left"
    assert progress.line("reading", None, 3000, 2.0) == "reading  3,000 texts  1,500/s"
    assert progress.line("measuring", 0.5, 7, 3700.0) == "measuring  50%  1:01:40 left"
    # Going on from 2,000 texts at 20 %: the rate is that of this run.
    progress.first_share, progress.first_texts = 0.2, 2000
    assert progress.line("reading", 0.4, 3000, 2.0) == "reading  3,000 texts  500/s  40%  0:06 left"


def test_a_reader_who_leaves_is_no_error(tmp_path):
    corpus = write(tmp_path / "x.txt", "\n".join(TEXTS))
    process = child("stress", corpus, "--tokenizer", "whitespace", "--json")
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait() == cli.BROKEN_PIPE and err == b""


# --- wrong usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: COMMAND"),
        (["stress"], "required: FILE"),
        (["strain", "x"], "invalid choice: 'strain'"),
        (["stress", "x", "-n", "0"], "argument -n: must be at least 3, not 0"),
        (["stress", "x", "-n", "-5"], "argument -n: must be at least 3, not -5"),
        (["stress", "x", "-n", "two"], "argument -n: 'two' is not an integer"),
        (["stress", "x", "-n", "9999"], "argument -n: must be at most 8192"),
        (["stress", "x", "--shuffles", "5"], "must be at least 19"),
        (["stress", "x", "--format", "xml"], "invalid choice: 'xml'"),
        (["stress", "x", "--no-such-option"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    seen = capsys.readouterr()
    assert ended.value.code == 2 and message in seen.err and seen.out == ""


def test_help_and_version(capsys):
    for arguments, words in (
        (["--help"], "exit status"),
        (["--version"], "posgeom 0."),
        (["stress", "-h"], "-n N"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0 and words in capsys.readouterr().out


def test_the_entry_point_is_the_command():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^\[project\.scripts\]\nposgeom = "posgeom\.diagnosis\.cli:main"$', project, re.M)
    if shutil.which("posgeom"):
        assert subprocess.run(["posgeom", "--version"], capture_output=True).returncode == 0


# --- interruption ---------------------------------------------------------------------------------------


def feed(process, lines: list[str]) -> None:
    """Write lines to a child, and wait until it has read them."""
    process.stdin.write("".join(f"{line}\n" for line in lines).encode())
    process.stdin.flush()
    waiting = array.array("i", [1])
    while waiting[0]:
        time.sleep(0.1)
        fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
    time.sleep(0.5)


LONG = arc_texts(9000, 9, -0.5, rng=3)
# What a child has read may wait in its buffers, less than two batches; of so many, some are counted.
FED = 8000


@posix
@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_goes_on_and_counts_no_text_twice(number, status, tmp_path):
    target = tmp_path / "report.html"
    command = ["stress", "-", "--tokenizer", "whitespace", "--html", target, "--json"]
    process = child(*command, stdin=subprocess.PIPE)
    feed(process, LONG[:FED])
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out) == (status, b"")
    assert err.startswith(b"posgeom: ") and err.count(b"\n") == 1 and b"goes on from there" in err
    assert [path.name for path in tmp_path.iterdir()] == ["report.html.state"]

    process = child(*command, stdin=subprocess.PIPE)
    out, err = process.communicate("\n".join(LONG).encode())
    assert (process.returncode, err) == (0, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    process = child(*command[:4], "--json", stdin=subprocess.PIPE)
    whole, _ = process.communicate("\n".join(LONG).encode())
    assert json.loads(out) == json.loads(whole)
    assert json.loads(out)["read"]["texts"] == len(LONG)


@posix
def test_where_interruptions_are_ignored_sigterm_ends_it_and_keeps_the_counts(tmp_path):
    command = ["stress", "-", "--tokenizer", "whitespace", "--state", tmp_path / "state"]
    process = child(*command, stdin=subprocess.PIPE, interruptible=False)
    feed(process, LONG[:FED])
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == cli.TERMINATED and b"goes on from there" in err
    assert (tmp_path / "state").exists()


@posix
@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("ignored", [True, False])
def test_a_long_count_says_how_it_is_ended_where_interruptions_are_ignored(
    ignored, kept, quiet, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cli, "LONG_SECONDS", 0.0)
    corpus = write(tmp_path / "x.txt", "\n".join(LONG[:3000]))
    state = ["--state", tmp_path / "state"] if kept else []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        status, _, err = run("stress", corpus, "--tokenizer", "whitespace", *state, *quiet, capsys=capsys)
        assert (signal.getsignal(signal.SIGINT) is signal.SIG_IGN) == ignored
    finally:
        signal.signal(signal.SIGINT, before)
    assert status == 0
    if ignored and kept and not quiet:
        assert err.count("\n") == 1 and f"kill {os.getpid()} (SIGTERM) ends it and keeps the counts" in err
    else:
        assert err == ""


def dask(*arguments) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, arguments), "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@posix
def test_a_scheduler_that_goes_leaves_the_counts(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    texts = LONG * 3
    command = ["stress", "-", "--tokenizer", "whitespace", "--json"]
    scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2])
    worker = dask("worker", address, "--nthreads", "1", "--no-nanny")
    try:
        process = child(*command, "--state", tmp_path / "state", "--dask", address, stdin=subprocess.PIPE)
        feed(process, texts[:20_000])
        scheduler.kill()
        out, err = process.communicate("\n".join(texts[20_000:]).encode())
    finally:
        for helper in (scheduler, worker):
            helper.kill()
            helper.wait()
    assert (process.returncode, out) == (1, b"")
    gone = f"posgeom: the scheduler at {address} has gone; the counts so far are in {tmp_path / 'state'}: "
    assert err.decode() == gone + "the same command goes on from there\n"

    reports = []
    for state in (["--state", tmp_path / "state"], []):
        process = child(*command, *state, stdin=subprocess.PIPE)
        out, _ = process.communicate("\n".join(texts).encode())
        assert process.returncode == 0 and json.loads(out)["read"]["texts"] == len(texts)
        reports.append(out)
    assert reports[0] == reports[1] and not (tmp_path / "state").exists()


def interrupted(tmp_path) -> list:
    command = ["stress", "-", "--tokenizer", "whitespace", "--state", tmp_path / "state", "--json"]
    process = child(*command, stdin=subprocess.PIPE)
    feed(process, LONG[:FED])
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert (tmp_path / "state").exists()
    return command


@posix
def test_a_state_of_other_texts_is_refused_and_kept(tmp_path):
    command = interrupted(tmp_path)
    held = (tmp_path / "state").read_bytes()
    for texts, more, message in (
        (LONG[1:], [], b"was written for another content"),
        (LONG[:1000], [], b"holds 1,000"),
        (LONG, ["-n", "5"], b"another n"),
    ):
        process = child(*command, *more, stdin=subprocess.PIPE)
        out, err = process.communicate("\n".join(texts).encode())
        assert (process.returncode, out) == (1, b"") and message in err and err.count(b"\n") == 1
        assert (tmp_path / "state").read_bytes() == held


def test_killed_without_warning_it_goes_on_from_the_last_state(tmp_path, monkeypatch):
    from posgeom.diagnosis import measures as diagnostic
    from posgeom.diagnosis import reading

    texts = arc_texts(5000, 9, -0.5)
    state = tmp_path / "state"
    monkeypatch.setattr(reading, "STATE_SECONDS", 0.0)

    class Killed(BaseException):
        pass

    def kill(stage, share, texts):
        # A copy of the state is what a machine that loses its power would leave.
        if texts >= 3000 and not (tmp_path / "copy").exists():
            shutil.copy(state, tmp_path / "copy")
            raise Killed

    with pytest.raises(Killed):
        diagnostic.diagnose(texts, tokenizer="whitespace", state=state, progress=kill)
    (tmp_path / "copy").replace(state)
    read = []
    found = diagnostic.diagnose(
        texts, tokenizer="whitespace", state=state, progress=lambda stage, share, texts: read.append(texts)
    )
    assert read[0] >= 1024
    assert found.counts == diagnostic.diagnose(texts, tokenizer="whitespace").counts
    assert not state.exists()


# --- two corpora ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("two")
    return (
        write(folder / "early.txt", "\n".join(arc_texts(1500, 12, -1.0, rng=1))),
        write(folder / "even.csv", as_csv(arc_texts(1200, 14, 1.0, rng=2))),
    )


def test_two_corpora_side_by_side(two, tmp_path, capsys):
    html = tmp_path / "both.html"
    status, out, err = run("compare", *two, "--tokenizer", "whitespace", "--html", html, capsys=capsys)
    assert (status, err) == (0, "")
    assert "n = 12 positions" in out and "larger in B" in out and "Another fixed scheme fits best" in out
    assert "A: " in out and "made by: posgeom compare" in out
    page = html.read_text(encoding="utf-8")
    assert page.endswith("</html>\n") and "larger in B" in page and page.count("<img") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["both.html"]


def test_each_side_of_a_comparison_is_its_own_diagnosis(two, capsys):
    _, out, _ = run("compare", *two, "--tokenizer", "whitespace", "--json", capsys=capsys)
    both = json.loads(out)
    for side, path in zip(("first", "second"), two, strict=True):
        _, alone, _ = run("stress", path, "-n", 12, "--tokenizer", "whitespace", "--json", capsys=capsys)
        own, alone = numbers(json.dumps(both[side])), numbers(alone)
        # That n was asked for shows, and how far the account of lengths goes.
        for held in (own, alone):
            held["settings"].pop("n")
            held["read"].pop("reaching")
        assert own == alone
    difference = both["difference"]["exponent"]
    exponents = [both[side]["power_line_exponent"]["value"] for side in ("first", "second")]
    assert difference["value"] == pytest.approx(exponents[1] - exponents[0])
    assert difference["low"] > 1.5 and difference["high"] < 2.5
    assert len(both["squared_distance_between_laws"]) == 12 and not both["same_texts"]


def test_a_corpus_and_itself_do_not_differ(two, capsys):
    _, out, _ = run("compare", two[0], two[0], "--tokenizer", "whitespace", "--json", capsys=capsys)
    both = json.loads(out)
    assert both["same_texts"] and both["corrected_distances"]["stress"] == pytest.approx(0, abs=1e-12)
    for name in ("exponent", "noise_share"):
        assert both["difference"][name]["value"] == 0
    # Corrected for two samples of one law, equal counts lie below what chance would make of them.
    assert max(both["squared_distance_between_laws"]) <= 0


def test_one_corpus_at_two_tokenizers(two, capsys):
    names = ("--tokenizer", "bert-base-uncased", "--tokenizer", "whitespace")
    status, out, _ = run("compare", two[0], *names, "--json", capsys=capsys)
    both = json.loads(out)
    assert status == 0 and both["same_texts"] and both["squared_distance_between_laws"] is None
    assert [both[side]["read"]["tokenizer"] for side in ("first", "second")] == [names[1], names[3]]
    assert both["command"].endswith(" ".join(names))
    status, out, _ = run("compare", two[0], *names, capsys=capsys)
    assert "A: bert-base-uncased" in out and "A and B are the same texts." in out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["x"], "give a second corpus, or --tokenizer twice"),
        (["x", "y", "--tokenizer", "a", "--tokenizer", "b", "--tokenizer", "c"], "can be given twice"),
        (["-", "-"], "standard input can be read once only"),
        (["-", "--tokenizer", "a", "--tokenizer", "b"], "standard input can be read once only"),
    ],
)
def test_comparisons_that_make_no_sense(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", *arguments])
    assert ended.value.code == 2 and message in capsys.readouterr().err


# --- the chapter ----------------------------------------------------------------------------------------


def test_the_chapter_makes_the_same_report(tmp_path, monkeypatch, capsys):
    import nbformat
    import papermill

    corpus = write(tmp_path / "reviews.csv", as_csv(TEXTS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    chapter = nbformat.read(ROOT / "notebooks" / "12_your_corpus.ipynb", as_version=4)
    # The report of the chapter; what follows explains it.
    last = [cell.id for cell in chapter.cells].index("diagnose")
    chapter.cells = chapter.cells[: last + 1]
    nbformat.write(chapter, tmp_path / "chapter.ipynb")
    parameters = {"corpus": "reviews.csv", "tokenizer": "whitespace", "report_file": "chapter.html"}
    run_of = papermill.execute_notebook(
        "chapter.ipynb", "out.ipynb", parameters, kernel_name="python3", progress_bar=False
    )
    (printed,) = (output.text for output in run_of.cells[-1].outputs if output.output_type == "stream")
    status, out, _ = run(
        "stress", "reviews.csv", "--tokenizer", "whitespace", "--html", "command.html", capsys=capsys
    )
    assert status == 0 and corpus.exists()
    assert printed == out + "\n"
    assert (tmp_path / "chapter.html").read_bytes() == (tmp_path / "command.html").read_bytes()
