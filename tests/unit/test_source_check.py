"""The source check: what a point keeps as its sources, and what a reader is told where it has none."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID, uuid4

import pytest

from afterpass.core import keys
from afterpass.core.config import SummarizePolicy
from afterpass.core.types import KeptItem, Point, Score, Summary, SummaryStatus
from afterpass.summarize import LABEL, support
from afterpass.summarize.replies import NOTHING_SAID

POLICY = SummarizePolicy(min_support=-1.0)
POINT = "The child is killed when the time is over."


def scored(kept: list[KeptItem], point: str, *logits: float | None) -> dict[tuple[UUID, UUID], Score]:
    query = keys.content_hash(point)
    return {
        (query, item.text_hash): Score(query, item.text_hash, logit)
        for item, logit in zip(kept, logits, strict=True)
    }


def summary_of(*points: Point) -> Summary:
    return Summary(status=SummaryStatus.DONE, points=points, calls=1)


def check(summary: Summary, kept: list[KeptItem], scores: Mapping[tuple[UUID, UUID], Score]) -> Summary:
    return support.apply(summary, kept, scores, POLICY)


def test_each_point_is_scored_with_what_it_cites_and_with_others(group_of) -> None:
    _, kept = group_of("one text", "two text", " ", "three text")
    summary = summary_of(Point(text=POINT, items=(kept[1].item_id,)), Point(text="1", marks=(NOTHING_SAID,)))
    pairs = support.pairs(summary, kept)
    assert [pair.text for pair in pairs] == ["two text", "one text", "three text"]
    assert {pair.query for pair in pairs} == {POINT}
    assert pairs[0].query_hash == keys.content_hash(POINT)
    assert pairs[0].text_hash == kept[1].text_hash


def test_the_pairs_of_a_huge_group_are_bounded(group_of) -> None:
    _, kept = group_of(*(f"text number {number}" for number in range(500)))
    summary = summary_of(Point(text=POINT, items=(kept[400].item_id,)))
    pairs = support.pairs(summary, kept)
    assert len(pairs) == 13
    assert pairs[0].text == "text number 400"


def test_a_supported_point_keeps_the_sources_that_support_it(group_of) -> None:
    _, kept = group_of("one text", "two text", "three text")
    point = Point(text=POINT, items=(kept[0].item_id, kept[1].item_id))
    done = check(summary_of(point), kept, scored(kept, POINT, 2.0, -5.0, 4.0))
    (checked,) = done.points
    assert checked.items == (kept[0].item_id,)
    assert checked.support == 2.0
    assert checked.marks == ()
    assert done.text == f"- {POINT} [{keys.reference('i', kept[0].item_id)}]"


def test_a_point_without_support_gets_the_best_supporting_item(group_of) -> None:
    _, kept = group_of("one text", "two text", "three text")
    point = Point(text=POINT, items=(kept[0].item_id,))
    (checked,) = check(summary_of(point), kept, scored(kept, POINT, -6.0, 0.5, 3.0)).points
    assert checked.items == (kept[2].item_id,)
    assert checked.support == 3.0
    assert checked.marks == (support.FOUND,)


def test_a_point_that_nothing_supports_stays_out_of_the_text(group_of) -> None:
    _, kept = group_of("one text", "two text")
    good, bad = Point(text=POINT, items=(kept[0].item_id,)), Point(text="The moon is cheese.", items=())
    scores = scored(kept, POINT, 3.0, -3.0) | scored(kept, bad.text, -8.0, -9.0)
    done = check(summary_of(good, bad), kept, scores)
    assert [point.marks for point in done.points] == [(), (support.NO_SOURCE,)]
    assert done.points[1].items == ()
    assert done.points[1].support == -8.0
    assert "moon" not in done.text
    assert POINT in done.text


def test_where_no_point_passes_extracts_stand_in_and_say_so(group_of) -> None:
    _, kept = group_of("one text", "two text")
    done = check(summary_of(Point(text=POINT)), kept, scored(kept, POINT, -8.0, -9.0))
    assert done.status is SummaryStatus.DONE
    assert done.reason == support.NO_POINT_PASSED
    assert done.text.splitlines()[0] == LABEL
    assert "one text" in done.text
    assert POINT not in done.text


def test_without_scores_a_point_is_unchecked_and_kept(group_of) -> None:
    _, kept = group_of("one text")
    (checked,) = check(summary_of(Point(text=POINT, items=(kept[0].item_id,))), kept, {}).points
    assert checked.marks == (support.UNCHECKED,)
    assert checked.items == (kept[0].item_id,)
    errors = {
        (keys.content_hash(POINT), kept[0].text_hash): Score(
            keys.content_hash(POINT), kept[0].text_hash, None, error="NaN"
        )
    }
    (checked,) = check(summary_of(Point(text=POINT, items=(kept[0].item_id,))), kept, errors).points
    assert checked.marks == (support.UNCHECKED,)


def test_without_a_threshold_only_facts_are_looked_up(group_of) -> None:
    _, kept = group_of("It has 7 wheels.")
    point = Point(text="It has 9 wheels.", items=(kept[0].item_id,))
    done = support.apply(summary_of(point), kept, {}, SummarizePolicy(min_support=None))
    assert done.points[0].marks == ("unsourced: 9",)
    assert done.text.endswith("(not in its sources: 9)")


def test_an_id_from_outside_the_group_is_no_source(group_of) -> None:
    _, kept = group_of("one text")
    point = Point(text=POINT, items=(uuid4(), kept[0].item_id, uuid4()))
    (checked,) = check(summary_of(point), kept, scored(kept, POINT, 2.0)).points
    assert checked.items == (kept[0].item_id,)


def test_a_point_that_says_nothing_is_not_shown(group_of) -> None:
    _, kept = group_of("one text")
    point = Point(text="1, 1", items=(kept[0].item_id,), marks=(NOTHING_SAID,))
    done = check(summary_of(point), kept, {})
    assert done.reason == support.NO_POINT_PASSED
    assert done.points[0].items == ()


@pytest.mark.parametrize("status", [SummaryStatus.SKIPPED, SummaryStatus.ERROR, SummaryStatus.EXTRACT])
def test_what_no_model_wrote_is_not_checked(group_of, status: SummaryStatus) -> None:
    _, kept = group_of("one text")
    summary = Summary(status=status, reason="because")
    assert support.pairs(summary, kept) == []
    assert check(summary, kept, {}) is summary


def test_an_own_output_keeps_its_text(group_of) -> None:
    _, kept = group_of("one text")
    summary = Summary(status=SummaryStatus.DONE, output={"answer": "yes"}, text="yes")
    assert check(summary, kept, {}) == summary


def test_of_points_that_passed_no_more_than_asked_for_are_kept(group_of) -> None:
    _, kept = group_of("one text", "two text", "three text")
    texts = [f"{POINT} {number}" for number in range(3)]
    points = [Point(text=text, items=(item.item_id,)) for text, item in zip(texts, kept, strict=True)]
    scores = {}
    for text, logit in zip(texts, (-6.0, 3.0, 3.0), strict=True):
        scores |= scored(kept, text, logit, logit, logit)
    done = support.apply(summary_of(*points), kept, scores, SummarizePolicy(max_points=1))
    assert [point.text for point in done.points] == texts[:2], "what failed stays to be looked at"
    assert texts[1] in done.text
    assert texts[2] not in done.text
