"""The quick way from a record to a row gives the row of the exact way, or gives up."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.store.ingest_rows import exact_row, fast_row

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


@given(records)
def test_both_ways_give_the_same_row(record: dict[str, Any]) -> None:
    quick = fast_row(record)
    if quick is not None:
        assert quick == exact_row(record)


def test_a_hooks_plain_record_goes_the_quick_way() -> None:
    record = {
        "type": "item",
        "item_id": str(UUID(int=1)),
        "created_at": "2026-01-01T01:00:00+01:00",
        "text": "é\0 \n",
        "run": "r",
        "query": "q",
        "meta": {"a": 1},
    }
    quick = fast_row(record)
    assert quick is not None
    assert quick == exact_row(record)
    assert (quick.chars, quick.blank, quick.place) == (4, False, ("default", "r", "default", "q"))


@pytest.mark.parametrize("wrong", [{"text": None}, {"item_id": 5}, {"priority": 2**40}, {"flags": ["nul"]}])
def test_whatever_is_not_plain_is_left_to_the_exact_way(wrong: dict[str, Any]) -> None:
    record = {"item_id": str(UUID(int=1)), "created_at": "2026-01-01T00:00:00+00:00", "text": "x", **wrong}
    assert fast_row(record) is None
