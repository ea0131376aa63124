"""What record() takes: checked in the caller's thread, encoded in the writer's."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterpass.core import keys
from afterpass.hooks import values
from afterpass.hooks.values import Refused, check, encode, redacted
from afterpass.store.spool import item_of
from afterpass.store.spool_format import check as checksum_holds


def written(text: Any, **given: Any) -> Any:
    payload = checksum_holds(encode(check(text, **given))[:-1])
    assert payload is not None
    return item_of(json.loads(payload))


def test_everything_given_arrives() -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    item = written(
        "text",
        query="q",
        group="g",
        run="r",
        step="s",
        kind="tool",
        agent="a",
        policy="p",
        namespace="n",
        id="mine",
        created_at=moment,
        priority=-3,
        deadline=moment + timedelta(hours=1),
        meta={"a": [1, {"b": None}]},
    )
    assert item.item_id == keys.given_item_id("n", "mine")
    assert (item.text, item.query, item.group, item.run, item.step) == ("text", "q", "g", "r", "s")
    assert (item.kind, item.agent, item.policy, item.namespace) == ("tool", "a", "p", "n")
    assert (item.created_at, item.deadline) == (moment, moment + timedelta(hours=1))
    assert (item.priority, item.meta, item.flags) == (-3, {"a": [1, {"b": None}]}, ())


def test_ids_of_ones_own_are_the_same_everywhere_and_others_follow_time() -> None:
    assert check("x", id=5).item_id == check("y", id="5").item_id
    assert check("x", id="5", namespace="other").item_id != check("x", id="5").item_id
    made = UUID(check("x").item_id)
    assert made.version == 7
    assert check("x").item_id >= str(made)[:13]
    check("x", id="\ud800")  # even a name that has no UTF-8 gives an id


def test_frameworks_names_are_taken_as_text() -> None:
    run = UUID(int=7)
    item = written("x", run=run, step=3, group=12)
    assert (item.run, item.step, item.group) == (str(run), "3", "12")


def test_a_time_without_a_zone_is_local_and_flagged() -> None:
    naive = datetime(2026, 7, 1, 9, 30)
    item = written("x", created_at=naive)
    assert item.created_at.timestamp() == naive.timestamp()
    assert item.created_at.tzinfo is not None
    assert item.flags == ("naive_time",)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"text": None}, "no_text"),
        ({"text": b"bytes"}, "wrong_type: text"),
        ({"text": {"a": 1}}, "wrong_type: text"),
        ({"query": 5}, "wrong_type: query"),
        ({"group": ["g"]}, "wrong_type: group"),
        ({"step": True}, "wrong_type: step"),
        ({"kind": None}, "wrong_type: kind"),
        ({"policy": None}, "wrong_type: policy"),
        ({"id": 1.5}, "wrong_type: id"),
        ({"id": True}, "wrong_type: id"),
        ({"created_at": "2026-01-01"}, "wrong_type: created_at"),
        ({"deadline": 1767225600}, "wrong_type: deadline"),
        ({"deadline": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))}, "bad_value: deadline"),
        ({"priority": 1.0}, "wrong_type: priority"),
        ({"priority": 2**31}, "wrong_type: priority"),
        ({"meta": "text"}, "wrong_type: meta"),
        ({"meta": {"a": object()}}, "bad_meta"),
        ({"meta": {"a": float("nan")}}, "bad_meta"),
        ({"meta": {(1, 2): 3}}, "bad_meta"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=f"^{reason}$"):
        check(**{"text": "x", **given})


def test_a_meta_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(Refused, match="bad_meta"):
        check("x", meta=loop)


def test_meta_is_taken_as_it_was_when_recorded() -> None:
    meta = {"n": [1]}
    entry = check("x", meta=meta)
    meta["n"].append(2)
    assert json.loads(entry.meta or "") == {"n": [1]}


@settings(deadline=None)
@given(st.text(st.characters(codec=None), max_size=300), st.integers(0, 8))
def test_slicing_a_long_text_changes_nothing(text: str, length: int) -> None:
    long, values._LONG = values._LONG, max(length, 1)
    try:
        sliced = written(text, query="q", meta={"m": text})
    finally:
        values._LONG = long
    assert sliced.text == written(text).text
    assert sliced.meta == {"m": sliced.text}


def test_a_line_that_no_reader_would_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_LINE", 1000)
    with pytest.raises(Refused, match="too_long"):
        encode(check("x" * 1000))


def test_redaction_gives_the_fields_to_write() -> None:
    seen: dict[str, Any] = {}

    def redact(item: Any) -> Any:
        seen.update(item)
        return {**item, "text": "[gone]", "meta": {}, "run": 5, "item_id": "changed"}

    entry = check("secret", run="r", meta={"token": "t"}, created_at=datetime(2026, 1, 1))
    left = redacted(entry, redact)
    assert (seen["text"], seen["meta"], seen["item_id"]) == ("secret", {"token": "t"}, entry.item_id)
    assert seen["created_at"].tzinfo is not None
    assert (left.text, left.meta, left.run, left.item_id) == ("[gone]", None, "5", entry.item_id)
    assert left.flags == ("naive_time",)
    assert left.created_at == seen["created_at"].astimezone(UTC)


@pytest.mark.parametrize(
    ("gives", "reason"),
    [
        (None, "redacted"),
        ("text", "wrong_type: redaction"),
        ({}, "wrong_type: redaction"),
        ({"text": "x", "unknown": 1}, "wrong_type: redaction"),
        ({"text": 5}, "wrong_type: text"),
    ],
)
def test_redaction_that_gives_no_item_refuses_it(gives: Any, reason: str) -> None:
    with pytest.raises(Refused, match=f"^{reason}$"):
        redacted(check("x"), lambda item: gives)  # noqa: ARG005
