"""Forgetting: items, their texts, and what was made from them, in every file that Afterpass keeps.

What waits in the spool and in the outbox is taken in first, so that one place has it all: the ledger, which
is written anew without it. The export goes before that and comes again after. A kill in between leaves the
items in the ledger: the same call then finds them and does it whole. Backups are the owner's.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.config import StoreConfig
from ..core.errors import SegmentNewer, UnknownReference
from ..core.paths import Home
from . import export, quarantine
from .columns import table, uuids
from .door import Door
from .erase_filter import FIELDS, Which, paths
from .ledger_file import LedgerFile
from .rewrite import check_room, nothing_gone, replace_ledger, room_needed
from .spool import Bad, adopt_orphans, item_of, open_segments, read_segment, sealed_segments
from .sqlfiles import sql

LONG_ENOUGH = 16
"""Bytes of a text by which it is searched for in what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What an erasure takes, or took.

    Attributes:
        items, scores, verdicts, summaries, replies, quarantined: rows of the ledger.
        groups: that lose an item; `groups_gone` lose their last, the others are judged and summarised again.
        texts: that no other item has. `texts_shared` stay, because items that were not chosen have them.
        spool: items of the spool that are meant; in the end, taken in and gone.
        unreached: what could not be done, and why; empty when all is gone.
        other_files: files below the home that are not Afterpass's: look there yourself.
    """

    items: int = 0
    groups: int = 0
    groups_gone: int = 0
    texts: int = 0
    texts_shared: int = 0
    scores: int = 0
    verdicts: int = 0
    summaries: int = 0
    replies: int = 0
    quarantined: int = 0
    spool: int = 0
    unreached: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
    before: int | None = None
    after: int | None = None


def preview(home: Home, config: StoreConfig, which: Which, *, copies: bool = False) -> Forgotten:
    """What an erasure would take; changes nothing.

    Args:
        copies: items of the same text are meant, too.
    """
    segments = (*sealed_segments(home), *open_segments(home))
    spool = sum(_meant(path, which) for path in segments)
    patience = config.busy_timeout.total_seconds()
    with closing(LedgerFile(home.ledger, read_only=True, timeout=patience)) as file:
        found = _choose(file, which, copies)
    return replace(found, spool=spool, other_files=_other_files(home))


def erase(
    home: Home, config: StoreConfig, which: Which, *, copies: bool = False, wait: float = 10.0
) -> Forgotten:
    """Erase what is meant, everywhere. Call it under the sweep's lock.

    Args:
        wait: seconds for agents to seal the segments that they write: only sealed ones can be taken in.

    Raises:
        UnknownReference: a reference names several items.
        LedgerBusy: another process holds the ledger.
        StoreError: no room for the copy, or a segment that cannot be read; the ledger is as it was.
    """
    spool, unreached = _take_in(home, config, which, wait)
    file = LedgerFile(home.ledger, timeout=config.busy_timeout.total_seconds())
    try:
        found = _choose(file, which, copies)
        if not (found.items or found.quarantined):
            return replace(found, spool=spool, unreached=unreached, other_files=_other_files(home))
        check_room(home.root, room_needed(file), "writing the ledger anew")
        _remove_derived(home)
        done = replace_ledger(file, change=_reopen)
    finally:
        file.close()
    if config.export:
        with closing(LedgerFile(home.ledger, timeout=config.busy_timeout.total_seconds())) as file:
            export.rebuild(home, file)
    return replace(
        found,
        spool=spool,
        unreached=unreached,
        other_files=_other_files(home),
        before=done.before,
        after=done.after,
    )


def _reopen(copy: LedgerFile) -> None:
    copy.connection.execute(sql("erase.reopen"))


# ---------------------------------------------------------------------------------------- choosing


def _choose(file: LedgerFile, which: Which, copies: bool) -> Forgotten:
    nothing_gone(file)
    file.rows(
        sql("erase.choose_items"),
        {
            "items": list(which.items) or None,
            "group": which.group,
            "group_tail": which.group_tail,
            "run": which.run,
            **{name: which.fields.get(name) for name in FIELDS},
        },
    )
    for path, value in which.meta.items():
        nested, key = paths(path)
        file.rows(sql("erase.narrow_by_meta"), {"path": nested, "key": key, "value": value})
    if which.items:
        _see_that_one(file, which)
    if copies:
        file.rows(sql("erase.add_copies"))
    file.connection.execute(sql("erase.choose_rest"))
    quarantined = _choose_quarantined(file, which)
    names = (
        "items", "groups", "groups_gone", "texts", "texts_shared", "scores", "verdicts", "summaries",
        "replies",
    )  # fmt: skip
    counts = dict(zip(names, file.rows(sql("erase.counts"))[0], strict=True))
    return Forgotten(**counts, quarantined=quarantined)


def _see_that_one(file: LedgerFile, which: Which) -> None:
    found = [uid for (uid,) in file.rows(sql("erase.several"))]
    for tail in which.items:
        mine = [uid for uid in found if uid.hex.endswith(tail)]
        if len(mine) > 1:
            several = ", ".join(f"i_{uid.hex[-16:]}" for uid in mine[:10])
            raise UnknownReference(
                f"several items end with {tail}: {several}", hint="give more of its digits"
            )


def _choose_quarantined(file: LedgerFile, which: Which) -> int:
    """What lies in quarantine and is meant, or has an erased text in its bytes."""
    ids = quarantine.chosen(file, ())
    needles = [form for (text,) in file.rows(sql("erase.texts")) for form in _forms(text)] if ids else []
    found = [
        entry.quarantine_id
        for start in range(0, len(ids), quarantine.PAGE)
        for entry in quarantine.with_bytes(file, ids[start : start + quarantine.PAGE])
        if any(needle in (entry.raw or b"") for needle in needles)
        or any(which.matches(item) for item in quarantine.items_in(entry))
    ]
    with file.with_tables(found=table({"quarantine_id": uuids(found)})):
        file.rows(sql("erase.drop_quarantined"))
    return len(found)


def _forms(text: str) -> Iterator[bytes]:
    """A text as it may stand in bytes: plain, or inside JSON, escaped one way or the other."""
    import json

    plain = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    for form in plain:
        if len(encoded := form.encode("utf-8", "surrogatepass")) >= LONG_ENOUGH:
            yield encoded


# ----------------------------------------------------------------------------------------- the spool


def _take_in(home: Home, config: StoreConfig, which: Which, wait: float) -> tuple[int, tuple[str, ...]]:
    """Bring what waits into the ledger; returns what of it was meant, and what could not be reached."""
    give_up = time.monotonic() + wait
    while True:
        adopt_orphans(home)
        held = [path for path in open_segments(home) if _meant(path, which)]
        if not held or time.monotonic() >= give_up:
            break
        time.sleep(0.2)
    spool = sum(_meant(path, which) for path in sealed_segments(home))
    door = Door(home, config)
    report = door.ingest()
    with closing(door.open()):  # what waits in the outbox is applied
        pass
    unreached = [f"{path.name}: an agent writes to it" for path in open_segments(home) if _meant(path, which)]
    return spool, (*unreached, *report.waiting, *door.problems)


def _meant(path: Path, which: Which) -> int:
    """Items of a segment that are meant; 0 where it cannot be read (ingest says so)."""
    count = 0
    with suppress(FileNotFoundError, PermissionError, SegmentNewer), read_segment(path) as segment:
        for _, record in segment:
            if not isinstance(record, Bad) and record.get("type") == "item":
                with suppress(ValueError):
                    count += which.matches(item_of(record))
    return count


# ------------------------------------------------------------------------------------------- files


def _remove_derived(home: Home) -> None:
    """Files that are made again from the ledger, or by nobody: the export first of all by its manifest."""
    with suppress(FileNotFoundError):
        os.unlink(home.exports / "manifest.json")
    # Of the outbox all was applied: what is left are damaged files and halves.
    for folder in (home.exports, home.outbox, home.logs):
        if folder.exists():
            shutil.rmtree(folder)


def _other_files(home: Home) -> tuple[str, ...]:
    ours = {"spool", "outbox", "export", "logs", "calibration", "config.toml", home.lock.name}
    with suppress(OSError):
        names = sorted(entry.name for entry in os.scandir(home.root))
        return tuple(name for name in names if name not in ours and home.ledger.name not in name)
    return ()
