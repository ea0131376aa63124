"""Which groups are due, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from afterpass.core.errors import UnknownReference
from afterpass.core.keys import new_id, reference
from afterpass.core.types import Item, Selection

SETTLE = timedelta(seconds=60)


def ask(ledger: Any, **changed: Any) -> list[Any]:
    options: dict[str, Any] = {
        "policies": ["default"],
        "now": datetime.now(UTC),
        "settle": SETTLE,
        "sweep_id": new_id(),
    }
    return list(ledger.due_groups(**{**options, **changed}))


def test_a_group_is_due_once_it_was_quiet(stock: Any) -> None:
    stock.fill("a", "b")
    with stock.open() as ledger:
        assert ask(ledger) == []
        (group,) = ask(ledger, now=datetime.now(UTC) + SETTLE)
        assert ask(ledger, settle=None) == [group]
    assert (group.items, group.chars, group.query, group.name) == (2, 2, "what matters?", "run-1")


def test_a_closed_group_does_not_wait(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("a"), item("b", run="run-2"), close="run-1")
    stock.ingest()
    with stock.open() as ledger:
        assert [group.name for group in ask(ledger)] == ["run-1"]


def test_an_item_after_the_close_opens_its_group_again(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("a"), close="run-1")
    stock.record(item("late"))
    stock.ingest()
    with stock.open() as ledger:
        assert ask(ledger) == []


def test_imports_do_not_wait_nor_hold_up_what_is_still_arriving(
    stock: Any, item: Callable[..., Item]
) -> None:
    stock.record(item("imported", run="old"), settled=True)
    stock.record(item("live", run="new"))
    stock.record(item("imported too", run="new"), settled=True)
    stock.ingest()
    with stock.open() as ledger:
        assert [group.name for group in ask(ledger)] == ["old"]
        assert len(ask(ledger, now=datetime.now(UTC) + SETTLE)) == 2


def test_priority_comes_first_then_the_deadline_then_who_waited_longest(
    stock: Any, item: Callable[..., Item]
) -> None:
    now = datetime.now(UTC)
    stock.record(
        item("a", run="waited"),
        item("b", run="no hurry", deadline=now + timedelta(days=2)),
        item("c", run="hurry", deadline=now + timedelta(days=1)),
        item("d", run="urgent", priority=5),
        item("e", run="urgent", priority=-1),
    )
    stock.record(item("f", run="waited less"))
    stock.ingest()
    with stock.open() as ledger:
        names = [group.name for group in ask(ledger, settle=None)]
    assert names == ["urgent", "hurry", "no hurry", "waited", "waited less"]


def test_what_is_judged_is_due_again_only_when_something_new_came(stock: Any) -> None:
    stock.fill("a", "b")
    with stock.open() as ledger:
        sweep = stock.judge(ledger)
        assert ask(ledger, settle=None) == []
    stock.fill("c")
    with stock.open() as ledger:
        assert ask(ledger, settle=None, sweep_id=sweep) == []  # a sweep judges a group once
        (group,) = ask(ledger, settle=None)
        assert (group.items, group.judged_sweep) == (3, sweep)


def test_every_group_that_is_not_due_has_its_reason(stock: Any, item: Callable[..., Item]) -> None:
    stock.fill("a")
    with stock.open() as ledger:
        stock.judge(ledger)
    stock.record(
        item("b", run="fresh"),
        item("c", run="mute", query=None),
        item("d", run="blank query", query=" \n"),
        item("e", run="strange", policy="nobody knows"),
    )
    stock.ingest()
    with stock.open() as ledger:
        waiting = ledger.waiting(policies=["default"], now=datetime.now(UTC), settle=SETTLE)
    assert waiting == {"unsettled": 1, "no_query": 2, "unknown_policy": 1, "nothing_new": 1}


def test_a_selection_names_groups_by_name_by_reference_and_by_run(
    stock: Any, item: Callable[..., Item]
) -> None:
    stock.record(
        item("a", group="shared", run="one"),
        item("b", group="shared", run="two"),
        item("c", group="shared", run="two", query="another"),
        item("d", run="three", namespace="elsewhere"),
    )
    stock.ingest()
    with stock.open() as ledger:

        def names(selection: Selection) -> list[Any]:
            return sorted((g.name, g.query) for g in ask(ledger, settle=None, selection=selection))

        assert names(Selection(group="shared")) == [("shared", "another"), ("shared", "what matters?")]
        assert names(Selection(run="one")) == [("shared", "what matters?")]
        assert names(Selection(run="one", namespace="elsewhere")) == []
        assert names(Selection(namespace="elsewhere")) == [("three", "what matters?")]
        by_name = ask(ledger, settle=None, selection=Selection(run="one"))[0]
        assert names(Selection(group=reference("g", by_name.group_id))) == [("shared", "what matters?")]
        assert ask(ledger, settle=None, selection=Selection(run="two"), without=[by_name.key]) != []
        with pytest.raises(UnknownReference, match="nowhere"):
            names(Selection(group="nowhere"))


def test_the_same_name_in_two_namespaces_is_two_groups(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("a"), item("a", namespace="other"))
    stock.ingest()
    with stock.open() as ledger:
        groups = ask(ledger, settle=None)
    assert {(group.namespace, group.items) for group in groups} == {("default", 1), ("other", 1)}
    assert groups[0].group_id != groups[1].group_id


def test_a_page_has_no_more_groups_than_asked_for(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(*(item("x", run=f"r{n}") for n in range(5)))
    stock.ingest()
    with stock.open() as ledger:
        page = ask(ledger, settle=None, limit=3)
        rest = ask(ledger, settle=None, limit=3, without=[group.key for group in page])
    assert sorted(group.name for group in page + rest) == ["r0", "r1", "r2", "r3", "r4"]
