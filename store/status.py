"""How the ledger stands, in numbers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..core.keys import reference
from .ledger_file import LedgerFile
from .sqlfiles import sql


def status(file: LedgerFile, now: datetime, settle: timedelta) -> dict[str, Any]:
    """Counts as JSON values; see `Ledger.status`."""
    items, groups, texts, quarantined, overflowed, refused, recorded, scores, verdicts = file.rows(
        sql("status.counts")
    )[0]
    due, oldest, unsettled, no_query, no_query_items, judged, to_summarise = file.rows(
        sql("status.groups"), {"quiet_since": now - settle}
    )[0]
    pending = file.rows(sql("status.pending_items"))[0][0] if due or unsettled else 0
    return {
        "items": {
            "total": items,
            "pending": pending,
            "no_query": no_query_items,
            "kept": 0,
            "dropped": 0,
            "errors": 0,
            **{_DECISIONS.get(name, name): count for name, count in file.rows(sql("status.decisions"))},
        },
        "groups": {
            "total": groups,
            "due": due,
            "unsettled": unsettled,
            "no_query": no_query,
            "judged": judged,
            "to_summarise": to_summarise,
        },
        "summaries": dict(file.rows(sql("status.summaries"))),
        "oldest_due": _iso(oldest),
        "oldest_due_seconds": None if oldest is None else max(0.0, (now - oldest).total_seconds()),
        "quarantined": quarantined,
        "overflowed": overflowed,
        "refused": refused,
        "ingested": recorded,
        "texts": texts,
        "scores": scores,
        "verdicts": verdicts,
        "last_sweep": _sweep(file, "last_sweep"),
        "last_good_sweep": _sweep(file, "last_good_sweep"),
        "bytes": _size(file),
    }


_DECISIONS = {"keep": "kept", "drop": "dropped", "error": "errors"}


def _sweep(file: LedgerFile, which: str) -> dict[str, Any] | None:
    found = file.rows(sql(f"status.{which}"))
    if not found:
        return None
    sweep_id, started, ended, outcome = found[0]
    assert isinstance(sweep_id, UUID)
    return {
        "sweep": reference("s", sweep_id),
        "started": _iso(started),
        "ended": _iso(ended),
        "outcome": outcome,
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _size(file: LedgerFile) -> int:
    wal = file.path.with_name(file.path.name + ".wal")
    return sum(path.stat().st_size for path in (file.path, wal) if path.exists())
