"""What a command prints: data on stdout, as a table for people or as one line of JSON for programs.

The JSON is a contract: one document on one line, with `"version": 1`, and never NaN. Agents' text is
untrusted: it reaches a terminal with its control characters made visible and without markup.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

VERSION = 1

# Beyond JSON's own escapes: DEL, C1 controls, line separators, and marks that reorder what is read.
_HIDDEN = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


# ------------------------------------------------------------------------------------------- JSON


def jsonable(value: Any) -> Any:
    """`value` with nothing but JSON's own kinds: ids and times as text, NaN and infinities as null."""
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Iterable):
        return [jsonable(inner) for inner in value]
    if isinstance(value, Enum):
        return jsonable(value.value)
    return str(value)  # UUIDs, paths, decimals


def dumps(value: Any) -> str:
    """One line of JSON."""
    plain = json.dumps(jsonable(value), ensure_ascii=not _unicode(), allow_nan=False, separators=(", ", ": "))
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


def emit(document: Mapping[str, Any]) -> None:
    """A whole JSON document on stdout."""
    sys.stdout.write(dumps({"version": VERSION, **document}) + "\n")


def emit_rows(name: str, rows: Iterable[Any], **rest: Any) -> None:
    """A JSON document with a long list in it, written as it comes: memory does not grow with the rows."""
    head = dumps({"version": VERSION, **rest})
    sys.stdout.write(f'{head[:-1]}, "{name}": [')
    for number, row in enumerate(rows):
        sys.stdout.write((", " if number else "") + dumps(row))
    sys.stdout.write("]}\n")


def _unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


# ----------------------------------------------------------------------------------------- people


def printable(text: str) -> str:
    """Text that cannot move the cursor or reorder a line: controls as their pictures or U+FFFD."""
    return _CONTROL.sub(lambda found: chr(0x2400 + ord(found[0])) if ord(found[0]) < 32 else "\ufffd", text)


def one_line(text: str, width: int = 80) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(printable(text[: width * 4].replace("\r", " ")).split())
    return flat if len(flat) <= width else flat[: width - 1] + "\u2026"


def line(text: str = "") -> None:
    """A line of data on stdout."""
    sys.stdout.write(f"{printable(text)}\n")


def note(text: str) -> None:
    """A line beside the data, on stderr."""
    sys.stderr.write(f"{printable(text)}\n")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", wide: Sequence[str] = ()
) -> None:
    """Rows for people: a drawn table on a terminal, tab-separated lines with a header elsewhere.

    Args:
        wide: the columns that share what width is left; the others are never cut.
    """
    if not sys.stdout.isatty():
        sys.stdout.write("\t".join(columns) + "\n")
        for row in rows:
            sys.stdout.write("\t".join(one_line(cell(value), 400) for value in row) + "\n")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=False
    )
    for column in columns:
        drawn.add_column(column, no_wrap=column not in wide, overflow="fold")
    for row in rows:
        drawn.add_row(
            *(
                Text(one_line(cell(value), 600), justify="right" if _number(value) else "left")
                for value in row
            )
        )
    Console(highlight=False, markup=False, emoji=False).print(drawn)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line, aligned on a terminal and tab-separated elsewhere."""
    known = [(name, cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        line(f"{name.ljust(width)}  {value}" if sys.stdout.isatty() else f"{name}\t{value}")


def cell(value: object) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, timedelta):
        return span(value.total_seconds())
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(inner)}" for key, inner in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(cell(inner) for inner in value) or "-"
    return str(value)


def span(seconds: float) -> str:
    """A length of time in at most two units: "0.4 s", "3 m 20 s", "2 d 4 h"."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    whole = round(seconds)
    first = next(index for index, (_, size) in enumerate(units) if whole >= size)
    parts = []
    for name, size in units[first : first + 2]:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def size(count: float) -> str:
    """Bytes as people read them (powers of 1024)."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def ago(moment: datetime | None) -> str:
    """How long ago something was."""
    return "never" if moment is None else f"{span((datetime.now(UTC) - moment).total_seconds())} ago"


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
