"""How a group's token budget is spent: by rank, around what earned the score, packed into prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.summarize.budget import LEAST, allot, choose, pack, split, window
from afterpass.summarize.tokens import GuessCounter

COUNT = GuessCounter()


@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(0, 20_000))
def test_shares_never_exceed_the_budget_or_a_need(needs: list[int], budget: int) -> None:
    shares = allot(needs, budget)
    assert sum(shares) <= budget
    assert all(0 <= share <= need for share, need in zip(shares, needs, strict=True))


@given(st.lists(st.integers(1, 3000), min_size=2, max_size=40), st.integers(64, 20_000))
def test_a_higher_rank_of_equal_need_never_gets_less(needs: list[int], budget: int) -> None:
    shares = allot([max(needs)] * len(needs), budget)
    assert shares == sorted(shares, reverse=True)


@given(st.lists(st.integers(1, 500), max_size=40))
def test_a_budget_for_all_gives_all(needs: list[int]) -> None:
    assert allot(needs, sum(needs)) == needs


def test_what_a_short_item_leaves_goes_to_the_others() -> None:
    shares = allot([10, 1000, 1000], 1000)
    assert shares[0] == 10
    assert sum(shares) >= 995


def test_items_past_the_budget_are_left_out_not_torn() -> None:
    shares = allot([1000] * 100, 10 * LEAST)
    assert [share for share in shares if 0 < share < LEAST] == []
    assert shares[0] > 0
    assert shares[-1] == 0


def test_a_long_item_contributes_its_excerpt(group_of) -> None:
    text = "filler words. " * 400 + "THE ANSWER stands here. " + "more filler. " * 400
    start = text.index("THE ANSWER")
    _, kept = group_of(text)
    item = replace(kept[0], excerpt_start=start, excerpt_end=start + 24)
    pieces, budget = choose([item], 120, 8, COUNT)
    assert "THE ANSWER stands here." in pieces[0].text
    assert pieces[0].text.startswith("... ")
    assert pieces[0].text.endswith(" ...")
    assert budget.cut == 1
    assert budget.left_out == 0
    assert budget.sent <= 120 < budget.wanted


def test_the_receipt_counts_what_was_left_out(group_of) -> None:
    _, kept = group_of(*(f"Passage {number}. " * 40 for number in range(50)))
    pieces, budget = choose(kept, 400, 8, COUNT)
    assert len(pieces) + budget.left_out == 50
    assert budget.left_out > 0
    assert [piece.item.rank for piece in pieces] == list(range(1, len(pieces) + 1))


@pytest.mark.parametrize("text", ["", "x", "word " * 500, "汉字" * 500, "no_spaces" * 300])
def test_a_window_stays_inside_its_text(group_of, text: str) -> None:
    _, kept = group_of(text or " ")
    for tokens in (1, 7, 100):
        for excerpt in ((0, len(kept[0].text)), (len(kept[0].text), len(kept[0].text)), (5, 3)):
            item = replace(kept[0], excerpt_start=excerpt[0], excerpt_end=excerpt[1])
            spans = COUNT.spans(item.text)
            piece = window(item, spans, tokens)
            assert 0 <= piece.start <= piece.end <= len(item.text)
            assert piece.tokens <= max(tokens, 0) or piece.tokens == len(spans)


def test_a_split_piece_loses_no_word(group_of) -> None:
    words = [f"word{number}" for number in range(1000)]
    _, kept = group_of(" ".join(words))
    whole = window(kept[0], COUNT.spans(kept[0].text), 10**6)
    parts = split(whole, 150, COUNT)
    assert len(parts) > 3
    assert " ".join(kept[0].text[part.start : part.end].strip() for part in parts).split() == words
    assert all(COUNT(kept[0].text[part.start : part.end]) <= 150 for part in parts)


def test_prompts_are_filled_evenly_and_in_rank_order(group_of) -> None:
    _, kept = group_of(*(f"Passage number {number} says something. " * 12 for number in range(60)))
    pieces, _ = choose(kept, 10**6, 8, COUNT)
    packed = pack(pieces, 1000, 8, COUNT)
    sizes = [sum(piece.tokens + 8 for piece in part) for part in packed]
    assert max(sizes) <= 1000
    assert min(sizes) >= max(sizes) // 2
    assert [piece.item.rank for part in packed for piece in part] == list(range(1, 61))


def test_what_fits_one_prompt_is_one_prompt(group_of) -> None:
    _, kept = group_of("one", "two")
    pieces, _ = choose(kept, 1000, 8, COUNT)
    assert len(pack(pieces, 1000, 8, COUNT)) == 1
