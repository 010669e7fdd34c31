"""The files that a corpus can be read from: decoded, split into rows, faults named by file and line."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

__all__ = [
    "GZIP_MAGIC",
    "SUFFIXES",
    "CorpusError",
    "NoColumn",
    "Row",
    "csv_records",
    "decode",
    "labels_of",
    "parquet_rows",
    "read_rows",
    "split_name",
    "stream_rows",
    "tsv_rows",
]

SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv")
TEXT_COLUMNS = ("text", "sentence")
GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 1 << 20


class CorpusError(ValueError):
    """A corpus that cannot be had as asked: what is missing or wrong, where, and the cure."""


class NoColumn(CorpusError):
    """A table without the column of texts: ``fault`` without the cure, which depends on who asks."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"{fault}. Rename the one that holds the texts")
        self.fault = fault


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
    kind, gzipped = split_name(path)
    if path.is_dir():
        raise CorpusError(
            f"{path} is a folder: pass the path of one file ({', '.join(SUFFIXES)}; gzip or not)"
        )
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file")
    if kind not in SUFFIXES:
        raise CorpusError(
            f"{path}: unknown format; the name must end in {', '.join(SUFFIXES)}, or one and .gz"
        )
    raw = path.read_bytes()
    content = _gunzip(raw, path) if gzipped or raw.startswith(GZIP_MAGIC) else raw
    return list(stream_rows(io.BytesIO(content), kind, str(path))), hashlib.sha256(raw).hexdigest()


def split_name(path: Path) -> tuple[str, bool]:
    """The suffix that tells a file's format (in lower case, "" for none), and whether .gz follows it."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    gzipped = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if gzipped else suffixes)[-1:]
    return (kind[0] if kind else ""), gzipped


def stream_rows(
    file: BinaryIO, kind: str, where: str, *, column: str | None = None, longest: int | None = None
) -> Iterator[Row]:
    """The rows of an open binary file one after the other, never more of it in memory than a block.

    Parameters
    ----------
    file
        UTF-8 without compression, a byte order mark allowed.
    kind
        one of :data:`SUFFIXES`.
    where
        what an error calls the file.
    column
        the field that holds the texts; ``None``: ``text`` or ``sentence``. ``.txt`` has no fields.
    longest
        bytes that a line or a field may have; ``None``: no limit.

    Raises
    ------
    CorpusError
        naming ``where`` and the line: bytes that are no UTF-8, a line that is too long, a faulty record, no
        such column. It comes when the row is reached, not before.
    """
    if kind not in SUFFIXES:
        raise CorpusError(f"{where}: unknown format {kind!r}: choose from {', '.join(SUFFIXES)}")
    columns = TEXT_COLUMNS if column is None else (column,)
    lines = _decoded_lines(file, where, longest)
    if kind == ".txt":
        if column is not None:
            raise CorpusError(f"{where}: a .txt file has one text a line and no column {column!r}")
        return (Row(number, _chomp(line)) for number, line in enumerate(lines, start=1))
    if kind == ".jsonl":
        return _jsonl_rows(lines, where, columns)
    if kind == ".csv":
        return _table_rows(csv_records(lines, where, longest), where, columns)
    return tsv_rows(lines, where, columns)


def parquet_rows(path: Path, *, column: str | None = None) -> Iterator[tuple[str | None, int, int]]:
    """The texts of a Parquet file (``None`` where there is none), each with its number and the file's total.

    Read a batch of rows at a time, the one column only. ``CorpusError`` without the library pyarrow, for a
    file that is no Parquet, and for a missing column or one that holds no strings.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise CorpusError(f"{path} needs the library pyarrow: pip install pyarrow ({error})") from None
    try:
        with parquet.ParquetFile(path) as table:
            total = table.metadata.num_rows
            names = table.schema_arrow.names
            columns = TEXT_COLUMNS if column is None else (column,)
            chosen = _text_column(names, str(path), "column", columns)
            kind = table.schema_arrow.field(chosen).type
            while pyarrow.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise CorpusError(f"{path}: column {chosen!r} holds {kind}, not strings")
            number = 0
            for batch in table.iter_batches(batch_size=1024, columns=[chosen]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    yield text, number, total
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        what = " ".join(str(error).split())
        raise CorpusError(f"{path} is not a whole Parquet file ({what[:200]})") from None


def _gunzip(raw: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(_broken_gzip(str(path), error)) from None


def _broken_gzip(where: str, error: Exception) -> str:
    return f"{where} is not a whole gzip file ({error}): compress it again, or drop .gz from its name"


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


def _decoded_lines(file: BinaryIO, where: str, longest: int | None) -> Iterator[str]:
    """Lines with their ends, as an editor counts them: at LF, CR LF and CR."""
    number = 0
    for number, line in enumerate(_byte_lines(file, where, longest), start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{where}, line {number}: byte 0x{line[error.start]:02X} is not UTF-8; save the file as UTF-8"
            ) from None


def _byte_lines(file: BinaryIO, where: str, longest: int | None) -> Iterator[bytes]:
    begun: list[bytes] = []
    done = size = 0
    for block in _blocks(file, where):
        # Bytes, unlike str, end a line at LF, CR LF and CR only.
        lines = block.splitlines(keepends=True)
        if b"\0" in block:
            at = block[: block.index(b"\0")].splitlines(keepends=True)
            inside = len(at) - (bool(at) and not at[-1].endswith((b"\n", b"\r")))
            raise CorpusError(
                f"{where}, line {done + inside + 1}: a NUL byte, which no text holds: this is a binary file, "
                "or UTF-16; save it as UTF-8 text"
            )
        last = None if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            if begun:
                begun.append(line)
                line, begun, size = b"".join(begun), [], 0
            done += 1
            _check_length(len(line), longest, where, done)
            yield line
        if last is not None:
            begun.append(last)
            size += len(last)
            _check_length(size, longest, where, done + 1)
    if begun:
        yield b"".join(begun)


def _blocks(file: BinaryIO, where: str) -> Iterator[bytes]:
    """Pieces of a file, none of which ends between the two bytes of one line end."""
    # A pipe gives what it has: who feeds it slowly, or interrupts, has not to wait for a whole block.
    read = getattr(file, "read1", file.read)
    try:
        block = read(BLOCK_BYTES)
        if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise CorpusError(f"{where}, line 1: the file is UTF-16, not UTF-8; save it as UTF-8")
        while block:
            while block.endswith(b"\r") and (after := read(1)):
                block += after
            yield block
            block = read(BLOCK_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(_broken_gzip(where, error)) from None


def _check_length(size: int, longest: int | None, where: str, line: int) -> None:
    if longest is not None and size > longest:
        raise CorpusError(
            f"{where}, line {line}: longer than {longest:,} bytes, which is a book and not a text; "
            "break it into texts, one a line"
        )


def _kept_lines(text: str | Iterable[str]) -> Iterable[str]:
    """Lines with their ends; str.splitlines would also break at form feeds and at U+2028."""
    return io.StringIO(text, newline="") if isinstance(text, str) else text


def _chomp(line: str) -> str:
    return line[:-2] if line.endswith("\r\n") else line[:-1] if line.endswith(("\n", "\r")) else line


def _jsonl_rows(lines: Iterable[str], where: str, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(_chomp(line))
        except json.JSONDecodeError as error:
            raise CorpusError(
                f"{where}, line {number}: not JSON ({error.msg}, column {error.colno})"
            ) from None
        except RecursionError:
            raise CorpusError(f"{where}, line {number}: JSON nested too deeply to be read") from None
        except ValueError as error:
            # A number of more digits than the interpreter turns into an int.
            raise CorpusError(f"{where}, line {number}: not JSON that can be read ({error})") from None
        if not isinstance(record, dict):
            fields = " or ".join(repr(column) for column in columns)
            raise CorpusError(f"{where}, line {number}: expected an object with a {fields} field")
        field = _text_column(list(record), f"{where}, line {number}", "field", columns)
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
        yield Row(number, content, record.get("label"))


def tsv_rows(text: str | Iterable[str], where: str, columns: Sequence[str] = TEXT_COLUMNS) -> Iterator[Row]:
    """Rows of a tab-separated file; a quotation mark is text there, as in GLUE's files."""
    lines = (_chomp(line) for line in _kept_lines(text))
    records = ((number, line.split("\t")) for number, line in enumerate(lines, start=1) if line)
    return _table_rows(records, where, columns)


def csv_records(
    text: str | Iterable[str], where: str, longest: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Records of a CSV file, the header among them, each with the line that it starts on."""
    reader = csv.reader(_kept_lines(text), strict=True)
    line = 1
    while True:
        # The limit belongs to the process: it is another one for the length of one record only.
        limit = csv.field_size_limit(2**31 - 1 if longest is None else longest)
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise CorpusError(
                f"{where}, line {line}: not a CSV record ({error}); double each quotation mark in a text"
            ) from None
        finally:
            csv.field_size_limit(limit)
        if record is None:
            return
        if record:
            yield line, record
        line = reader.line_num + 1


def _table_rows(
    records: Iterator[tuple[int, list[str]]], where: str, columns: Sequence[str] = TEXT_COLUMNS
) -> Iterator[Row]:
    _, header = next(records, (1, []))
    names = [name.strip() for name in header]
    if not names:
        raise CorpusError(f"{where} is an empty corpus: it has no header line and no text")
    column = names.index(_text_column(names, f"{where}, line 1", "column", columns))
    label = names.index("label") if "label" in names else None
    for line, record in records:
        if len(record) != len(names):
            raise CorpusError(
                f"{where}, line {line}: {len(record)} fields, but the header names "
                f"{len(names)}: {', '.join(names)}"
            )
        yield Row(line, record[column], None if label is None else record[label])


def _text_column(names: Sequence[str], where: str, kind: str, columns: Sequence[str] = TEXT_COLUMNS) -> str:
    for column in columns:
        if column in names:
            return column
    wanted = " or ".join(repr(column) for column in columns)
    has = ", ".join(repr(name) for name in names) or "none"
    raise NoColumn(f"{where}: no {kind} {wanted}; the {kind}s are {has}")


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
