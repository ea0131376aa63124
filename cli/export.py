"""`afterpass export`: verdicts and summaries as files for other tools."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    ConfigOption,
    GroupOption,
    HomeOption,
    JsonOption,
    NamespaceOption,
    RunOption,
    examples,
)
from .output import dumps, emit, facts, jsonable, size
from .reading import reading, summary_json, verdict_json

if TYPE_CHECKING:
    from ..store.results import Result

EXAMPLES = examples(
    "afterpass export out/",
    "afterpass export out/ --format csv --keep --run night-7",
    "duckdb -c \"SELECT query, excerpt FROM 'out/verdicts.parquet' WHERE decision = 'keep'\"",
)


class Format(StrEnum):
    """File formats of an export."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


def export(
    folder: Annotated[Path, typer.Argument(help="Where verdicts.* and summaries.* are written.")],
    format: Annotated[Format, typer.Option("--format", help="Of the files.")] = Format.PARQUET,
    group: GroupOption = None,
    run: RunOption = None,
    namespace: NamespaceOption = None,
    keep: Annotated[
        bool | None, typer.Option("--keep/--not-kept", help="Only what is kept, or only what is not.")
    ] = None,
    text: Annotated[bool, typer.Option("--text/--no-text", help="Whole texts, beside the excerpts.")] = True,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the current verdicts and summaries to files; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[dict[str, Any]] = []
    with reading(home, config) as ledger:
        kinds: tuple[tuple[str, Result[Any], Callable[[Any], dict[str, Any]]], ...] = (
            (
                "verdicts",
                ledger.verdicts(group=group, run=run, namespace=namespace, keep=keep, text=text),
                lambda row: verdict_json(row, text=text),
            ),
            ("summaries", ledger.summaries(group=group, run=run, namespace=namespace), summary_json),
        )
        for name, found, as_json in kinds:
            path = folder / f"{name}.{format.value}"
            with _whole(path) as draft:
                rows = _WRITERS[format](draft, found, as_json)
            written.append({"file": path, "rows": rows, "bytes": path.stat().st_size})
    if json:
        emit({"files": written})
    else:
        facts((str(one["file"]), f"{one['rows']:,} rows, {size(one['bytes'])}") for one in written)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place once it is finished."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _parquet(path: Path, found: Result[Any], _: Callable[[Any], dict[str, Any]]) -> int:
    import pyarrow.parquet as pq

    writer, rows = None, 0
    for batch in found.batches():
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is None:
        pq.write_table(found.arrow(), path)
    else:
        writer.close()
    return rows


def _jsonl(path: Path, found: Result[Any], as_json: Callable[[Any], dict[str, Any]]) -> int:
    rows = 0
    with path.open("w", encoding="utf-8") as out:
        for row in found:
            out.write(dumps(as_json(row)) + "\n")
            rows += 1
    return rows


def _csv(path: Path, found: Result[Any], as_json: Callable[[Any], dict[str, Any]]) -> int:
    """Lists and objects become JSON in their cells."""
    import csv

    rows = 0
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = None
        for row in found:
            fields = as_json(row)
            if writer is None:
                writer = csv.writer(out)
                writer.writerow(fields)
            writer.writerow(_cell(value) for value in fields.values())
            rows += 1
    return rows


def _cell(value: Any) -> Any:
    plain = jsonable(value)
    return dumps(plain) if isinstance(plain, dict | list) else plain


_WRITERS: dict[Format, Callable[[Path, Result[Any], Callable[[Any], dict[str, Any]]], int]] = {
    Format.PARQUET: _parquet,
    Format.JSONL: _jsonl,
    Format.CSV: _csv,
}
