"""The files that a corpus can be read from: decoded, split into rows, faults named by file and line."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["SUFFIXES", "CorpusError", "Row", "csv_records", "decode", "labels_of", "read_rows", "tsv_rows"]

SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv")
TEXT_COLUMNS = ("text", "sentence")
GZIP_MAGIC = b"\x1f\x8b"


class CorpusError(ValueError):
    """A corpus that cannot be had as asked: what is missing or wrong, where, and the cure."""


@dataclass(frozen=True)
class Row:
    """One text of a file, the line it starts on, and its label if the file has labels."""

    line: int
    text: str
    label: object = None


def read_rows(path: Path) -> tuple[list[Row], str]:
    """The rows of a file, blank texts included, and the file's SHA-256; its name tells the format.

    ``.txt``: one text a line. ``.jsonl``: one object a line. ``.csv``. ``.tsv``: tab-separated, where a
    quotation mark is text. The last three need a ``text`` or ``sentence`` field; ``label`` is read where
    there is one. Each may be compressed with gzip.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    gzipped = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if gzipped else suffixes)[-1:]
    if path.is_dir():
        raise CorpusError(
            f"{path} is a folder: pass the path of one file ({', '.join(SUFFIXES)}; gzip or not)"
        )
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file")
    if not kind or kind[0] not in SUFFIXES:
        raise CorpusError(
            f"{path}: unknown format; the name must end in {', '.join(SUFFIXES)}, or one and .gz"
        )
    raw = path.read_bytes()
    content = _gunzip(raw, path) if gzipped or raw.startswith(GZIP_MAGIC) else raw
    reader = {".txt": _txt_rows, ".jsonl": _jsonl_rows, ".csv": _csv_rows, ".tsv": tsv_rows}[kind[0]]
    return reader(decode(content, str(path)), str(path)), hashlib.sha256(raw).hexdigest()


def _gunzip(raw: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(
            f"{path} is not a whole gzip file ({error}): compress it again, or drop .gz from its name"
        ) from None


def decode(raw: bytes, where: str) -> str:
    """``raw`` as UTF-8, a byte order mark dropped; ``where`` names the file in the error."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise CorpusError(f"{where}, line 1: the file is UTF-16, not UTF-8; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line = before.count(b"\n") + 1
        byte = error.object[error.start]
        raise CorpusError(
            f"{where}, line {line}: byte 0x{byte:02X} is not UTF-8; save the file as UTF-8"
        ) from None


def _lines(text: str) -> list[str]:
    """Lines as an editor counts them: str.splitlines would also break at form feeds and at U+2028."""
    return [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]


def _txt_rows(text: str, where: str) -> list[Row]:
    return [Row(number, line) for number, line in enumerate(_lines(text), start=1)]


def _jsonl_rows(text: str, where: str) -> list[Row]:
    rows = []
    for number, line in enumerate(_lines(text), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(
                f"{where}, line {number}: not JSON ({error.msg}, column {error.colno})"
            ) from None
        if not isinstance(record, dict):
            raise CorpusError(f"{where}, line {number}: expected an object with a 'text' or 'sentence' field")
        field = _text_column(list(record), f"{where}, line {number}", "field")
        content = record[field]
        if not isinstance(content, str):
            raise CorpusError(
                f"{where}, line {number}: {field!r} must be a string, not {type(content).__name__}"
            )
        try:
            content.encode("utf-8")
        except UnicodeEncodeError:
            raise CorpusError(
                f"{where}, line {number}: {field!r} holds half of a surrogate pair, which is no text"
            ) from None
        rows.append(Row(number, content, record.get("label")))
    return rows


def _csv_rows(text: str, where: str) -> list[Row]:
    return _table_rows(csv_records(text, where), where)


def tsv_rows(text: str, where: str, columns: Sequence[str] = TEXT_COLUMNS) -> list[Row]:
    """Rows of a tab-separated file; a quotation mark is text there, as in GLUE's files."""
    records = ((number, line.split("\t")) for number, line in enumerate(_lines(text), start=1) if line)
    return _table_rows(records, where, columns)


def csv_records(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Records of a CSV file, the header among them, each with the line that it starts on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    with _long_fields():
        try:
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1
        except csv.Error as error:
            raise CorpusError(
                f"{where}, line {line}: not a CSV record ({error}); double each quotation mark in a text"
            ) from None


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let a CSV field be as long as a book; the limit belongs to the process, so it is put back."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _table_rows(
    records: Iterator[tuple[int, list[str]]], where: str, columns: Sequence[str] = TEXT_COLUMNS
) -> list[Row]:
    _, header = next(records, (1, []))
    names = [name.strip() for name in header]
    if not names:
        raise CorpusError(f"{where} is an empty corpus: it has no header line and no text")
    column = names.index(_text_column(names, f"{where}, line 1", "column", columns))
    label = names.index("label") if "label" in names else None
    rows = []
    for line, record in records:
        if len(record) != len(names):
            raise CorpusError(
                f"{where}, line {line}: {len(record)} fields, but the header names "
                f"{len(names)}: {', '.join(names)}"
            )
        rows.append(Row(line, record[column], None if label is None else record[label]))
    return rows


def _text_column(names: Sequence[str], where: str, kind: str, columns: Sequence[str] = TEXT_COLUMNS) -> str:
    for column in columns:
        if column in names:
            return column
    wanted = " or ".join(repr(column) for column in columns)
    has = ", ".join(repr(name) for name in names) or "none"
    raise CorpusError(
        f"{where}: no {kind} {wanted}; the {kind}s are {has}. Rename the one that holds the texts"
    )


def labels_of(rows: Sequence[Row], where: str) -> np.ndarray | None:
    """The rows' labels as ``(N,)`` int64; ``None`` when no row has one."""
    if all(row.label is None for row in rows):
        return None
    labels = []
    for row in rows:
        try:
            if row.label is None or isinstance(row.label, (bool, float)):
                raise ValueError
            labels.append(np.int64(int(row.label)))
        except (TypeError, ValueError, OverflowError):
            raise CorpusError(
                f"{where}, line {row.line}: label {row.label!r} is not an integer; number the classes 0, 1, "
                "2, … in every row, or rename the column if it holds no label"
            ) from None
    return np.array(labels, dtype=np.int64)
