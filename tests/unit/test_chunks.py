"""Cutting, choosing and reading back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.rerank import batches
from afterpass.rerank.chunks import choose, is_cover, spans, whole_characters


@given(st.lists(st.booleans(), max_size=600), st.integers(8, 64), st.data())
def test_chunks_cover_every_token_within_their_room(
    heads: list[bool], room: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, room - 4))
    found = spans(np.array(heads, bool), room, overlap)
    assert is_cover(found, len(heads))
    assert all(0 <= start <= end <= start + room for start, end in found)
    if len(heads) <= room:
        assert len(found) == 1


def test_chunks_begin_at_words_and_overlap() -> None:
    heads = np.arange(1000) % 3 == 0
    found = spans(heads, 100, 20)
    assert all(heads[start] for start, _ in found)
    assert all(before[1] - after[0] >= 20 for before, after in pairwise(found))


def test_chosen_chunks_hold_the_query_and_both_ends() -> None:
    ids = np.full(10_000, 7, np.int32)
    ids[5_000:5_003] = [91, 92, 93]
    found = spans(np.ones(len(ids), bool), 100, 20)
    taken = choose(ids, found, np.array([91, 92], np.int32), 8)
    assert len(taken) == 8
    assert taken[0] == 0
    assert taken[-1] == len(found) - 1
    assert any(found[index][0] <= 5_000 < found[index][1] for index in taken)


def test_without_a_word_of_the_query_the_chosen_are_spread() -> None:
    ids = np.full(10_000, 7, np.int32)
    found = spans(np.ones(len(ids), bool), 100, 20)
    taken = choose(ids, found, np.array([91], np.int32), 8)
    gaps = np.diff([found[index][0] for index in taken])
    assert len(taken) == 8
    assert gaps[1:-1].max() < 1.2 * gaps[1:-1].min()


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_chunks_allowed(limit: int) -> None:
    ids = np.arange(5_000, dtype=np.int32)
    found = spans(np.ones(len(ids), bool), 100, 20)
    assert len(choose(ids, found, np.array([2_500], np.int32), limit)) == limit


@pytest.mark.parametrize(
    ("text", "span", "whole"),
    [
        ("cafe\u0301 x", (0, 4), "cafe\u0301"),
        ("a👩‍👩‍👧b", (2, 4), "👩‍👩‍👧"),
        ("👍🏽!", (0, 1), "👍🏽"),
        ("❤️ x", (0, 1), "❤️"),
        ("مَرحَبا", (0, 1), "مَ"),
        ("นี่", (0, 1), "นี่"),
        ("plain", (1, 3), "la"),
        ("", (0, 0), ""),
    ],
)
def test_excerpts_cut_no_character(text: str, span: tuple[int, int], whole: str) -> None:
    start, end = whole_characters(text, *span)
    assert text[start:end] == whole


@given(st.lists(st.integers(1, 300), max_size=200), st.integers(16, 4096), st.sampled_from([1, 8, 16]))
def test_batches_hold_every_row_once_within_the_budget(
    lengths: list[int], budget: int, multiple: int
) -> None:
    planned = batches.plan(lengths, budget, multiple)
    assert sorted(index for _, rows in planned for index in rows) == list(range(len(lengths)))
    for width, rows in planned:
        assert width % multiple == 0
        assert all(lengths[index] <= width for index in rows)
        assert len(rows) == 1 or width * len(rows) <= budget
    widths = [width for width, _ in planned]
    assert widths == sorted(widths, reverse=True)
