"""A sweep's way through the ledger: pairs, scores, verdicts, summaries, doing over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from afterpass.core.keys import content_hash, new_id
from afterpass.core.types import (
    Decision,
    Item,
    Point,
    Reply,
    Score,
    Selection,
    Summary,
    SummaryStatus,
    Verdict,
)

MODEL = "lexical"


def test_a_pair_is_scored_once_however_often_it_was_recorded(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(
        item("same"),
        item("same"),
        item("other"),
        item("  "),
        item("same", run="run-2"),
        item("", run="run-2"),
    )
    stock.ingest()
    with stock.open() as ledger:
        groups = stock.due(ledger)
        work = ledger.pairs_to_score(groups, MODEL)
        assert (work.items, work.duplicates, work.cached, work.blank, len(work.pairs)) == (6, 2, 0, 2, 2)
        first = work.pairs[0]
        ledger.write_scores(new_id(), MODEL, [Score(first.query_hash, first.text_hash, 1.5)])
        after = ledger.pairs_to_score(groups, MODEL)
        assert (after.cached, [pair.text_hash for pair in after.pairs]) == (1, [content_hash("other")])
        assert len(ledger.pairs_to_score(groups, "another model").pairs) == 2


def test_a_failed_score_never_counts_and_a_good_one_stays(stock: Any) -> None:
    stock.fill("text")
    with stock.open() as ledger:
        groups = stock.due(ledger)
        (pair,) = ledger.pairs_to_score(groups, MODEL).pairs
        key = (pair.query_hash, pair.text_hash)
        ledger.write_scores(new_id(), MODEL, [Score(*key, None, error="out of memory")])
        assert ledger.pairs_to_score(groups, MODEL).pairs == [pair]
        assert ledger.scores(MODEL, [key]) == {}
        assert ledger.scores(MODEL, [key], errors=True)[key].error == "out of memory"
        (candidate,) = ledger.candidates(groups, MODEL)[groups[0].key]
        assert (candidate.logit, candidate.error) == (None, "out of memory")
        ledger.write_scores(new_id(), MODEL, [Score(*key, 2.5, 0, 4, flags=("query_truncated",))])
        ledger.write_scores(new_id(), MODEL, [Score(*key, None, error="later trouble")])
        (candidate,) = ledger.candidates(groups, MODEL)[groups[0].key]
        assert (candidate.logit, candidate.error) == (2.5, None)
        assert ledger.scores(MODEL, [key])[key].flags == ("query_truncated",)


@pytest.mark.parametrize("logit", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_not_finite_is_stored_as_an_error(stock: Any, logit: float) -> None:
    stock.fill("text")
    with stock.open() as ledger:
        groups = stock.due(ledger)
        (pair,) = ledger.pairs_to_score(groups, MODEL).pairs
        ledger.write_scores(new_id(), MODEL, [Score(pair.query_hash, pair.text_hash, logit)])
        (candidate,) = ledger.candidates(groups, MODEL)[groups[0].key]
        assert candidate.logit is None
        assert "finite" in (candidate.error or "")
        assert ledger._file.rows("SELECT count(*) FROM score WHERE isnan(logit)") == [(0,)]


def test_verdicts_and_the_judged_mark_come_together_and_only_once(stock: Any) -> None:
    items = stock.fill("short", "a longer one", "  ")
    with stock.open() as ledger:
        sweep = stock.judge(ledger, keep=1)
        rows = ledger.verdicts().to_list()
        assert [(row.item_id, row.decision, row.rank) for row in rows] == [
            (items[1].item_id, "keep", 1),
            (items[0].item_id, "drop", 2),
            (items[2].item_id, "drop", None),
        ]
        assert rows[0].excerpt == "a l"
        (group,) = stock.due(ledger, selection=Selection()) or [None]
        assert group is None
        again = ledger.due_summaries(policies=["default"], sweep_id=new_id())
        written = ledger.write_verdicts(
            sweep, MODEL, [(again[0], [Verdict(1, Decision.KEEP, "twice", 1, 1.0)])], policy_hash={}
        )
        assert written == 0
        assert ledger._file.rows("SELECT count(*) FROM verdict") == [(3,)]


def test_what_arrived_after_the_page_was_read_is_left_for_the_next(stock: Any) -> None:
    stock.fill("first")
    with stock.open() as ledger:
        groups = stock.due(ledger)
    stock.fill("second, longer")
    with stock.open() as ledger:
        stock.judge(ledger, groups=groups)
        assert [row.text for row in ledger.verdicts()] == ["first"]
        (group,) = stock.due(ledger)
        assert group.items == 2
        sweep = stock.judge(ledger, groups=[group])
        current = ledger.verdicts().to_list()
        assert {row.text: row.decision for row in current} == {"second, longer": "keep", "first": "drop"}
        assert {row.sweep_id for row in current} == {sweep}
        assert ledger._file.rows("SELECT count(*) FROM verdict") == [(3,)]  # the earlier one stays


def test_kept_items_come_best_first_with_their_excerpts_and_without_duplicates(stock: Any) -> None:
    stock.fill("aaaa", "bb", "cccccc")
    with stock.open() as ledger:
        stock.judge(ledger, keep=2)
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=new_id())
        kept = ledger.kept([group])[group.key]
    assert [(item.text, item.rank, item.excerpt) for item in kept] == [
        ("cccccc", 1, "ccc"),
        ("aaaa", 2, "aaa"),
    ]


def summary(status: SummaryStatus, **values: Any) -> Summary:
    return Summary(status=status, text=values.pop("text", "said"), **values)


def test_an_extract_is_shown_and_leaves_its_group_due(stock: Any) -> None:
    stock.fill("a", "bb")
    with stock.open() as ledger:
        stock.judge(ledger)
        sweep = new_id()
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=sweep)
        ledger.write_summaries(sweep, [(group, [summary(SummaryStatus.EXTRACT, text="bb")])])
        assert ledger.due_summaries(policies=["default"], sweep_id=sweep) == []
        assert ledger.due_summaries(policies=["default"], sweep_id=new_id()) == [group]
        assert [(row.status, row.text, row.stale) for row in ledger.summaries()] == [("extract", "bb", False)]
        point = Point(
            text="b is better", items=(ledger.verdicts(keep=True).to_list()[0].item_id,), support=0.5
        )
        ledger.write_summaries(
            sweep, [(group, [summary(SummaryStatus.DONE, points=(point,), output={"a": [1]})])]
        )
        assert ledger.due_summaries(policies=["default"], sweep_id=new_id()) == []
        (row,) = ledger.summaries().to_list()
        assert (row.status, row.points, row.output) == ("done", (point,), {"a": [1]})


@pytest.mark.parametrize("status", [SummaryStatus.DONE, SummaryStatus.SKIPPED, SummaryStatus.ERROR])
def test_a_finished_summary_is_stale_once_the_verdicts_are_newer(stock: Any, status: SummaryStatus) -> None:
    stock.fill("a")
    with stock.open() as ledger:
        stock.judge(ledger)
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=new_id())
        ledger.write_summaries(new_id(), [(group, [summary(status)])])
        assert ledger.due_summaries(policies=["default"], sweep_id=new_id()) == []
    stock.fill("bb")
    with stock.open() as ledger:
        assert [row.stale for row in ledger.summaries()] == [False]
        stock.judge(ledger)
        assert [row.stale for row in ledger.summaries()] == [True]
        assert len(ledger.due_summaries(policies=["default"], sweep_id=new_id())) == 1


def test_summaries_of_items_stand_beside_each_other(stock: Any) -> None:
    stock.fill("a", "bb", "ccc")
    with stock.open() as ledger:
        stock.judge(ledger, keep=2)
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=new_id())
        kept = ledger.kept([group])[group.key]
        ledger.write_summaries(
            new_id(), [(group, [summary(SummaryStatus.DONE, text=k.text, item_seq=k.seq) for k in kept])]
        )
        rows = ledger.summaries().to_list()
    assert {row.item_id: row.text for row in rows} == {k.item_id: k.text for k in kept}


def test_only_finished_replies_are_given_again(stock: Any) -> None:
    with stock.open() as ledger:
        hashes = [new_id() for _ in range(3)]
        ledger.write_replies(
            new_id(),
            "lm",
            [
                (hashes[0], 0, Reply(id="x", text="yes", prompt_tokens=7, output_tokens=1)),
                (hashes[1], 1, Reply(id="y", text="cut o", finish_reason="length")),
                (hashes[2], 0, Reply(id="z", finish_reason="error", error="died")),
            ],
        )
        found = ledger.replies("lm", hashes)
        assert ledger.replies("another lm", hashes) == {}
    assert {key: (reply.text, reply.prompt_tokens) for key, reply in found.items()} == {hashes[0]: ("yes", 7)}


def test_redeciding_uses_the_scores_that_are_there(stock: Any) -> None:
    stock.fill("a", "bb")
    with stock.open() as ledger:
        stock.judge(ledger, keep=1)
        assert ledger.reopen(Selection(), "redecide") == 1
        assert [row.decision for row in ledger.verdicts()] == ["keep", "drop"]  # the old ones meanwhile
        groups = stock.due(ledger)
        assert ledger.pairs_to_score(groups, MODEL).cached == 2
        stock.judge(ledger, keep=2, groups=groups)
        assert [row.decision for row in ledger.verdicts()] == ["keep", "keep"]


def test_rejudging_scores_anew_and_an_old_score_is_no_way_out(stock: Any) -> None:
    stock.fill("a", "bb")
    with stock.open() as ledger:
        stock.judge(ledger)
        assert ledger.reopen(Selection(run="run-1"), "rejudge") == 1
        groups = stock.due(ledger)
        work = ledger.pairs_to_score(groups, MODEL)
        assert (work.cached, len(work.pairs)) == (0, 2)
        failed = work.pairs[0]
        ledger.write_scores(
            new_id(), MODEL, [Score(failed.query_hash, failed.text_hash, None, error="broken now")]
        )
        candidates = {c.text_hash: c for c in ledger.candidates(groups, MODEL)[groups[0].key]}
        assert candidates[failed.text_hash].error == "broken now"
        assert all(candidate.logit is None for candidate in candidates.values())


def test_retrying_reopens_only_what_ended_in_an_error(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("fine", run="good"), item("poison", run="bad"))
    stock.ingest()
    with stock.open() as ledger:
        sweep = new_id()
        ledger.start_sweep(sweep, config={}, started=datetime.now(UTC))
        good, bad = sorted(stock.due(ledger, sweep), key=lambda group: group.name, reverse=True)
        for group, verdict in (
            (good, Verdict(good.last_seq, Decision.KEEP, "top_k", 1, 1.0)),
            (bad, Verdict(bad.last_seq, Decision.ERROR, "engine died")),
        ):
            ledger.write_verdicts(sweep, MODEL, [(group, [verdict])], policy_hash={})
        for group in ledger.due_summaries(policies=["default"], sweep_id=sweep):
            status = SummaryStatus.ERROR if group.name == "good" else SummaryStatus.SKIPPED
            ledger.write_summaries(sweep, [(group, [summary(status)])])
        assert ledger.reopen(Selection(), "retry_errors") == 2
        assert [group.name for group in stock.due(ledger)] == ["bad"]
        assert [g.name for g in ledger.due_summaries(policies=["default"], sweep_id=new_id())] == ["good"]


def test_a_sweep_that_never_ended_is_marked_killed_by_the_next(stock: Any) -> None:
    with stock.open() as ledger:
        first, second = new_id(), new_id()
        ledger.start_sweep(first, config={}, started=datetime.now(UTC))
        assert [row.outcome for row in ledger.history()] == [None]
        ledger.start_sweep(second, config={}, started=datetime.now(UTC))
        ledger.end_sweep(second, outcome="done", account={"nan": float("nan")}, ended=datetime.now(UTC))
        assert [(row.sweep_id, row.outcome) for row in ledger.history()] == [
            (second, "done"),
            (first, "killed"),
        ]


def test_nothing_to_do_asks_nothing_and_writes_nothing(stock: Any) -> None:
    with stock.open() as ledger:
        assert ledger.pairs_to_score([], MODEL).pairs == []
        assert ledger.candidates([], MODEL) == {}
        assert ledger.kept([]) == {}
        assert ledger.texts([]) == {}
        assert ledger.scores(MODEL, []) == {}
        assert ledger.replies(MODEL, []) == {}
        ledger.write_scores(new_id(), MODEL, [])
        ledger.write_summaries(new_id(), [])
        assert ledger.write_verdicts(new_id(), MODEL, [], policy_hash={}) == 0
        assert ledger.verdicts().to_list() == []
        assert ledger.verdicts().arrow().num_rows == 0
        assert ledger.summaries().arrow().column_names[0] == "namespace"
