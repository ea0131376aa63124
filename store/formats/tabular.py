"""CSV and Parquet: rows as mappings from column to value."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from .records import Bad
from .source import text

_DELIMITERS = ",;\t|"
_BATCH_ROWS = 1024


def csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | Bad]]:
    """(line, row) of a CSV file with a header; the separator is the most frequent one in its first line.

    Empty cells are None, but for the column "text". A row with more or fewer cells than columns is `Bad`.

    Raises:
        InputError: no header, a column twice, or no known encoding.
    """
    try:
        content = text(path)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is neither UTF-8 nor UTF-16: {error}", hint="convert it with iconv"
        ) from error
    csv.field_size_limit(1 << 30)
    content = content.removeprefix("\ufeff")
    first = content.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise InputError(f"{path}: its first line is no CSV header: {error}") from error
    if not header:
        raise InputError(f"{path} is empty", hint="the first line of a CSV file names its columns")
    if len(set(header)) < len(header):
        raise InputError(f"{path} names a column twice: {', '.join(header)}", hint="rename one of them")
    while True:
        began = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raw = "".join(content.split("\n")[began - 1 : reader.line_num]).encode("utf-8", "surrogatepass")
            yield began, Bad(line=began, where=f"line {began}", reason="columns", detail=str(error), raw=raw)
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(header):
            detail = f"{len(row)} cells under {len(header)} columns"
            raw = delimiter.join(row).encode("utf-8", "surrogatepass")
            yield began, Bad(line=began, where=f"line {began}", reason="columns", detail=detail, raw=raw)
        else:
            cells = zip(header, row, strict=True)
            yield began, {name: cell if cell or name == "text" else None for name, cell in cells}


def parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(row number from 1, row) of a Parquet file, read in batches.

    Raises:
        InputError: no Parquet file, or a damaged one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        number = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}", hint="write it again") from error
