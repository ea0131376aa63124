"""Names for things: content hashes, item and group ids, and the short references that people type."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections.abc import Iterable
from uuid import UUID, uuid5

# A fixed namespace, so that the same (namespace, id) gives the same UUID on every machine, for ever.
_ROOT = UUID("8d0c4c1e-5b0e-5c55-9c57-0d9a1f6e7a11")

_REFERENCE = re.compile(r"(?P<kind>[igs])_(?P<tail>[0-9a-fA-F]{6,32})")


def content_hash(text: str) -> UUID:
    """First 128 bits of the SHA-256 of a text's UTF-8, as a UUID (DuckDB's native 16-byte type)."""
    return UUID(bytes=hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16])


def _name(parts: Iterable[str | None]) -> str:
    # A length prefix keeps ("a", "bc") and ("ab", "c") apart, and None apart from "".
    return "".join("-;" if part is None else f"{len(part)}:{part};" for part in parts)


def given_item_id(namespace: str, given: str) -> UUID:
    """The id of an item that came with one of its own: the same name gives the same id, on any machine."""
    return uuid5(_ROOT, _name(("item", namespace, given)))


def group_id(namespace: str, name: str | None, query: str | None, policy: str) -> UUID:
    """The id of the group in which items compete: (namespace, group name or run, query, policy)."""
    return uuid5(_ROOT, _name(("group", namespace, name, query, policy)))


def new_id() -> UUID:
    """A UUIDv7: ordered by time to the millisecond, random below (RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def new_id_text() -> str:
    """A UUIDv7 as text, for who makes one for each item in an agent's own thread.

    Several times cheaper than `str(new_id())`: below the time stands a counter with a random start (RFC 9562,
    section 6.2, method 2), so that no call asks the system for random bits.
    """
    time_part = f"{time.time_ns() // 1_000_000:012x}"
    rest = f"{next(_counter):016x}"
    return f"{time_part[:8]}-{time_part[8:]}-{_process}-{rest[:4]}-{rest[4:]}"


def _start_counting() -> None:
    """Random bits for this process: 12 for all of its ids, 61 for where it starts to count."""
    global _process, _counter
    drawn = int.from_bytes(os.urandom(10), "big")
    _process = f"7{drawn >> 61 & 0xFFF:03x}"
    _counter = itertools.count(1 << 63 | drawn & (1 << 61) - 1)


_process: str
_counter: itertools.count[int]
_start_counting()
os.register_at_fork(after_in_child=_start_counting)


def reference(kind: str, uid: UUID) -> str:
    """The typed reference that is printed for people: `i_`, `g_` or `s_` and the id's last 12 hex digits.

    The end of the id and not its start: a UUIDv7 starts with its time, which many share.
    """
    return f"{kind}_{uid.hex[-12:]}"


def parse_reference(text: str) -> tuple[str, str] | None:
    """The kind (`i`, `g`, `s`) and the hex digits with which the id *ends*, or None if it is no reference.

    Takes what `reference` prints, any other tail of 6 to 32 digits, and a whole UUID (kind "").
    """
    if match := _REFERENCE.fullmatch(text.strip()):
        return match["kind"], match["tail"].lower()
    try:
        return "", UUID(text.strip()).hex
    except ValueError:
        return None
