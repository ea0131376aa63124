"""The segment's bytes: what is written is read, and damage costs what it hit."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime
from uuid import UUID
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterpass.core.types import Item
from afterpass.store.spool import clean, close_record, item_of, item_record
from afterpass.store.spool_format import (
    Counts,
    Header,
    check,
    counts_line,
    dump,
    header_line,
    line,
    parse_counts,
    parse_header,
)

ID = UUID("0190f0a0-0000-7000-8000-00000000abcd")

texts = st.text(st.characters(codec=None), max_size=200)  # lone surrogates and NUL included
names = st.none() | st.text(string.printable, max_size=20)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.booleans() | st.none()))
def test_a_line_gives_back_what_it_took(record: dict[str, object]) -> None:
    raw = line(dump(record))
    assert raw.count(b"\n") == 1
    assert raw.endswith(b"\n")
    payload = check(raw[:-1])
    assert payload is not None
    assert json.loads(payload) == record


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_break_the_check(raw: bytes) -> None:
    payload = check(raw)
    assert payload is None or raw == line(payload)[:-1]


def test_a_header_gives_back_what_it_took() -> None:
    header = Header(
        segment_id=ID,
        host="box",
        pid=4,
        created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        writer="9.9.9",
        settled=True,
        about={"source": "a.jsonl"},
    )
    raw = header_line(header)
    assert raw.startswith(b"afterpass segment 1 ")
    assert parse_header(raw[:-1]) == header


def test_a_header_of_a_later_version_says_so() -> None:
    payload = header_line(Header(segment_id=ID))[:-1].partition(b" {")[2]
    start = b"afterpass segment 27 "
    header = parse_header(b"%b%08x {%b" % (start, crc32(start + b"{" + payload), payload))
    assert header is not None
    assert header.version == 27


def test_a_version_that_was_only_damaged_is_no_later_version() -> None:
    raw = header_line(Header(segment_id=ID))[:-1]
    assert parse_header(raw.replace(b"segment 1 ", b"segment 9 ", 1)) is None


@pytest.mark.parametrize(
    "raw", [b"", b"afterpass segment", b"afterpass segment x 00000000 {}", b"PK\x03\x04"]
)
def test_what_is_no_header_is_none(raw: bytes) -> None:
    assert parse_header(raw) is None


def test_counts_travel_as_differences_of_totals() -> None:
    first = Counts(0, 5, 3, {"bad_meta": 3})
    later = Counts(9, 6, 7, {"bad_meta": 3, "too_long": 4})
    payload = check(counts_line(later.since(first), last=True)[:-1])
    assert payload is not None
    assert parse_counts(json.loads(payload)) == Counts(9, 1, 4, {"too_long": 4})


def test_counts_of_nonsense_are_zero() -> None:
    assert parse_counts({"rows": "many", "refused": True, "reasons": [1]}) == Counts()


@settings(deadline=None)
@given(texts, texts, names, names, st.integers(-(2**31), 2**31 - 1))
def test_an_item_comes_back_clean_and_flagged(
    text: str, query: str, group: str | None, run: str | None, priority: int
) -> None:
    item = Item(
        item_id=ID,
        text=text,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        query=query,
        group=group,
        run=run,
        priority=priority,
        meta={"said": text},
    )
    back = item_of(json.loads(dump(item_record(item))))
    assert (back.group, back.run, back.priority) == (group, run, priority)
    assert back.text == clean(text)[0]
    assert back.query == clean(query)[0]
    assert back.meta == {"said": back.text}
    surrogate = any("\ud800" <= character <= "\udfff" for character in text + query)
    assert ("lone_surrogate" in back.flags) == surrogate
    assert ("nul" in back.flags) == ("\0" in text + query)
    back.text.encode()  # and no surrogate is left


def test_only_lone_surrogates_are_replaced() -> None:
    assert clean("a\ud83d\ude00b") == ("a\U0001f600b", True)  # two halves of one character
    assert clean("a\ud83db") == ("a\ufffdb", True)
    assert clean("a\ud83d") == ("a\ufffd", True)
    assert clean({"\udc00": ["\udc00", 1, None]}) == ({"\ufffd": ["\ufffd", 1, None]}, True)
    assert clean("déjà\0vu\u2028") == ("déjà\0vu\u2028", False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": None}, "no_text"),
        ({"text": 5}, "wrong_type: text"),
        ({"item_id": "x"}, "wrong_type: item_id"),
        ({"created_at": None}, "no_created_at"),
        ({"created_at": "yesterday"}, "wrong_type: created_at"),
        ({"deadline": 5}, "wrong_type: deadline"),
        ({"priority": True}, "wrong_type: priority"),
        ({"priority": 2**40}, "wrong_type: priority"),
        ({"meta": [1]}, "wrong_type: meta"),
        ({"flags": "nul"}, "wrong_type: flags"),
        ({"run": 4}, "wrong_type: run"),
    ],
)
def test_a_record_that_says_no_item_says_why(change: dict[str, object], reason: str) -> None:
    record = {"type": "item", "item_id": str(ID), "created_at": "2026-01-01T00:00:00+00:00", "text": "x"}
    with pytest.raises(ValueError, match=f"^{reason}$"):
        item_of({**record, **change})


def test_a_control_record_names_what_is_complete() -> None:
    record = close_record(namespace="n", group="g")
    assert {name: record[name] for name in ("type", "namespace", "group")} == {
        "type": "close",
        "namespace": "n",
        "group": "g",
    }
    assert "run" not in record
