"""Reading a segment, line by line and whatever was done to it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal
from uuid import UUID

from ..core.errors import SegmentNewer
from .spool_format import MAGIC, MAX_LINE, VERSION, Counts, Header, check, parse_counts, parse_header

BadReason = Literal["header", "checksum", "torn", "not_json", "not_object", "too_long"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that could not be read.

    Attributes:
        reason: "header" (the first line is damaged), "checksum", "torn" (the last line has no end),
            "not_json", "not_object", or "too_long" (`raw` is then its first 64 KB).
        raw: the line's bytes, as they stand in the file.
    """

    reason: BadReason
    raw: bytes


class Segment:
    """An opened segment: iterate it once, then look at its counts.

    Iterating gives `(line number, record or Bad)`; the header is line 1, and only given where it is
    `Bad`. Counts and footers are taken out and not given. One line is in memory at a time. Closed at the
    end of the iteration, or as a context manager.

    Attributes:
        header: its first line.
        counts: the footer's numbers, or of an adopted segment the last that were written down. Right
            after the last line was read.
        complete: the footer was there. Right after the last line was read.
    """

    def __init__(self, path: Path, file: BinaryIO, header: Header, damaged: bytes | None) -> None:
        self.path = path
        self.header = header
        self.counts = Counts()
        self.complete = False
        self._file = file
        self._damaged = damaged

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any] | Bad]]:
        with self._file as file:
            number = 1
            if self._damaged is not None:
                yield number, Bad("header", self._damaged)
            while raw := file.readline(MAX_LINE):
                number += 1
                record = _parse(file, raw)
                if isinstance(record, Bad):
                    if record.raw:  # an empty line is what a repaired write leaves: nothing is lost
                        yield number, record
                elif (kind := record.get("type")) == "footer" or kind == "counts":
                    self.counts, self.complete = parse_counts(record), kind == "footer"
                else:
                    yield number, record

    def close(self) -> None:
        """Close the file; safe at any time."""
        self._file.close()

    def __enter__(self) -> Segment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_segment(path: str | os.PathLike[str]) -> Segment:
    """Open a segment of any released version.

    Raises:
        SegmentNewer: a newer version wrote it; it has to stay where it is.
        OSError: it cannot be opened.
    """
    path = Path(path)
    file = path.open("rb")
    try:
        raw = file.readline(64 * 1024)
        header = parse_header(raw.removesuffix(b"\n"), _id_of(path))
        if header.version > VERSION:
            raise SegmentNewer(
                f"{path.name} is a segment of version {header.version} (written by afterpass {header.writer}), "
                f"and this one reads up to {VERSION}",
                hint="upgrade afterpass where the sweep runs; the segment waits meanwhile",
            )
        damaged = None
        if header.damaged:
            damaged = raw
            # A first line that is none of ours may be an item's: read it as one.
            if not raw.startswith(MAGIC[:5]) and check(raw.removesuffix(b"\n")) is not None:
                damaged = None
                file.seek(0)
            elif not raw.endswith(b"\n"):
                _skip_line(file)
        return Segment(path, file, header, damaged)
    except BaseException:
        file.close()
        raise


def _parse(file: BinaryIO, raw: bytes) -> Mapping[str, Any] | Bad:
    whole = raw.endswith(b"\n")
    if not whole and len(raw) == MAX_LINE:
        _skip_line(file)
        return Bad("too_long", raw[: 64 * 1024])
    content = raw[:-1] if whole else raw
    payload = check(content)
    if payload is None:
        return Bad("checksum" if whole else "torn", content)
    try:
        record = json.loads(payload)
    except (ValueError, RecursionError):
        return Bad("not_json", content)
    return record if isinstance(record, dict) else Bad("not_object", content)


def _skip_line(file: BinaryIO) -> None:
    while (more := file.readline(MAX_LINE)) and not more.endswith(b"\n"):
        pass


def _id_of(path: Path) -> UUID:
    """The segment's id from its file's name, else from its content: the same file, the same id."""
    try:
        return UUID(path.name.lstrip(".").partition(".")[0])
    except ValueError:
        with path.open("rb") as file:
            return UUID(bytes=hashlib.file_digest(file, "sha256").digest()[:16])
