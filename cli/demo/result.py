"""What the demo came to, read back out of the ledger: nothing is taken from the sweeps' own words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...summarize.support import NO_POINT_PASSED
from .questions import Question, questions

if TYPE_CHECKING:
    from ...core.paths import Home
    from ...store.results import SummaryRow, VerdictRow
    from .library import Library


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and what became of it.

    Attributes:
        verdicts: of all its items, best first, duplicates last.
        summary: None where there is none.
        found: whether the agents came across a right answer at all.
        kept: whether one was kept; `kept_bm25`: whether BM25 would have, of the same items, as many.
    """

    question: Question
    verdicts: Sequence[VerdictRow]
    summary: SummaryRow | None
    found: bool
    kept: bool
    kept_bm25: bool

    def is_answer(self, row: VerdictRow) -> bool:
        """Whether an item documents a right answer."""
        return row.meta.get("symbol") in self.question.answers


@dataclass(frozen=True, slots=True)
class Result:
    """All questions, and counts over them."""

    questions: Sequence[Answered]
    items: Mapping[str, int]
    groups: Mapping[str, int]
    characters: Mapping[str, int]
    scores: int

    @property
    def answers_found(self) -> int:
        """Questions to which the agents came across a right answer."""
        return sum(answered.found for answered in self.questions)

    @property
    def answers_kept(self) -> int:
        """Questions of which a right answer was kept."""
        return sum(answered.kept for answered in self.questions)

    @property
    def answers_kept_bm25(self) -> int:
        """Questions of which BM25 alone would have kept one, at the same budget."""
        return sum(answered.kept_bm25 for answered in self.questions)


def result(home: Home, library: Library) -> Result:
    """Read verdicts and summaries of the demo's groups and compare with BM25 on the very same items."""
    from datetime import UTC, datetime

    from ...store.ledger import Ledger

    with Ledger.open(home.ledger, read_only=True) as ledger:
        rows: dict[str, list[Any]] = {}
        for row in ledger.verdicts():
            rows.setdefault(row.group or "", []).append(row)
        summaries = {row.group: row for row in ledger.summaries()}
        scores = int(ledger.status(datetime.now(UTC))["scores"])
    answered = [
        _answered(question, rows.get(question.name, []), summaries.get(question.name), library)
        for question in questions()
    ]
    verdicts = [row for one in answered for row in one.verdicts]
    decisions = Counter(row.decision for row in verdicts)
    kept = [row for row in verdicts if row.decision == "keep" and row.duplicate_of is None]
    shown = [one.summary for one in answered if one.summary is not None]
    statuses = Counter(summary.status for summary in shown)
    return Result(
        questions=answered,
        items={
            "seen": len(verdicts),
            "kept": decisions["keep"],
            "dropped": decisions["drop"],
            "errors": decisions["error"],
            "duplicates": sum(row.duplicate_of is not None for row in verdicts),
        },
        groups={
            "judged": sum(bool(one.verdicts) for one in answered),
            "summarised": statuses["done"],
            "skipped": statuses["skipped"],
            "extracts": statuses["extract"],
            "errors": statuses["error"],
            "no_point_passed": sum(NO_POINT_PASSED in summary.reason for summary in shown),
        },
        characters={
            "recorded": sum(row.chars for row in verdicts),
            "kept": sum(row.chars for row in kept),
            "summaries": sum(len(summary.text) for summary in shown),
        },
        scores=scores,
    )


def _answered(
    question: Question, rows: Sequence[VerdictRow], summary: SummaryRow | None, library: Library
) -> Answered:
    right = {row.text for row in rows if row.meta.get("symbol") in question.answers}
    kept = {row.text for row in rows if row.decision == "keep"}
    unique = list(dict.fromkeys(row.text or "" for row in rows))
    by_bm25 = library.rank(question.text, unique)[: len(kept)] if unique else []
    return Answered(
        question=question,
        verdicts=rows,
        summary=summary,
        found=bool(right),
        kept=bool(right & kept),
        kept_bm25=bool(right & set(by_bm25)),
    )
