"""What these tests share: a stock of items, recorded through the spool, a tiny judge, and the shipped one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from afterpass import rerank
from afterpass.core.config import ScorerConfig, StoreConfig
from afterpass.core.keys import new_id
from afterpass.core.paths import Home
from afterpass.core.seams import Scorer
from afterpass.core.types import Decision, DueGroup, Item, Score, Selection, Verdict
from afterpass.store.ingest import IngestReport, ingest
from afterpass.store.ledger import Ledger
from afterpass.store.spool import SegmentWriter, close_record, item_record

MODEL = "lexical"
EVERYTHING = Selection()


def make_item(text: str, **values: Any) -> Item:
    """An item with sensible defaults."""
    values.setdefault("item_id", new_id())
    values.setdefault("created_at", datetime.now(UTC))
    values.setdefault("run", "run-1")
    values.setdefault("query", "what matters?")
    return Item(text=text, **values)


@dataclass
class Stock:
    """A home's spool and ledger, filled and judged by hand."""

    home: Home

    def record(self, *items: Item, close: str | None = None, settled: bool = False, **about: Any) -> UUID:
        """Seal a segment of these items; returns its id."""
        with SegmentWriter(self.home, settled=settled, about=about) as writer:
            for item in items:
                writer.write(item_record(item))
            if close is not None:
                writer.write(close_record(run=close))
        return writer.header.segment_id

    def ingest(self) -> IngestReport:
        """Take the spool in."""
        return ingest(self.home, StoreConfig(), timeout=5.0)

    def fill(self, *texts: str, **values: Any) -> list[Item]:
        """Record and ingest items of these texts."""
        items = [make_item(text, **values) for text in texts]
        self.record(*items)
        self.ingest()
        return items

    def open(self, **options: Any) -> Ledger:
        """The ledger."""
        options.setdefault("timeout", 5.0)
        return Ledger.open(self.home.ledger, **options)

    def due(
        self, ledger: Ledger, sweep: UUID | None = None, *, selection: Selection = EVERYTHING
    ) -> list[DueGroup]:
        """All due groups of the default policy, without waiting for them to settle."""
        return ledger.due_groups(
            policies=["default"],
            now=datetime.now(UTC),
            settle=None,
            selection=selection,
            sweep_id=sweep or new_id(),
        )

    def judge(
        self,
        ledger: Ledger,
        *,
        keep: int = 1,
        groups: Sequence[DueGroup] | None = None,
        sweep: UUID | None = None,
    ) -> UUID:
        """One sweep by hand: scores by length of text, keeps the best `keep` of each group."""
        sweep = sweep or new_id()
        ledger.start_sweep(sweep, config={"keep": keep}, started=datetime.now(UTC))
        groups = self.due(ledger, sweep) if groups is None else groups
        work = ledger.pairs_to_score(groups, MODEL)
        ledger.write_scores(
            sweep,
            MODEL,
            [
                Score(pair.query_hash, pair.text_hash, float(pair.chars), 0, min(3, pair.chars))
                for pair in work.pairs
            ],
        )
        judged = []
        for group in groups:
            mine = ledger.candidates([group], MODEL)[group.key]
            judged.append((group, list(self._decide(mine, keep))))
        ledger.write_verdicts(sweep, MODEL, judged, policy_hash={"default": UUID(int=7)})
        ledger.end_sweep(sweep, outcome="done", account={"groups": len(judged)}, ended=datetime.now(UTC))
        return sweep

    def _decide(self, candidates: Sequence[Any], keep: int) -> list[Verdict]:
        ranked = sorted((c for c in candidates if c.logit is not None), key=lambda c: (-c.logit, c.seq))
        verdicts = [
            Verdict(
                c.seq,
                Decision.KEEP if rank <= keep else Decision.DROP,
                "top_k" if rank <= keep else "below_top_k",
                rank,
                c.logit,
                score_seq=c.score_seq,
            )
            for rank, c in enumerate(ranked, start=1)
        ]
        verdicts += [Verdict(c.seq, Decision.DROP, "empty") for c in candidates if c.blank]
        verdicts += [
            Verdict(c.seq, Decision.ERROR, c.error or "no_score")
            for c in candidates
            if c.logit is None and not c.blank
        ]
        return verdicts


@pytest.fixture
def stock(home: Home) -> Stock:
    """An empty stock in the test's own home."""
    return Stock(home)


@pytest.fixture
def item() -> Callable[..., Item]:
    """`make_item`."""
    return make_item


@pytest.fixture(scope="module")
def embedded_scorer() -> Iterator[Scorer]:
    """The shipped cross-encoder, on one thread."""
    scorer = rerank.load(ScorerConfig(model="embedded", backend="torch", dtype="float32", threads=1))
    yield scorer
    scorer.close()
