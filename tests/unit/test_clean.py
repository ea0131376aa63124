"""What a model is shown, and the way back."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.core.clean import clean

BLOB = base64.b64encode(random.Random(0).randbytes(3000)).decode()
pieces = st.lists(
    st.sampled_from(
        [
            "plain ",
            "\x1b[1;31m",
            "\x1b[0m",
            BLOB + " ",
            "é́",
            "機械学習",
            "🧵",
            "\0",
            "\n",
            "\x1b",
            "\x1b]0;t\x07",
        ]
    ),
    max_size=12,
)


@given(pieces)
def test_untouched_spans_read_back(parts: list[str]) -> None:
    text = "".join(parts)
    cleaned = clean(text)
    shown = 0
    for start, end, first, last in [
        *cleaned.cuts,
        (len(cleaned.text), len(cleaned.text), len(text), len(text)),
    ]:
        if shown < start:
            a, b = cleaned.original(shown, start)
            assert text[a:b] == cleaned.text[shown:start]
            assert b <= first
        if start < end:
            assert cleaned.original(start, end) == (first, last)
        shown = end


@given(pieces, st.data())
def test_any_span_maps_inside_and_in_order(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cleaned = clean(text)
    a = data.draw(st.integers(0, len(cleaned.text)))
    b = data.draw(st.integers(a, len(cleaned.text)))
    start, end = cleaned.original(a, b)
    assert 0 <= start <= end <= len(text)
    assert clean(text[start:end]).text.startswith(cleaned.text[a:b]) or cleaned.elided or "\x1b" in text


def test_plain_text_is_itself() -> None:
    assert clean("nothing to do here 🧵").text == "nothing to do here 🧵"
    assert clean("").text == ""


def test_escapes_go() -> None:
    text = "\x1b[1m\x1b[31mError:\x1b[0m no such file\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x9b2Kdone"
    cleaned = clean(text)
    assert cleaned.text == "Error: no such filelink done"
    start, end = cleaned.original(0, 6)
    assert text[start:end] == "Error:"


def test_a_blob_becomes_its_size() -> None:
    text = f"image: data:image/png;base64,{BLOB} end"
    cleaned = clean(text)
    assert cleaned.text == f"image: data:image/png;base64,[{len(BLOB)} characters of base64] end"
    assert cleaned.elided == len(BLOB)
    wrapped = "\n".join(BLOB[i : i + 76] for i in range(0, len(BLOB), 76))
    assert clean(f"before\n{wrapped}\nafter").text == f"before\n[{len(wrapped)} characters of base64]\nafter"
    assert "of hex]" in clean(random.Random(1).randbytes(400).hex()).text


@pytest.mark.parametrize(
    "text",
    ["a" * 5000, "-" * 500, "/usr/lib/some/path" * 40, "snake_case_name_" * 30, "漢字" * 500, BLOB[:200]],
)
def test_what_is_no_blob_stays(text: str) -> None:
    assert clean(text).text == text


def test_long_texts_take_linear_time() -> None:
    for unit in ("a", "ab1 ", "\x1b", "\x1b[", "A1b2" * 9 + " ", "A1b2" * 12 + "\n"):
        text = unit * (2_000_000 // len(unit))
        assert len(clean(text).text) <= len(text) + 64
