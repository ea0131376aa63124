"""What could not become an item: looked at, tried again, or thrown away. Never deleted unasked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from ..core.config import StoreConfig
from ..core.errors import InputError, UnknownReference
from ..core.keys import new_id
from ..core.paths import Home
from ..core.types import Item
from .columns import table, uuids
from .formats import Bad, Options
from .formats.reading import read_bytes
from .importer import import_records
from .ledger_file import LedgerFile
from .spool_format import check
from .spool_items import item_of
from .sqlfiles import sql

NO_LIMIT = 2**62
AS_IT_IS = Options()
PAGE = 500

_REFERENCE = re.compile(r"(?:q_)?([0-9a-fA-F]{6,32})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that could not be read.

    Attributes:
        source: the import's file, or None for what a hook recorded.
        line: where in it.
        reason, detail: what was wrong.
        raw: its bytes, None where only listed; `size` says how many there are.
    """

    quarantine_id: UUID
    source: str | None
    line: int | None
    reason: str
    detail: str | None
    at: datetime
    size: int = 0
    raw: bytes | None = None

    @property
    def ref(self) -> str:
        """What people type: `q_...`."""
        return f"q_{self.quarantine_id.hex[-12:]}"


@dataclass(frozen=True, slots=True)
class Retried:
    """What trying again came to.

    Attributes:
        items: now items, and out of the quarantine.
        still: not readable still, by reason; they stay.
    """

    items: int = 0
    still: Mapping[str, int] = field(default_factory=dict)


def entries(file: LedgerFile, *, reason: str | None = None, limit: int | None = None) -> list[Entry]:
    """What is in quarantine, newest first, without its bytes."""
    rows = file.rows(sql("quarantine.list"), {"reason": reason, "limit": limit or NO_LIMIT})
    return [
        Entry(quarantine_id=uid, source=source, line=line, reason=why, detail=detail, size=size, at=at)
        for uid, source, line, why, detail, size, at, _ in rows
    ]


def reasons(file: LedgerFile) -> dict[str, int]:
    """How many there are, by reason."""
    return dict(file.rows(sql("quarantine.reasons")))


def entry(file: LedgerFile, ref: str) -> Entry:
    """One of them, with its bytes.

    Raises:
        UnknownReference: nothing goes by it, or several things do.
    """
    return next(with_bytes(file, [find(file, ref)]))


def find(file: LedgerFile, ref: str) -> UUID:
    """The id behind `q_...`, or behind a whole id.

    Raises:
        UnknownReference: nothing goes by it, or several things do.
    """
    match = _REFERENCE.fullmatch(ref.strip().replace("-", ""))
    found = file.rows(sql("quarantine.by_tail"), {"tail": match[1].lower()}) if match else []
    if len(found) != 1:
        several = f"{len(found)} things in quarantine end with" if found else "nothing in quarantine goes by"
        raise UnknownReference(f"{several} {ref!r}", hint="`afterpass quarantine list` shows q_...")
    return UUID(str(found[0][0]))


def chosen(file: LedgerFile, refs: Sequence[str], *, reason: str | None = None) -> list[UUID]:
    """The ids behind references; without any, all (of that reason)."""
    if refs:
        return [find(file, ref) for ref in refs]
    return [uid for (uid,) in file.rows(sql("quarantine.all_ids"), {"reason": reason})]


def drop(file: LedgerFile, ids: Sequence[UUID]) -> int:
    """Delete them, bytes and all. Returns how many."""
    with file.with_tables(wanted=table({"quarantine_id": uuids(ids)})):
        file.transact(lambda: file.rows(sql("quarantine.drop")))
    return len(ids)


def retry(
    home: Home,
    config: StoreConfig,
    refs: Sequence[str] = (),
    *,
    reason: str | None = None,
    options: Options = AS_IT_IS,
    fresh_ids: bool = False,
    timeout: float = 30.0,
) -> Retried:
    """Read the bytes again, and import what can be read now.

    Args:
        options: how to read them: another mapping, other defaults.
        fresh_ids: give items new ids: what has to be done where the id was the trouble ("id_conflict").

    Killed half-way, it has at worst imported what is still listed: trying again then finds it known.
    """
    with closing(LedgerFile(home.ledger, timeout=timeout)) as file:
        ids = chosen(file, refs, reason=reason)
    items, still = 0, Counter[str]()
    for start in range(0, len(ids), PAGE):
        with closing(LedgerFile(home.ledger, read_only=True, timeout=timeout)) as file:
            page = list(with_bytes(file, ids[start : start + PAGE]))
        good: list[Item] = []
        done: list[UUID] = []
        for one in page:
            found = _again(one, options, fresh_ids)
            if isinstance(found, Bad):
                still[found.reason] += 1
            else:
                good += found
                done.append(one.quarantine_id)
        if good:
            import_records(home, config, good, source="quarantine", timeout=timeout)
            with closing(LedgerFile(home.ledger, timeout=timeout)) as file:
                drop(file, done)
        items += len(good)
    return Retried(items, dict(still))


def items_in(one: Entry) -> list[Item]:
    """The items that can be read in an entry's bytes, if any."""
    found = _read(one, AS_IT_IS)
    return [] if isinstance(found, Bad) else found


def with_bytes(file: LedgerFile, ids: Sequence[UUID]) -> Iterator[Entry]:
    """Entries by their ids, with their bytes."""
    with file.with_tables(wanted=table({"quarantine_id": uuids(ids)})):
        rows = file.rows(sql("quarantine.raw"))
    for uid, source, line, reason, detail, raw, at in rows:
        yield Entry(
            quarantine_id=uid, source=source, line=line, reason=reason, detail=detail, at=at,
            raw=bytes(raw), size=len(raw),
        )  # fmt: skip


def _again(one: Entry, options: Options, fresh_ids: bool) -> list[Item] | Bad:
    """The items in an entry's bytes, to be imported; or what is wrong with them."""
    if one.reason == "id_conflict" and not fresh_ids:
        return _bad(one, "id_conflict", "its id belongs to another text: give it a new one")
    found = _read(one, options)
    if isinstance(found, Bad) or not fresh_ids:
        return found
    return [replace(item, item_id=new_id()) for item in found]


def _read(one: Entry, options: Options) -> list[Item] | Bad:
    assert one.raw is not None
    payload = check(one.raw) or one.raw
    found: list[Item] = []
    try:
        found.append(item_of(_record(payload)))
    except (ValueError, InputError):
        for record in read_bytes(payload, options, name=one.source or "", file_id=one.quarantine_id.hex):
            if isinstance(record, Bad):
                return record
            if isinstance(record, Item):
                found.append(record)
    return found or _bad(one, "no_text", "nothing in it is an item")


def _record(payload: bytes) -> Mapping[str, Any]:
    from .formats.strict_json import loads

    record = loads(payload.decode("utf-8"))
    if not isinstance(record, dict) or record.get("type") != "item":
        raise ValueError("not a record of the spool")
    return record


def _bad(one: Entry, reason: str, detail: str) -> Bad:
    return Bad(line=one.line or 0, where=one.ref, reason=reason, detail=detail, raw=one.raw or b"")
