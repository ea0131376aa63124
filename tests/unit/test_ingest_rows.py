"""The quick way from a record to a row gives the row of the exact way, or gives up."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.store.ingest_rows import exact_row, plain_row

words = st.text(max_size=8)
maybe = st.none() | words
anything = st.none() | st.booleans() | st.integers() | st.floats() | words | st.lists(words, max_size=2)
records = st.fixed_dictionaries(
    {
        "item_id": st.uuids().map(str) | st.sampled_from(["", "x", "{" + str(UUID(int=7)) + "}", "0" * 32]),
        "text": st.text(max_size=30) | anything,
        "created_at": st.datetimes().map(lambda at: at.isoformat())
        | st.sampled_from(["2026-01-01T00:00:00+00:00", "0001-01-01T00:00:00+14:00", "now"]),
    },
    optional={
        **dict.fromkeys(("group", "run", "query", "step", "agent"), maybe | anything),
        **dict.fromkeys(("namespace", "kind", "policy"), words | anything),
        "priority": st.integers(-(2**33), 2**33) | anything,
        "meta": st.dictionaries(words, words | st.integers() | st.none(), max_size=3) | anything,
    },
)


def as_json(record: dict[str, Any]) -> bytes:
    return json.dumps({"type": "item", **record}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def read(payload: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(payload.decode("utf-8", "surrogatepass"))
    return record


@given(records)
def test_both_ways_give_the_same_row(record: dict[str, Any]) -> None:
    payload = as_json(record)
    quick = plain_row(payload)
    if quick is not None:
        assert quick == exact_row(read(payload))


def test_a_hooks_plain_record_goes_the_quick_way() -> None:
    record = {
        "item_id": str(UUID(int=1)),
        "created_at": "2026-01-01T01:00:00+01:00",
        "deadline": "2026-01-02T01:00:00+01:00",
        "text": "é\0 \n",
        "run": "r",
        "query": "q",
        "meta": {"a": 1},
        "flags": ["nul"],
    }
    quick = plain_row(as_json(record))
    assert quick is not None
    assert quick == exact_row(record)
    assert (quick.chars, quick.blank, quick.place) == (4, False, ("default", "r", "default", "q"))


PLAIN = {"item_id": str(UUID(int=1)), "created_at": "2026-01-01T00:00:00+00:00", "text": "x"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": None},
        {"text": 5},
        {"item_id": 5},
        {"item_id": "0" * 30},
        {"item_id": "0 " * 16},
        {"priority": 2**40},
        {"priority": True},
        {"priority": 1.0},
        {"deadline": None},
        {"deadline": "soon"},
        {"group": None},
        {"flags": [1]},
        {"flags": None},
        {"meta": None},
        {"meta": {"a": "\ud800"}},
        {"text": "\ud800"},
        {"type": "close"},
        {"type": "later than us"},
    ],
    ids=str,
)
def test_whatever_is_not_plain_is_left_to_the_exact_way(wrong: dict[str, Any]) -> None:
    assert plain_row(as_json({**PLAIN, **wrong})) is None


@pytest.mark.parametrize(
    "meta",
    [
        "1", "-0", "-0.0", "1.0", "0.1", "1e5", "1E400", "-1E400", "123456789012345678901234567890", "5e-324",
        "2.2250738585072011e-308", "0.30000000000000004", "9007199254740993.0", "NaN", "-Infinity", "true",
        "null", '{"a":1,"a":2}', '"\\u00e9\\ud83d\\ude00"', '"\\/"', '"\\ud83d"', "[[[[[]]]]]",
        "[" * 500 + "]" * 500,
        "1" * 5000,
    ],
)  # fmt: skip
def test_json_of_all_kinds_in_meta_is_read_as_pythons_parser_reads_it(meta: str) -> None:
    payload = as_json(PLAIN)[:-1] + f', "meta": {{"m": {meta}}}}}'.encode()
    quick = plain_row(payload)
    if quick is not None:
        assert quick == exact_row(read(payload))


@pytest.mark.parametrize(
    "payload",
    [
        as_json(PLAIN)[:-1] + b', "text": "y"}',
        as_json({**PLAIN, "text": "y"})[:-1] + b', "text": "x", "unknown": [1, {"a": 2}]}',
        as_json(PLAIN)[:-1] + b', "priority": 5, "priority": 6}',
        as_json(PLAIN)[:-1] + b', "run": "a", "run": null}',
        as_json(PLAIN).replace(b'"text"', b'"te\\u0078t"'),
        b" \t" + as_json(PLAIN) + b"\r",
    ],
)
def test_a_name_said_twice_or_in_another_spelling_is_read_as_pythons_parser_reads_it(payload: bytes) -> None:
    quick = plain_row(payload)
    if quick is not None:
        assert quick == exact_row(read(payload))


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b"null", b"\xff", as_json(PLAIN) + b"x", as_json(PLAIN)[:-1] + b",}"]
)
def test_what_is_no_json_is_no_plain_record(broken: bytes) -> None:
    assert plain_row(broken) is None
