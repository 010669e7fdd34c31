"""Where the texts of a diagnosis come from: one stream, whatever holds them.

A file, a folder of files, standard input, a dataset of the Hugging Face hub, a corpus by name, or texts that
are in memory already. Nothing here holds more than a block of a file.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from posgeom.corpora.files import (
    GZIP_MAGIC,
    SUFFIXES,
    CorpusError,
    NoColumn,
    parquet_rows,
    split_name,
    stream_rows,
)
from posgeom.corpora.named import CORPORA, Corpus, load_corpus

__all__ = ["FORMATS", "LONGEST_TEXT", "HubError", "TextSource"]

PARQUET = ".parquet"
PARQUET_MAGIC = b"PAR1"
FORMATS = tuple(suffix[1:] for suffix in (*SUFFIXES, PARQUET))
LONGEST_TEXT = 4 << 20
HUB = "hf:"


class HubError(CorpusError):
    """A hub that did not give a dataset, or stopped giving it."""


class TextSource:
    """The texts of a corpus in order, blank ones left out; iterating opens it anew.

    Parameters
    ----------
    corpus
        a path of a file (``.txt``, ``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``; the first four also with
        gzip) or of a folder, which stands for the files in it and below it in the order of their paths;
        ``"-"`` for standard input; ``"hf:owner/name:column"`` for a dataset of the hub, streamed by the
        library ``datasets`` (``hf:owner/name/config:column``, ``hf:owner/name@revision:column``); a name of
        :data:`posgeom.corpora.named.CORPORA`; a :class:`~posgeom.corpora.named.Corpus`; or any iterable of
        strings that can be read more than once.
    column
        the field that holds the texts; ``None``: ``text`` or ``sentence``.
    format
        one of :data:`FORMATS` where no name tells it (standard input, a pipe): ``txt`` if left out, or what
        the first bytes say.
    split
        of a dataset of the hub or of a corpus by name.
    whole_files
        each ``.txt`` file is one text, instead of one text a line.

    Attributes
    ----------
    name
        what the corpus is called in a report and in the command that makes it.
    blank
        how many blank texts the last reading has left out so far.

    Raises
    ------
    CorpusError
        when made, for what can be known without reading: no such file, a folder without files, an unknown
        format; while read, for what is wrong with a line.
    """

    def __init__(
        self,
        corpus: str | os.PathLike | Corpus | Iterable[str],
        *,
        column: str | None = None,
        format: str | None = None,
        split: str = "train",
        whole_files: bool = False,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise CorpusError(f"unknown format {format!r}: choose from {', '.join(FORMATS)}")
        self.column = column
        self.format = None if format is None else f".{format}"
        self.split = split
        self.whole_files = whole_files
        self.blank = 0
        self.sources: list[str] = []
        self._done = 0.0
        self._files: list[Path] = []
        self._read = self._open(corpus)

    def __iter__(self) -> Iterator[str]:
        self.blank, self._done = 0, 0.0
        try:
            for text in self._read():
                if text is None or not text.strip():
                    self.blank += 1
                else:
                    yield text
        except NoColumn as error:
            raise CorpusError(f"{error.fault}. Name the one that holds the texts: --column NAME") from None

    @property
    def done(self) -> float | None:
        """The share that has been read, 0 to 1; ``None`` where the end is not known."""
        return self._done if self._done >= 0 else None

    def _open(self, corpus):
        if isinstance(corpus, Corpus):
            self.name, self.sources = corpus.name, [corpus.source]
            return lambda: self._in_memory(corpus.texts)
        if not isinstance(corpus, str | os.PathLike):
            if not isinstance(corpus, Iterable) or isinstance(corpus, bytes | Iterator):
                raise CorpusError(
                    "corpus must be a path, a name, '-', 'hf:owner/name:column', a Corpus or a list of "
                    f"texts, not {type(corpus).__name__}"
                )
            self.name, self.sources = "texts in memory", ["texts in memory"]
            return lambda: self._in_memory(corpus)
        self.name = os.fspath(corpus)
        if not isinstance(self.name, str) or not self.name or "\0" in self.name:
            raise CorpusError(f"{self.name!r} is no path of a corpus")
        if self.name == "-":
            self.sources = ["standard input"]
            return self._standard_input
        if self.name.startswith(HUB):
            return self._hub(self.name.removeprefix(HUB))
        path = Path(self.name)
        if isinstance(corpus, str) and self.name in CORPORA:
            return self._by_name
        if path.is_dir():
            self._files = _files_below(path)
            self.sources = [file.relative_to(path).as_posix() for file in self._files]
            return self._all_files
        if not path.exists():
            by_name = not path.suffix and len(path.parts) == 1
            names = f"; the corpora by name: {', '.join(CORPORA)}" if by_name else ""
            raise CorpusError(f"{self.name}: there is no such file{names}")
        if path.is_file() and self.format is None and split_name(path)[0] not in (*SUFFIXES, PARQUET):
            raise CorpusError(
                f"{self.name}: unknown format; the name must end in {', '.join(SUFFIXES)} (and perhaps .gz) "
                f"or {PARQUET}, or say it: --format {'|'.join(FORMATS)}"
            )
        self._files, self.sources = [path], [path.name]
        return self._all_files

    # Each reader yields texts, blank ones included, and says how far it is.

    def _in_memory(self, texts: Iterable[str]) -> Iterator[str]:
        total = len(texts) if hasattr(texts, "__len__") else 0
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise CorpusError(f"text {number} of {self.name} must be a string, not {type(text).__name__}")
            self._done = number / total if total else -1.0
            yield text

    def _by_name(self) -> Iterator[str]:
        corpus = load_corpus(self.name, split=self.split)
        self.sources = [corpus.source]
        return self._in_memory(corpus.texts)

    def _standard_input(self) -> Iterator[str | None]:
        self._done = -1.0
        if sys.stdin is None or sys.stdin.isatty():
            raise CorpusError("standard input is a terminal: pipe a corpus into the command, or name a file")
        return self._stream(sys.stdin.buffer, "standard input", self.format)

    def _stream(self, file: io.BufferedReader, where: str, kind: str | None) -> Iterator[str | None]:
        start = file.peek(len(PARQUET_MAGIC))[: len(PARQUET_MAGIC)]
        if kind == PARQUET or (kind is None and start == PARQUET_MAGIC):
            # A Parquet file says at its end what is in it.
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "standard-input.parquet"
                with open(path, "wb") as copy:
                    shutil.copyfileobj(file, copy)
                yield from (text for text, _, _ in parquet_rows(path, column=self.column))
            return
        if start.startswith(GZIP_MAGIC):
            file = gzip.open(file)
        yield from self._rows(file, kind or ".txt", where)

    def _rows(self, file, kind: str, where: str) -> Iterator[str]:
        if self.whole_files and kind == ".txt":
            rows = stream_rows(file, kind, where, longest=LONGEST_TEXT)
            text = "\n".join(row.text for row in rows)
            if len(text) > LONGEST_TEXT:
                raise CorpusError(f"{where}: longer than {LONGEST_TEXT:,} characters, too long for one text")
            yield text
            return
        rows = stream_rows(file, kind, where, column=self.column, longest=LONGEST_TEXT)
        yield from (row.text for row in rows)

    def _all_files(self) -> Iterator[str | None]:
        sizes = [path.stat().st_size for path in self._files]
        total, before = max(sum(sizes), 1), 0
        for path, size in zip(self._files, sizes, strict=True):
            kind = self.format or split_name(path)[0]
            with open(path, "rb", buffering=0) as raw:
                if not path.is_file():
                    self._done = -1.0
                    yield from self._stream(io.BufferedReader(raw), str(path), self.format)
                    continue
                if kind == PARQUET:
                    for text, number, rows in parquet_rows(path, column=self.column):
                        self._done = (before + size * number / rows) / total
                        yield text
                else:
                    file = io.BufferedReader(raw)
                    if split_name(path)[1] or file.peek(2)[:2] == GZIP_MAGIC:
                        file = gzip.open(file)
                    for text in self._rows(file, kind, str(path)):
                        self._done = (before + raw.tell()) / total
                        yield text
            before += size

    def _hub(self, address: str):
        self._done = -1.0
        dataset, _, column = address.rpartition(":")
        if not dataset or not column:
            raise CorpusError(
                f"{self.name}: write hf:owner/name:column, the column being the one that holds the texts"
            )
        dataset, _, revision = dataset.partition("@")
        config = None
        local = dataset.startswith((".", "/"))
        if not local and dataset.count("/") == 2:
            dataset, _, config = dataset.rpartition("/")
        try:
            import datasets
        except ImportError:
            raise CorpusError(
                f"{self.name} needs the library datasets: pip install datasets (the extra posgeom[hub])"
            ) from None
        self.sources = [f"hub {dataset}, split {self.split}" + (f", revision {revision}" if revision else "")]

        def read() -> Iterator[str]:
            self._done = -1.0
            try:
                rows = datasets.load_dataset(
                    dataset, config, split=self.split, revision=revision or None, streaming=True
                )
                for number, row in enumerate(rows):
                    if column not in row:
                        raise CorpusError(
                            f"{self.name}: no column {column!r}; the columns are "
                            f"{', '.join(repr(name) for name in row)}"
                        )
                    if not isinstance(row[column], str | None):
                        raise CorpusError(
                            f"{self.name}, row {number}: {column!r} holds {type(row[column]).__name__}, "
                            "not a string"
                        )
                    yield row[column]
            except CorpusError:
                raise
            except Exception as error:  # the library's errors share no base class; the cause is kept
                what = " ".join(str(error).split())[:200]
                raise HubError(
                    f"{self.name}: the hub did not give it ({type(error).__name__}: {what})"
                ) from error

        return read


def _files_below(folder: Path) -> list[Path]:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and split_name(path)[0] in (*SUFFIXES, PARQUET)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not files:
        raise CorpusError(
            f"{folder} is a folder without a file of texts ({', '.join((*SUFFIXES, PARQUET))}; gzip or not)"
        )
    return files
