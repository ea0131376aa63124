"""What the games against the ledger share: an agent, a whole sweep within this process, and the books.

The sweep is the real one from ingest to export; only the two engines (the lexical scorer and the extractive
summarizer) work in the sweep's own process, since a process for each would take most of a game's time.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb

from afterpass.core import config as configuration
from afterpass.core.config import Config
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.export import read_manifest
from afterpass.store.export_read import ExportReader
from afterpass.store.ledger import Ledger
from afterpass.store.spool import open_segments, sealed_segments
from afterpass.sweep import SweepOptions, check, judge, sweep, worker, write
from afterpass.sweep.account import Account

NOW = SweepOptions(now=True)


class InProcess:
    """An engine with the face of `EngineProcess` and no process."""

    load_seconds = busy_seconds = 0.0
    deaths = 0

    def __init__(self, kind: str, config: Any, *, log: Path, extra: Any = None) -> None:  # noqa: ARG002
        self._what = kind, config, dict(extra or {})
        self._waiting: list[Any] = []
        self.about: dict[str, Any] = {}

    def start(self) -> None:
        self._engine = worker._load(*self._what)
        self.key = self._engine.key

    @property
    def outstanding(self) -> int:
        return self._engine.pending + len(self._waiting)

    @property
    def room(self) -> int:
        return max(0, self._engine.room - len(self._waiting))

    def submit(self, requests: Iterable[Any]) -> None:
        self._waiting += requests

    def poll(self, timeout: float = 1.0) -> list[Any]:  # noqa: ARG002
        while self._waiting and self._engine.room:
            self._engine.submit(self._waiting.pop(0))
        return list(self._engine.step())

    def close(self) -> None:
        self._engine.close()


for phase in (judge, write, check):
    phase.EngineProcess = InProcess  # type: ignore[attr-defined]


def small(busy_timeout: float = 10.0) -> Config:
    """The engines that need no model; patience of `busy_timeout` seconds with whoever holds the ledger."""
    config = configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": "lexical"}}},
            "summarize": {"models": {"embedded": {"model": "extractive"}}},
        }
    )
    store = config.store.model_copy(update={"busy_timeout": timedelta(seconds=busy_timeout)})
    return config.model_copy(update={"store": store})


def sweep_now(home: Home, busy_timeout: float = 10.0) -> Account:
    """One sweep that waits for nothing."""
    return sweep(home, small(busy_timeout), NOW)


def record(home: Home, acknowledged: Path, chance: random.Random, groups: int = 3) -> None:
    """An agent's work: some groups, some late items, a conflict; notes what was acknowledged."""
    with Recorder(home, segment_bytes=chance.choice((2_000, 8_000_000))) as recorder:
        mine = chance.randrange(2**31)
        said: list[str | None] = []
        for number in range(groups):
            group = chance.choice((f"group {mine}-{number}", f"shared {chance.randrange(20)}"))
            for item in range(chance.randrange(1, 6)):
                text = f"Observation {item} of {group}: the answer is {item}. It holds. {mine}"
                said.append(recorder.record(text, query=f"What is {group}?", group=group, run=f"r{mine}"))
        if chance.random() < 0.3:  # the second is to be quarantined: the same name, another text
            for text in ("This is one text.", "And this is another."):
                said.append(recorder.record(text, query="Which?", group="conflicts", id=f"conflict {mine}"))
        if recorder.flush():
            # In one write: half a line would be a promise to nobody.
            with open(acknowledged, "ab", buffering=0) as file:
                file.write("".join(f"{item}\n" for item in said if item).encode())
    if chance.random() < 0.3:
        # The clock stood elsewhere when these were sealed.
        for path in sealed_segments(home):
            with suppress(FileNotFoundError):
                os.utime(path, (moment := chance.choice((1e8, 4e9)), moment))


def finish(home: Home) -> None:
    """Sweep until nothing is due."""
    for _ in range(20):
        if sweep_now(home).outcome == "nothing_due":
            return
    raise AssertionError("something is still due after 20 sweeps")


def books(home: Home, acknowledged: Path) -> dict[str, Any]:
    """The account of a home in which all work is done; `wrong` names whatever does not add up."""
    promised = Counter(acknowledged.read_text().split()) if acknowledged.exists() else Counter[str]()
    with duckdb.connect(str(home.ledger), read_only=True) as ledger:

        def one(sql: str) -> int:
            (row,) = ledger.execute(sql).fetchall()
            return int(row[0] or 0)

        items = {str(item) for (item,) in ledger.execute("SELECT item_id FROM item").fetchall()}
        total = one("SELECT count(*) FROM item")
        conflicts = {
            detail.partition(" ")[0]
            for (detail,) in ledger.execute(
                "SELECT detail FROM quarantine WHERE reason = 'id_conflict'"
            ).fetchall()
        }
        found = {
            "kept in the spool": len(sealed_segments(home)) + len(open_segments(home)),
            "kept in the outbox": len(list(home.outbox.glob("*.commit"))) if home.outbox.exists() else 0,
            "groups due": one("SELECT count(*) FROM pending_group"),
            "rows that no segment tells of": total - one("SELECT sum(rows) FROM segment"),
            "segments twice": one("SELECT count(*) - count(DISTINCT segment_id) FROM segment"),
            "quarantined twice": one("SELECT count(*) - count(DISTINCT quarantine_id) FROM quarantine"),
            "conflicts not quarantined": len(
                {item for item, count in promised.items() if count > 1} - conflicts
            ),
            "texts missing": one("SELECT count(*) FROM item ANTI JOIN text USING (text_hash)"),
            "texts twice": one("SELECT count(*) - count(DISTINCT text_hash) FROM text"),
            "numbers twice": one("SELECT count(*) - count(DISTINCT seq) FROM item"),
            "numbers beyond the counter": one("SELECT count(*) FROM item, counter WHERE seq >= next_item"),
            "items without a current verdict": one(
                "SELECT count(*) FROM item ANTI JOIN current_verdict USING (seq)"
            ),
            "current verdicts twice": one("SELECT count(*) - count(DISTINCT seq) FROM current_verdict"),
            "verdicts twice in a sweep": one(
                "SELECT count(*) - count(DISTINCT (sweep_id, seq)) FROM verdict"
            ),
            "verdicts on no score": one(
                "SELECT count(*) FROM verdict v ANTI JOIN score s ON s.score_seq = v.score_seq"
                " AND s.logit IS NOT DISTINCT FROM v.logit WHERE v.score_seq IS NOT NULL"
            ),
            "score numbers twice": one("SELECT count(*) - count(DISTINCT score_seq) FROM score"),
            "groups without a summary": one(
                "SELECT count(*) FROM group_state ANTI JOIN"
                " (FROM current_summary WHERE status IN ('done', 'skipped') AND NOT stale) USING (group_id)"
            ),
            "current summaries twice": one("SELECT count(*) - count(DISTINCT group_id) FROM current_summary"),
            "groups that count wrongly": one(
                "SELECT count(*) FROM group_state s JOIN (SELECT group_id, count(*) n, max(seq) m FROM item"
                " GROUP BY group_id) i USING (group_id) WHERE (s.items, s.last_seq) <> (i.n, i.m)"
            ),
            "sweeps without an end": one("SELECT count(*) FROM sweep WHERE outcome IS NULL"),
            "marks of the outbox left": one("SELECT count(*) FROM applied"),
        }
    with Ledger.open(home.ledger, read_only=True) as ledger:
        told = [(row.item_id, row.decision, row.rank) for row in ledger.verdicts()]
        said = sorted((row.group_id, row.text) for row in ledger.summaries())
    export = ExportReader(home, read_manifest(home))
    found["verdicts that the export tells otherwise"] = int(
        [(row.item_id, row.decision, row.rank) for row in export.verdicts()] != told
    )
    found["summaries that the export tells otherwise"] = int(
        sorted((row.group_id, row.text) for row in export.summaries()) != said
    )
    return {
        "acknowledged": len(promised),
        "stored": total,
        "lost": len(promised.keys() - items),
        "doubled": total - len(items),
        "wrong": {what: count for what, count in found.items() if count},
    }
