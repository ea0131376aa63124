"""The readers' side: rows, Arrow, references, history, explanations, status."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from afterpass.core.errors import UnknownReference
from afterpass.core.keys import new_id, reference
from afterpass.core.types import Item, Point, Selection, Summary, SummaryStatus
from afterpass.store import ledger_pages


@pytest.fixture
def judged(stock: Any, item: Callable[..., Item]) -> Any:
    """Three groups of four items, judged once; the first group's also summarised."""
    for n in range(3):
        stock.record(
            *(
                item(f"{'x' * (k + 1)} {n}", run=f"run-{n}", step=str(k), agent="searcher", meta={"k": k})
                for k in range(4)
            )
        )
        stock.ingest()
    with stock.open() as ledger:
        sweep = stock.judge(ledger, keep=2)
        group = ledger.due_summaries(policies=["default"], sweep_id=sweep)[0]
        best = ledger.kept([group])[group.key][0]
        summary = Summary(
            status=SummaryStatus.DONE,
            text="x it is",
            points=(Point(text="x it is", items=(best.item_id,), support=2.0),),
        )
        ledger.write_summaries(sweep, [(group, [summary])])
    return stock


def test_verdicts_come_group_after_group_best_first(judged: Any) -> None:
    with judged.open(read_only=True) as ledger:
        rows = ledger.verdicts().to_list()
        assert [row.run for row in rows] == [f"run-{n}" for n in range(3) for _ in range(4)]
        assert [row.rank for row in rows] == [1, 2, 3, 4] * 3
        assert [row.text for row in rows[:2]] == ["xxxx 0", "xxx 0"]
        assert rows[0].excerpt == "xxx"
        assert rows[0].meta == {"k": 3}
        assert [row.rank for row in ledger.verdicts(keep=True)] == [1, 2] * 3
        assert [row.rank for row in ledger.verdicts(keep=False, run="run-1")] == [3, 4]
        assert len(ledger.verdicts(limit=5).to_list()) == 5
        assert {row.text for row in ledger.verdicts(text=False)} == {None}
        assert [row.item_id for row in ledger.verdicts(item=rows[7].item_ref)] == [rows[7].item_id]
        assert ledger.verdicts(group=rows[0].group_ref).to_list() == rows[:4]
        assert ledger.verdicts(namespace="nowhere").to_list() == []


def test_pages_give_the_same_rows_as_one(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with judged.open(read_only=True) as ledger:
        whole = ledger.verdicts().to_list()
        monkeypatch.setattr(ledger_pages, "PAGE_ITEMS", 3)
        assert ledger.verdicts().to_list() == whole
        assert ledger.verdicts(limit=6).to_list() == whole[:6]


def test_arrow_has_plain_columns_that_need_nothing_of_ours(judged: Any) -> None:
    import pyarrow as pa

    with judged.open(read_only=True) as ledger:
        table = ledger.verdicts().arrow()
        empty = ledger.verdicts(namespace="nowhere").arrow()
    assert table.schema.field("item_id").type == pa.string()
    assert table.schema.field("logit").type == pa.float32()
    assert table.num_rows == 12
    assert empty.schema == table.schema


def test_other_questions_can_be_asked_while_a_result_is_read(judged: Any) -> None:
    with judged.open() as ledger:
        seen = []
        for row in ledger.verdicts():
            seen.append(row.item_id)
            ledger.explain(row.item_ref)
    assert len(set(seen)) == 12


def test_references_find_what_they_name(judged: Any) -> None:
    with judged.open(read_only=True) as ledger:
        row = next(iter(ledger.verdicts()))
        assert ledger.find(row.item_ref).ids == (row.item_id,)
        assert ledger.find(str(row.item_id)).kind == "item"
        assert ledger.find(row.item_ref.upper().replace("I_", "i_")).ids == (row.item_id,)
        assert ledger.find(row.group_ref).keys == ((row.namespace, row.group_id),)
        assert ledger.find("run-0").ids == (row.group_id,)
        assert ledger.find(row.sweep_ref).kind == "sweep"
        assert ledger.find(f"i_{row.item_id.hex}").ids == (row.item_id,)
        for wrong in ("i_000000000000", "s_abcdef", "run-O", ""):
            with pytest.raises(UnknownReference):
                ledger.find(wrong)
        with pytest.raises(UnknownReference, match=r"near it are.*run-0"):
            ledger.find("run-00")


def test_a_reference_that_several_bear_lists_them(stock: Any, item: Callable[..., Item]) -> None:
    from uuid import UUID

    stock.record(*(item(f"{n}", item_id=UUID(int=(n << 80) + 0xABCDEF)) for n in (1, 2)))
    stock.ingest()
    with stock.open() as ledger:
        with pytest.raises(UnknownReference, match="several") as caught:
            ledger.find("i_abcdef")
        assert len(re.findall(r"i_[0-9a-f]+", str(caught.value))) == 3
        assert ledger.find(f"i_{UUID(int=(1 << 80) + 0xABCDEF).hex}").seq == 1


def test_explaining_an_item_tells_its_whole_story(judged: Any) -> None:
    with judged.open() as ledger:
        best = next(iter(ledger.verdicts(run="run-0")))
        ledger.reopen(Selection(run="run-0"), "redecide")
        judged.judge(ledger, keep=0)
        story = ledger.explain(best.item_ref)
    json.dumps(story)
    assert story["origin"]["agent"] == "searcher"
    assert story["group"]["query"] == "what matters?"
    assert (story["verdict"]["decision"], story["verdict"]["reason"]) == ("drop", "below_top_k")
    assert [verdict["decision"] for verdict in story["earlier_verdicts"]] == ["keep"]
    assert story["scores"][0]["excerpt"] == "xxx"
    assert story["summary"]["points"][0]["text"] == "x it is"
    assert story["summary"]["stale"]
    assert story["state"] == "judged"


def test_explaining_a_group_lists_each_judgement_and_summary(judged: Any) -> None:
    with judged.open() as ledger:
        story = ledger.explain("run-0")
        json.dumps(story)
        assert story["judgements"][0]["kept"] == 2
        assert story["summaries"][0]["text"] == "x it is"
        assert story["sources"] == [{"run": "run-0", "agent": "searcher", "kind": "result", "items": 4}]


def test_an_item_that_waits_says_what_for(stock: Any) -> None:
    (mute,) = stock.fill("silent", query=None)
    (fresh,) = stock.fill("fresh")
    with stock.open() as ledger:
        assert "no query" in ledger.explain(reference("i", mute.item_id))["state"]
        assert "waits" in ledger.explain(reference("i", fresh.item_id))["state"]


def test_history_and_differences_between_sweeps(judged: Any) -> None:
    with judged.open() as ledger:
        first = ledger.sweep("last")
        ledger.reopen(Selection(run="run-1"), "redecide")
        second = judged.judge(ledger, keep=1)
        assert [row.number for row in ledger.history()] == [2, 1]
        assert ledger.sweep(reference("s", second)).account == {"groups": 1}
        difference = ledger.diff(first.ref, "last")
        json.dumps(difference)
        assert difference == ledger.diff("last", first.ref)
    assert difference["config"] == [{"key": "keep", "before": 2, "after": 1}]
    assert difference["same"] == 3
    (changed,) = difference["changed"]
    assert (changed["before"]["decision"], changed["after"]["decision"]) == ("keep", "drop")


def test_status_adds_up(judged: Any, item: Callable[..., Item]) -> None:
    judged.record(item("late", run="run-0"), item("mute", query=None, run="mute"))
    judged.ingest()
    with judged.open(read_only=True) as ledger:
        later = ledger.status(datetime.now(UTC) + timedelta(hours=1), settle=timedelta(minutes=1))
        now = ledger.status(datetime.now(UTC), settle=timedelta(minutes=1))
    json.dumps(later)
    assert later["items"] == {
        "total": 14, "pending": 1, "no_query": 1, "kept": 6, "dropped": 6, "errors": 0,
    }  # fmt: skip
    assert (later["groups"]["due"], now["groups"]["due"], now["groups"]["unsettled"]) == (1, 0, 1)
    assert later["oldest_due_seconds"] == pytest.approx(3600, abs=60)
    assert later["last_good_sweep"]["outcome"] == "done"
    assert later["summaries"] == {"done": 1}
    assert later["bytes"] > 0


def test_a_ledger_in_which_nothing_happened_has_a_status(stock: Any) -> None:
    with stock.open() as ledger:
        status = ledger.status(datetime.now(UTC))
        assert ledger.history() == []
        with pytest.raises(UnknownReference, match="no sweep yet"):
            ledger.sweep("last")
        with pytest.raises(UnknownReference):
            ledger.explain(f"i_{new_id().hex[-12:]}")
    assert (status["items"]["total"], status["last_sweep"], status["oldest_due"]) == (0, None, None)
