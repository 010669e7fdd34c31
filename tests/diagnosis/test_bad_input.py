"""Malformed input: one clear line on standard error, or the right answer, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posbook.record import record
from posgeom import figures
from posgeom.corpora.named import CorpusError, load_corpus
from posgeom.counts.positions import PositionalCounts
from posgeom.counts.tokens import encode, load_tokenizer
from posgeom.diagnosis import cli
from tests.corpora_for_tests import arc_texts

TEXTS = arc_texts(40, 8, -0.5)
LINES = "\n".join(TEXTS).encode()
WHITESPACE = ("--tokenizer", "whitespace")
MEGABYTE = b"word " * (1 << 18)

# name of the file, its bytes, more arguments, what the one line says
BAD_FILES = {
    "empty file": ("x.txt", b"", (), "is an empty corpus: it holds no text"),
    "byte order mark alone": ("x.txt", b"\xef\xbb\xbf", (), "is an empty corpus"),
    "empty lines only": ("x.txt", b"\n\n \n\t\r\n", (), "is an empty corpus: it holds no text (4 are blank)"),
    "one text": ("x.txt", b"one text only here\n", (), "holds one text only"),
    "one token": ("x.txt", b"word", (), "holds one text only"),
    "texts of one token": ("x.txt", b"a\nb\nc\n", (), "fewer than half of the 3 texts have 3 tokens"),
    "all texts equal": ("x.txt", b"the same words here\n" * 20, (), "all 20 texts of"),
    "latin-1": ("x.txt", LINES + b"\ncaf\xe9 au lait\n", (), "line 41: byte 0xE9 is not UTF-8"),
    "cp1252 quotes": ("x.csv", b"text\n\x93quoted\x94 text\n", (), "line 2: byte 0x93 is not UTF-8"),
    "utf-16 with its mark": ("x.txt", "a b c\n".encode("utf-16"), (), "line 1: the file is UTF-16"),
    "utf-16 without a mark": ("x.txt", "a b c\nd e f\n".encode("utf-16-le"), (), "line 1: a NUL byte"),
    "cut inside a letter": ("x.txt", "a b c\nd e é".encode()[:-1], (), "line 2: byte 0xC3 is not UTF-8"),
    "half of a surrogate pair": (
        "x.jsonl",
        b'{"text": "a \\ud800 b"}\n',
        (),
        "line 1: 'text' holds half of a",
    ),
    "binary file": ("x.txt", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 9, (), "line 3: a NUL byte"),
    "NUL in a line": ("x.txt", LINES + b"\na b\x00c d\n", (), "line 41: a NUL byte, which no text holds"),
    "NUL in a CSV": ("x.csv", b"text\na b c\nd \x00 e\n", (), "line 3: a NUL byte"),
    "one line of many megabytes": ("x.txt", MEGABYTE * 5, (), "line 1: longer than 4,194,304 bytes"),
    "a long line later": ("x.txt", b"a b c\n" + MEGABYTE * 5, (), "line 2: longer than 4,194,304 bytes"),
    "a huge field": (
        "x.csv",
        b'text\na b c\n"' + (MEGABYTE + b"\n") * 4 + b'"\n',
        (),
        "line 3: not a CSV record",
    ),
    "a quote that never closes": ("x.csv", b'text\n"a b c\nd e f\n', (), "line 2: not a CSV record"),
    "text after a quote": ("x.csv", b'text\n"a" b c\n', (), "line 2: not a CSV record"),
    "a field too many": (
        "x.csv",
        b"text,label\na b,1\nc,d,2\n",
        (),
        "line 3: 3 fields, but the header names 2",
    ),
    "a field too few": ("x.tsv", b"text\tlabel\na b\n", (), "line 2: 1 fields, but the header names 2"),
    "header alone": ("x.csv", b"text,label\n", (), "is an empty corpus"),
    "no column of texts": (
        "x.csv",
        b"id,body\n1,a b c\n",
        (),
        "no column 'text' or 'sentence'; the columns are 'id', 'body'. Name",
    ),
    "no such column": (
        "x.csv",
        b"text\na b c\n",
        ("--column", "body"),
        "no column 'body'; the columns are 'text'",
    ),
    "a column of a text file": (
        "x.txt",
        LINES,
        ("--column", "body"),
        "has one text a line and no column 'body'",
    ),
    "not JSON": ("x.jsonl", b'{"text": "a b c"}\n{text: "d"}\n', (), "line 2: not JSON"),
    "JSON that is no object": ("x.jsonl", b'["a b c"]\n', (), "line 1: expected an object with a 'text'"),
    "JSON number as text": ("x.jsonl", b'{"text": 3}\n', (), "line 1: 'text' must be a string, not int"),
    "JSON null as text": (
        "x.jsonl",
        b'{"text": null}\n',
        (),
        "line 1: 'text' must be a string, not NoneType",
    ),
    "JSON without the field": ("x.jsonl", b'{"body": "a"}\n', (), "line 1: no field 'text' or 'sentence'"),
    "JSON nested too deeply": (
        "x.jsonl",
        b'{"text": "a", "x": ' + b"[" * 200_000,
        (),
        "line 1: JSON nested too deeply",
    ),
    "JSON with a number too long": (
        "x.jsonl",
        b'{"text": "a", "x": ' + b"9" * 5000 + b"}",
        (),
        "line 1: not JSON that",
    ),
    "a whole JSON array": ("x.jsonl", b"[\n" + b'{"text": "a b c"},\n' * 3 + b"]\n", (), "line 1: not JSON"),
    "gzip cut off": ("x.txt.gz", gzip.compress(LINES)[:-20], (), "is not a whole gzip file"),
    "gzip in name only": ("x.csv.gz", b"text\na b c\n", (), "is not a whole gzip file"),
    "gzip with a wrong checksum": (
        "x.txt.gz",
        gzip.compress(LINES)[:-8] + b"\0" * 8,
        (),
        "is not a whole gzip file",
    ),
    "Parquet in name only": ("x.parquet", LINES, (), "is not a whole Parquet file"),
    "Parquet cut off": ("x.parquet", b"PAR1" + b"\0" * 50, (), "is not a whole Parquet file"),
    "empty Parquet": ("x.parquet", b"", (), "is not a whole Parquet file"),
    "unknown suffix": ("x.docx", b"PK", (), "unknown format; the name must end in .txt, .jsonl"),
    "no suffix": ("x", LINES, (), "unknown format"),
    "n larger than any text": (
        "x.txt",
        LINES,
        ("-n", "9"),
        "no text reaches position 8 (n = 9): the longest has 8",
    ),
    "n that one text has": ("x.txt", LINES + b" more", ("-n", "9"), "one text only reaches position 8"),
    "format that the file has not": ("x.txt", LINES, ("--format", "jsonl"), "line 1: not JSON"),
    "special tokens of white space": (
        "x.txt",
        LINES,
        ("--special-tokens", "keep"),
        "has no [CLS], which special tokens 'keep'",
    ),
    "state that is none": ("x.txt", LINES, ("--state", "x.txt"), "is the corpus itself"),
}


def stress(*arguments, capsys) -> tuple[int, str, str]:
    status = cli.main(["stress", *map(str, arguments)])
    seen = capsys.readouterr()
    return status, seen.out, seen.err


def one_line(status: int, out: str, err: str, message: str) -> None:
    assert status == 1 and out == ""
    assert message in err
    assert err.startswith("posgeom: ") and err.endswith("\n") and err.count("\n") == 1
    assert err[:-1].isprintable() and "Traceback" not in err


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_one_clear_line(case, tmp_path, monkeypatch, capsys):
    name, content, more, message = BAD_FILES[case]
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    found = stress(name, *WHITESPACE, "--html", "report.html", *more, capsys=capsys)
    one_line(*found, message)
    # Nothing half-written: neither a report nor a state nor a part of one.
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == content


def test_the_table_is_as_long_as_promised():
    assert len(BAD_FILES) >= 40


# --- what is odd and has a right answer -----------------------------------------------------------------

GOOD = {
    "mixed line ends": (
        "x.txt",
        b"\r\n".join(map(str.encode, TEXTS[:20])) + b"\r" + b"\n".join(map(str.encode, TEXTS[20:])),
    ),
    "carriage returns": ("x.txt", "\r".join(TEXTS).encode()),
    "byte order mark": ("x.txt", b"\xef\xbb\xbf" + LINES),
    "empty lines between": ("x.txt", "\n\n \n".join(TEXTS).encode()),
    "NaN labels": ("x.csv", ("label,text\n" + "".join(f"NaN,{text}\n" for text in TEXTS)).encode()),
    "no labels": ("x.csv", ("label,text\n" + "".join(f",{text}\n" for text in TEXTS)).encode()),
    "spaces around the names": ("x.csv", ("id, text \n" + "".join(f"1,{text}\n" for text in TEXTS)).encode()),
    "gzip without its suffix": ("x.txt", gzip.compress(LINES)),
    "gzip of two members": (
        "x.txt.gz",
        gzip.compress("\n".join(TEXTS[:9]).encode() + b"\n") + gzip.compress("\n".join(TEXTS[9:]).encode()),
    ),
    "NaN in JSON": (
        "x.jsonl",
        "".join(f'{{"text": {json.dumps(text)}, "label": NaN}}\n' for text in TEXTS).encode(),
    ),
    "upper-case suffix": ("X.TXT", LINES),
}


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> dict:
    from posgeom.diagnosis.measures import diagnose

    return diagnose(TEXTS, tokenizer="whitespace").as_dict()


@pytest.mark.parametrize("case", GOOD)
def test_what_is_odd_and_clear_gets_the_right_answer(case, tmp_path, right, capsys):
    name, content = GOOD[case]
    (tmp_path / name).write_bytes(content)
    status, out, err = stress(tmp_path / name, *WHITESPACE, "--json", capsys=capsys)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["counts_sha256"] == right["counts_sha256"]
    assert found["read"]["digest"] == right["read"]["digest"]


def test_nulls_of_a_parquet_file_are_blank_texts(tmp_path, right, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = [None, *TEXTS[:20], None, *TEXTS[20:]]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "x.parquet")
    status, out, _ = stress(tmp_path / "x.parquet", *WHITESPACE, "--json", capsys=capsys)
    found = json.loads(out)
    assert status == 0 and found["read"]["blank"] == 2
    assert found["counts_sha256"] == right["counts_sha256"]


@pytest.mark.parametrize(
    "column, message",
    [
        ([1, 2, 3], "holds int64, not strings"),
        ([["a"], ["b"]], "holds list<"),
    ],
)
def test_a_parquet_column_of_another_kind(column, message, tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "x.parquet")
    one_line(*stress(tmp_path / "x.parquet", *WHITESPACE, capsys=capsys), message)


HOSTILE = '\x1b[2J\x1b]0;title\x07<script>alert(1)</script>\u202e"'


def test_escapes_in_names_and_texts_reach_neither_terminal_nor_page(tmp_path, capsys):
    name = tmp_path / f"{HOSTILE.replace('/', '')}.csv"
    name.write_text(f'"{HOSTILE.replace(chr(34), chr(34) * 2)}",text\n1,a b c\n2,d e f\n', encoding="utf-8")
    one_line(*stress(name, "--column", "\x1b[31mred", *WHITESPACE, capsys=capsys), "no column")
    name.write_text(
        "id,text\n" + "".join(f'1,"{HOSTILE.replace(chr(34), "")} {text}"\n' for text in TEXTS),
        encoding="utf-8",
    )
    status, out, err = stress(name, *WHITESPACE, "--html", tmp_path / "r.html", capsys=capsys)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert status == 0 and err == ""
    for shown in (out, page):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page


# --- what is no file ------------------------------------------------------------------------------------


def test_places_where_there_is_no_corpus(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "readme.md").write_text("a b c")
    (tmp_path / "file.txt").write_bytes(LINES)
    for corpus, message in (
        (tmp_path / "missing.csv", "there is no such file"),
        ("nosuchname", "there is no such file; the corpora by name: imdb"),
        (tmp_path / "file.txt" / "below.txt", "there is no such file"),
        (tmp_path / "empty", "is a folder without a file of texts"),
        (tmp_path / "docs", "is a folder without a file of texts"),
        ("", "is no path of a corpus"),
        ("x" * 5000 + ".txt", "File name too long"),
        ("hf:", "write hf:owner/name:column"),
        ("hf:owner/name", "write hf:owner/name:column"),
    ):
        one_line(*stress(corpus, *WHITESPACE, capsys=capsys), message)


def test_the_hub_without_its_library_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from posgeom.diagnosis.cli import main; sys.exit(main())"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, "stress", "hf:owner/name:text", *WHITESPACE],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    one_line(
        process.returncode, process.stdout, process.stderr, "needs the library datasets: pip install datasets"
    )


def test_parquet_without_its_library_says_what_to_install(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from posgeom.diagnosis.cli import main; sys.exit(main())"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, "stress", str(tmp_path / "x.parquet"), *WHITESPACE],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    one_line(
        process.returncode, process.stdout, process.stderr, "needs the library pyarrow: pip install pyarrow"
    )


def test_a_dataset_that_the_hub_has_not(tmp_path, capsys):
    pytest.importorskip("datasets")
    one_line(*stress(f"hf:{tmp_path}/none:text", *WHITESPACE, capsys=capsys), "the hub did not give it")


@pytest.fixture
def unprivileged():
    """Run as a user to whom permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions by chmod are those of POSIX")
def test_a_path_without_permission(tmp_path, capsys, request):
    corpus, closed = tmp_path / "x.txt", tmp_path / "closed"
    corpus.write_bytes(LINES)
    closed.mkdir()
    (closed / "x.txt").write_bytes(LINES)
    # The folders of pytest are closed to other users: open the way to these files alone.
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IXGRP)
    stress(corpus, *WHITESPACE, "--html", tmp_path / "warm.html", capsys=capsys)
    (tmp_path / "warm.html").unlink()
    corpus.chmod(0)
    closed.chmod(0)
    request.getfixturevalue("unprivileged")
    one_line(*stress(corpus, *WHITESPACE, capsys=capsys), "Permission denied")
    status, out, err = stress(closed / "x.txt", *WHITESPACE, capsys=capsys)
    assert (status, out) == (1, "") and err.count("\n") == 1
    html = tmp_path / "report.html"
    one_line(*stress("kjv", *WHITESPACE, "--html", html, capsys=capsys), "cannot be written: no permission")


def test_reports_that_cannot_be_written_are_told_before_the_work(tmp_path, capsys):
    corpus = tmp_path / "x.txt"
    corpus.write_bytes(LINES)
    (tmp_path / "folder").mkdir()
    for html, message in (
        (tmp_path / "folder", "is a folder: give the path of a file"),
        (tmp_path / "missing" / "report.html", "there is no folder"),
        (corpus, "is the corpus itself"),
    ):
        one_line(*stress(corpus, *WHITESPACE, "--html", html, capsys=capsys), message)
    assert corpus.read_bytes() == LINES and sorted(os.listdir(tmp_path)) == ["folder", "x.txt"]


def test_a_state_that_is_none_is_refused_and_kept(tmp_path, capsys):
    (tmp_path / "x.txt").write_bytes(LINES)
    (tmp_path / "state").write_bytes(b"something else")
    found = stress(tmp_path / "x.txt", *WHITESPACE, "--state", tmp_path / "state", capsys=capsys)
    one_line(*found, "is not the state of a count")
    assert (tmp_path / "state").read_bytes() == b"something else"


# --- tokenizers -----------------------------------------------------------------------------------------


def word_level(folder: Path, vocabulary: dict[str, int]) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_tokenizers_that_cannot_be_had(tmp_path, capsys):
    corpus = tmp_path / "x.txt"
    corpus.write_bytes(LINES)
    for name in ("none", "broken", "wrong"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    (tmp_path / "wrong" / "vocab.txt").write_text("a\nb\n")
    for tokenizer, message in (
        (tmp_path / "none", "is no tokenizer's folder"),
        (tmp_path / "broken", "is not a tokenizer that the library can read"),
        (tmp_path / "wrong", "is no BERT vocabulary: it has no [PAD]"),
        (corpus, "unknown tokenizer"),
        (tmp_path / "missing", "unknown tokenizer"),
        ("owner/no-such-tokenizer", "is no folder here, and the hub did not give it"),
        ("", "tokenizer must be a name or a folder"),
    ):
        one_line(*stress(corpus, "--tokenizer", tokenizer, capsys=capsys), message)


def test_a_tokenizer_without_cls(tmp_path, capsys):
    words = {word for text in TEXTS for word in text.split()}
    folder = word_level(tmp_path / "t", {"[UNK]": 0} | {word: k for k, word in enumerate(sorted(words), 1)})
    (tmp_path / "x.txt").write_bytes(LINES)
    found = stress(tmp_path / "x.txt", "--tokenizer", folder, "--special-tokens", "keep", capsys=capsys)
    one_line(*found, "has no [CLS], which special tokens 'keep' keep; use 'drop'")
    status, out, _ = stress(tmp_path / "x.txt", "--tokenizer", folder, capsys=capsys)
    assert status == 0 and "0.00% unknown" in out


def test_a_vocabulary_with_gaps_in_its_ids(tmp_path, right, capsys):
    words = sorted({word for text in TEXTS for word in text.split()})
    folder = word_level(tmp_path / "t", {"[UNK]": 0} | {word: 1000 * k for k, word in enumerate(words, 1)})
    (tmp_path / "x.txt").write_bytes(LINES)
    status, out, _ = stress(tmp_path / "x.txt", "--tokenizer", folder, "--json", capsys=capsys)
    found = json.loads(out)
    assert status == 0 and found["read"]["vocab_size"] == 1000 * len(words) + 1
    np.testing.assert_allclose(found["distances"]["plug_in"], right["distances"]["plug_in"], atol=1e-12)


# --- the program itself ---------------------------------------------------------------------------------


def test_a_traceback_with_debug_alone(tmp_path, capsys):
    for more, traced in (((), False), (("--debug",), True)):
        status, out, err = stress(tmp_path / "none.txt", *more, capsys=capsys)
        assert (status, out) == (1, "") and ("Traceback" in err) == traced


def test_a_fault_of_the_program_is_told_as_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "x.txt").write_bytes(LINES)

    def fault(*_, **__):
        raise ZeroDivisionError("not expected")

    monkeypatch.setattr("posgeom.diagnosis.report.as_text", fault)
    status, out, err = stress(tmp_path / "x.txt", *WHITESPACE, capsys=capsys)
    assert (status, out) == (70, "") and err.count("\n") == 1
    assert err.startswith("posgeom: a fault of the program (ZeroDivisionError: not expected)")


def test_a_full_disk_leaves_no_part_of_a_report(tmp_path, capsys):
    if shutil.which("mount") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs a small file system of its own")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", small], capture_output=True
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (tmp_path / "x.txt").write_bytes(LINES)
        found = stress(tmp_path / "x.txt", *WHITESPACE, "--html", small / "report.html", capsys=capsys)
        assert os.listdir(small) == []
        one_line(*found, "No space left on device")
    finally:
        subprocess.run(["umount", small], check=True)


# --- arguments of the library ---------------------------------------------------------------------------


def test_arguments_of_the_wrong_kind_are_named_value_errors(tmp_path):
    tokenizer = load_tokenizer()
    corpus = load_corpus("rotten_tomatoes")
    options = {"max_len": 5, "special_tokens": "drop"}
    for call, message in (
        (lambda: encode((text for text in ["a b"]), tokenizer, **options), "list of strings, not generator"),
        (lambda: encode(corpus, tokenizer, **options), "list of strings, not Corpus: .*corpus.texts"),
        (lambda: encode(None, tokenizer, **options), "list of strings, not NoneType"),
        (lambda: load_tokenizer(None), "name must be 'bert-base-uncased' or a folder, not None"),
        (lambda: PositionalCounts.from_ids(None, vocab_size=3), "list of texts, not NoneType"),
        (lambda: PositionalCounts.from_ids("abc", vocab_size=3), "list of texts, not str"),
        (lambda: PositionalCounts.load(tmp_path / "none.npz"), "none.npz cannot be read .*No such file"),
        (lambda: PositionalCounts.load(None), "path must be the path of a file of counts, not None"),
        (lambda: record("x", 1.0, tol="x"), "tol of 'x' must be a finite number >= 0, not 'x'"),
        (lambda: figures.shepard(np.zeros((1, 1)), np.zeros((1, 1)), alt="none"), "it needs two or more"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_json_nested_too_deeply_is_named_by_its_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a b"}\n{"text": "a", "x": ' + "[" * 200_000 + "\n")
    with pytest.raises(CorpusError, match=re.escape("x.jsonl, line 2: JSON nested too deeply")):
        load_corpus(path)
