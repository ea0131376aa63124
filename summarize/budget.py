"""What of the kept items a model reads: a token budget, spent by rank, cut around what earned the score."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.types import KeptItem
from .tokens import TokenCounter

LEAST = 24
"""An item that would get fewer tokens than this (and has more) is left out: a torn line helps nobody."""

_SNAP = 0.2


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one item's text, `text[start:end]`, that goes into one prompt."""

    item: KeptItem
    start: int
    end: int
    tokens: int

    @property
    def text(self) -> str:
        """The stretch; "..." where something was cut off."""
        before = "... " if self.start > 0 else ""
        after = " ..." if self.end < len(self.item.text) else ""
        return before + self.item.text[self.start : self.end].strip() + after


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The receipt of a group's budget.

    Attributes:
        wanted: tokens of all kept items.
        sent: tokens that go to the model (marks around them apart).
        left_out: items of which nothing is sent.
        cut: items of which only a part is sent.
    """

    wanted: int = 0
    sent: int = 0
    left_out: int = 0
    cut: int = 0


def allot(needs: Sequence[int], budget: int, least: int = LEAST) -> list[int]:
    """Divide a budget among items in rank order: higher ranks get more, what one leaves goes to the others.

    Each item first gets what it needs up to `least`, best first, until nothing is left (the rest gets 0);
    what remains is shared in proportion to 1/sqrt(rank), never more than an item needs.
    """
    shares = [0] * len(needs)
    left = budget
    reached = 0
    for reached, need in enumerate(needs, start=1):
        floor = min(need, least)
        if floor > left:
            reached -= 1
            break
        shares[reached - 1] = floor
        left -= floor
    # Water-filling: the level to which everybody is filled, in proportion to weight, once the small are full.
    hungry = [(needs[i] - shares[i], 1 / math.sqrt(i + 1), i) for i in range(reached) if needs[i] > shares[i]]
    weight = sum(own for _, own, _ in hungry)
    level, filling = 0.0, float(left)
    for want, own, _ in sorted(hungry, key=lambda entry: entry[0] / entry[1]):
        level = filling / weight
        if want > level * own:
            break
        filling -= want
        weight -= own
    for want, own, index in hungry:
        given = min(want, int(level * own), left)
        shares[index] += given
        left -= given
    for _, _, index in hungry:  # what rounding left, best first
        if left > 0 and shares[index] < needs[index]:
            shares[index] += 1
            left -= 1
    return shares


def choose(
    kept: Sequence[KeptItem], budget: int, frame: int, counter: TokenCounter
) -> tuple[list[Piece], Budget]:
    """The stretch of each kept item that fits the budget, best first, and the receipt.

    Args:
        kept: items that are not blank, in rank order.
        budget: tokens for all of them, marks included.
        frame: tokens of the marks around one item.
        counter: the model's tokenizer.
    """
    spans = [counter.spans(item.text) for item in kept]
    needs = [len(item_spans) for item_spans in spans]
    shares = [
        max(0, share - frame) for share in allot([need + frame for need in needs], budget, LEAST + frame)
    ]
    pieces = []
    cut = 0
    for item, item_spans, share in zip(kept, spans, shares, strict=True):
        if share <= 0:
            continue
        piece = window(item, item_spans, share)
        cut += piece.tokens < len(item_spans)
        pieces.append(piece)
    return pieces, Budget(
        wanted=sum(needs),
        sent=sum(piece.tokens for piece in pieces),
        left_out=len(kept) - len(pieces),
        cut=cut,
    )


def window(item: KeptItem, spans: Sequence[tuple[int, int]], tokens: int) -> Piece:
    """The stretch of at most so many tokens around the item's excerpt.

    The excerpt comes first; room that it leaves goes two thirds to what follows and one third to what
    comes before. An excerpt that is itself too long is read from its start.
    """
    total = len(spans)
    if total <= tokens:
        return Piece(item, 0, len(item.text), total)
    first = bisect.bisect_right([span[1] for span in spans], item.excerpt_start)
    last = bisect.bisect_left([span[0] for span in spans], max(item.excerpt_end, item.excerpt_start + 1))
    first, last = min(first, total - 1), max(min(last, total), first + 1)
    if last - first >= tokens:
        last = first + tokens
    else:
        spare = tokens - (last - first)
        first = max(0, first - spare // 3)
        last = min(total, first + tokens)
        first = max(0, last - tokens)
    start, end = spans[first][0] if first else 0, spans[last - 1][1] if last < total else len(item.text)
    start, end = _snap(item.text, start, end)
    return Piece(item, start, end, last - first)


def split(piece: Piece, room: int, counter: TokenCounter) -> list[Piece]:
    """A piece in consecutive parts of at most `room` tokens each, cut at white space where there is some."""
    if piece.tokens <= room:
        return [piece]
    text = piece.item.text
    spans = counter.spans(text[piece.start : piece.end])
    parts = []
    at = 0
    while at < len(spans):
        stop = min(at + room, len(spans))
        start = piece.start + (spans[at][0] if at else 0)
        end = piece.start + spans[stop - 1][1] if stop < len(spans) else piece.end
        if stop < len(spans):
            end = _snap(text, start, end)[1]
            stop = max(
                at + 1, bisect.bisect_right([span[1] for span in spans[at:stop]], end - piece.start) + at
            )
        parts.append(Piece(piece.item, start, end, stop - at))
        at = stop
    return parts


def pack(pieces: Sequence[Piece], room: int, frame: int, counter: TokenCounter) -> list[list[Piece]]:
    """Pieces in rank order, packed into prompts of at most `room` tokens (marks included), evenly filled."""
    total = sum(piece.tokens + frame for piece in pieces)
    if total <= room:
        return [list(pieces)] if pieces else []
    # As few prompts as needed, each about as full as the others: no short one that is read more closely.
    target = min(room, math.ceil(total / math.ceil(total / (room * 0.9))) + frame)
    packed: list[list[Piece]] = [[]]
    filled = 0
    for whole in pieces:
        for piece in split(whole, target - frame, counter):
            if packed[-1] and filled + piece.tokens + frame > target:
                packed.append([])
                filled = 0
            packed[-1].append(piece)
            filled += piece.tokens + frame
    return packed


def _snap(text: str, start: int, end: int) -> tuple[int, int]:
    """Move cut ends inward to white space, where some is near: scripts without spaces stay as they are."""
    reach = int((end - start) * _SNAP)
    if start > 0 and not text[start - 1].isspace():
        for at in range(start, min(start + min(reach, 80), end)):
            if text[at].isspace():
                start = at + 1
                break
    if end < len(text) and not text[end].isspace():
        for at in range(end - 1, max(end - min(reach, 80), start), -1):
            if text[at].isspace():
                end = at
                break
    return start, end
