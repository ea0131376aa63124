"""The source check: does each point rest on the items that it cites?

A cross-encoder scores (point, item text). That measures relevance, not entailment: it cannot see a negation,
and a swapped number or name hardly moves it. So numbers, dates and names are looked up in the sources besides
(`facts`), and a policy may name an NLI cross-encoder with `check_model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from ..core import keys
from ..core.config import SummarizePolicy
from ..core.types import KeptItem, Pair, Point, Score, Summary, SummaryStatus
from .extracts import extracts
from .facts import unsourced
from .replies import NOTHING_SAID

NO_SOURCE = "no_source_found"
"""Marks a point that no kept item supports; it stays out of the plain text."""
FOUND = "source_found"
"""Marks a point whose source the check found: the model cited another or none."""
UNCHECKED = "unchecked"
"""Marks a point for which no score came back."""
UNSOURCED = "unsourced: "
"""Begins the mark that names a number, date or name that stands in none of the point's sources."""
NO_POINT_PASSED = "no_point_passed"
"""The reason of a summary that is done, and whose text is made of extracts since no point passed."""

_OTHERS = 12
"""Items that a point does not cite and that are tried all the same, best first."""


def pairs(summary: Summary, kept: Sequence[KeptItem]) -> list[Pair]:
    """What must be scored to check a summary: each point with what it cites and with the best other items."""
    return [
        Pair(keys.content_hash(point.text), item.text_hash, point.text, item.text)
        for point in summary.points
        if NOTHING_SAID not in point.marks
        for item in _tried(point, kept)
    ]


def apply(
    summary: Summary,
    kept: Sequence[KeptItem],
    scores: Mapping[tuple[UUID, UUID], Score],
    policy: SummarizePolicy,
) -> Summary:
    """The checked summary: sources narrowed to those that support a point, marks set, the plain text made.

    Where no point passes, the text is made of extracts under their label, the reason says so, and the status
    stays DONE: asking the same model again would give the same points.

    Args:
        summary: fresh from its job.
        kept: the group's kept items, best first.
        scores: by (query_hash, text_hash), for what `pairs` asked.
        policy: for `min_support`; None leaves the sources as cited and checks facts only.
    """
    if summary.status is not SummaryStatus.DONE:
        return summary
    by_id = {item.item_id: item for item in kept}
    checked = _best(
        [_check(point, kept, by_id, scores, policy.min_support) for point in summary.points], policy
    )
    if summary.output is not None:
        return replace(summary, points=checked)
    if text := plain(checked):
        return replace(summary, points=checked, text=text)
    return replace(
        summary,
        points=checked,
        text=extracts(kept),
        reason="; ".join(filter(None, (summary.reason, NO_POINT_PASSED))),
    )


def _best(points: Sequence[Point], policy: SummarizePolicy) -> tuple[Point, ...]:
    """All points but those that passed beyond `max_points`: more are made where some are likely to fail."""
    left = policy.max_points
    kept = []
    for point in points:
        passed = _passed(point)
        if not passed or left > 0:
            kept.append(point)
        left -= passed
    return tuple(kept)


def _passed(point: Point) -> bool:
    return bool(point.items) and NOTHING_SAID not in point.marks and NO_SOURCE not in point.marks


def plain(points: Sequence[Point]) -> str:
    """Points that passed as plain text, one a line, with their items' references and what is unsourced."""
    lines = []
    for point in points:
        if not _passed(point):
            continue
        line = f"- {point.text} [{', '.join(keys.reference('i', item) for item in point.items)}]"
        loose = [mark.removeprefix(UNSOURCED) for mark in point.marks if mark.startswith(UNSOURCED)]
        lines.append(line + (f" (not in its sources: {', '.join(loose)})" if loose else ""))
    return "\n".join(lines)


def _tried(point: Point, kept: Sequence[KeptItem]) -> list[KeptItem]:
    cited = set(point.items)
    others = [item for item in kept if item.item_id not in cited][:_OTHERS]
    return [
        item for item in [*(item for item in kept if item.item_id in cited), *others] if item.text.strip()
    ]


def _check(
    point: Point,
    kept: Sequence[KeptItem],
    by_id: Mapping[UUID, KeptItem],
    scores: Mapping[tuple[UUID, UUID], Score],
    threshold: float | None,
) -> Point:
    if NOTHING_SAID in point.marks:
        return replace(point, items=())
    # Whoever made the summary: an id that is not one of this group's kept items is no source.
    point = replace(point, items=tuple(item for item in point.items if item in by_id))
    if threshold is not None:
        point = _supported(point, kept, scores, threshold)
    loose = unsourced(point.text, (by_id[item].text for item in point.items)) if point.items else ()
    return replace(point, marks=(*point.marks, *(UNSOURCED + one for one in loose)))


def _supported(
    point: Point, kept: Sequence[KeptItem], scores: Mapping[tuple[UUID, UUID], Score], threshold: float
) -> Point:
    query = keys.content_hash(point.text)
    logits: dict[UUID, float] = {}
    for item in _tried(point, kept):
        score = scores.get((query, item.text_hash))
        if score is not None and score.logit is not None:
            logits[item.item_id] = score.logit
    if not logits:
        return replace(point, marks=(*point.marks, UNCHECKED))
    cited = {item: logits[item] for item in point.items if item in logits}
    if passing := tuple(item for item, logit in cited.items() if logit >= threshold):
        return replace(point, items=passing, support=max(cited.values()))
    best = max(logits, key=lambda item: logits[item])
    if logits[best] >= threshold:
        return replace(point, items=(best,), support=logits[best], marks=(*point.marks, FOUND))
    support = max(cited.values()) if cited else logits[best]
    return replace(point, items=(), support=support, marks=(*point.marks, NO_SOURCE))
