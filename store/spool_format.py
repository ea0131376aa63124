"""The bytes of a segment, version 1.

    afterpass segment 1 CRC {"segment":"ID","host":...,"pid":...,"created":...,"writer":...,"settled":...}
    CRC {"type":"item", ...}
    CRC {"type":"close", ...}
    CRC {"type":"bad", ...}              of imports: a record that could not be read
    CRC {"type":"counts", ...}           now and then: what was refused so far, should the writer be killed
    CRC {"type":"footer", "rows": ..., "overflowed": ..., "refused": ..., "reasons": {...}}

One line each, ended by one "\\n" byte and by nothing else; CRC is the CRC-32 (zlib) of what follows its
space, in eight lower-case hex digits; in the first line, of what stands before it as well. JSON is UTF-8 and
never has a newline inside. The first line keeps this form in every version to come, so that an older reader
can tell a newer segment from a damaged one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zlib import crc32

MAGIC = b"afterpass segment "
VERSION = 1
MAX_LINE = 256 * 2**20
"""Bytes that a line may have; longer is quarantined by its start."""

_HEADER = re.compile(
    rb"(?P<start>afterpass segment (?P<version>[0-9]{1,6}) )(?P<crc>[0-9a-f]{8}) (?P<payload>.*)", re.DOTALL
)
_KNOWN = frozenset({"segment", "host", "pid", "created", "writer", "settled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A segment's first line.

    Attributes:
        settled: its groups need not be waited for (imports).
        about: whatever else its writer said (where an import came from).
        damaged: the line's checksum did not hold; what is here comes from the file's name.
    """

    segment_id: UUID
    version: int = VERSION
    host: str = ""
    pid: int = 0
    created: datetime | None = None
    writer: str = ""
    settled: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """What a footer says.

    Attributes:
        rows: items in this segment.
        overflowed: refused for want of room since the same writer's segment before this one.
        refused: refused for want of sense since then, by reason in `reasons`.
    """

    rows: int = 0
    overflowed: int = 0
    refused: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def since(self, earlier: Counts) -> Counts:
        """What was refused between two running totals; rows stay this one's."""
        reasons = {
            reason: count - earlier.reasons.get(reason, 0)
            for reason, count in self.reasons.items()
            if count != earlier.reasons.get(reason, 0)
        }
        return Counts(
            self.rows, self.overflowed - earlier.overflowed, self.refused - earlier.refused, reasons
        )


def dump(record: Mapping[str, Any]) -> bytes:
    """A record as JSON: compact, UTF-8.

    Raises:
        UnicodeEncodeError: a lone surrogate; `spool_items.clean` first.
        TypeError, ValueError: no JSON (NaN included).
    """
    return _encode(record).encode()


# One encoder for all: json.dumps with arguments makes a new one each time.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def line(payload: bytes) -> bytes:
    """A line of a segment, from JSON bytes."""
    return b"%08x %b\n" % (crc32(payload), payload)


def header_line(header: Header) -> bytes:
    """The first line."""
    assert header.version == VERSION
    created = header.created or datetime.now(UTC)
    payload = dump(
        {
            "segment": str(header.segment_id),
            "host": header.host,
            "pid": header.pid,
            "created": created.isoformat(),
            "writer": header.writer,
            "settled": header.settled,
            **{key: value for key, value in header.about.items() if key not in _KNOWN},
        }
    )
    start = b"%b%d " % (MAGIC, VERSION)
    return b"%b%08x %b\n" % (start, crc32(start + payload), payload)


def counts_line(counts: Counts, *, last: bool) -> bytes:
    """A footer, or what stands in for it should none follow."""
    return line(
        dump(
            {
                "type": "footer" if last else "counts",
                "rows": counts.rows,
                "overflowed": counts.overflowed,
                "refused": counts.refused,
                "reasons": dict(counts.reasons),
            }
        )
    )


def check(raw: bytes) -> bytes | None:
    """The JSON of a line (without its newline) whose checksum holds, else None."""
    payload = raw[9:]
    if raw[8:9] == b" " and raw[:8] == b"%08x" % crc32(payload):
        return payload
    return None


def parse_header(raw: bytes) -> Header | None:
    """Read a first line (without its newline); None where it is damaged or none."""
    match = _HEADER.fullmatch(raw)
    if match is None or int(match["crc"], 16) != crc32(match["start"] + match["payload"]):
        return None
    try:
        said = json.loads(match["payload"])
        return Header(
            segment_id=UUID(said["segment"]),
            version=int(match["version"]),
            host=str(said.get("host", "")),
            pid=int(said.get("pid", 0)),
            created=datetime.fromisoformat(said["created"]) if said.get("created") else None,
            writer=str(said.get("writer", "")),
            settled=bool(said.get("settled", False)),
            about={key: value for key, value in said.items() if key not in _KNOWN},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # a checksum that holds over nonsense: as good as damaged


def parse_counts(record: Mapping[str, Any]) -> Counts:
    """Read a footer's numbers; what is missing is 0."""
    reasons = record.get("reasons")
    return Counts(
        rows=_number(record.get("rows")),
        overflowed=_number(record.get("overflowed")),
        refused=_number(record.get("refused")),
        reasons={str(k): _number(v) for k, v in reasons.items()} if isinstance(reasons, dict) else {},
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
