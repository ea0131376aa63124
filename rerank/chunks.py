"""A long text in overlapping chunks: where they begin and end, which are read, and what an excerpt is.

Everything counts in tokens of the text's one tokenisation; nothing is tokenised again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .encoding import Ids

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A tokenised text.

    Attributes:
        ids: token ids, (tokens,).
        starts, ends: each token's first and one-past-last character in the text, (tokens,).
        heads: whether a token begins a word, (tokens,).
    """

    ids: Ids
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    heads: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)


def spans(heads: NDArray[np.bool_], room: int, overlap: int) -> list[Span]:
    """Cut `len(heads)` tokens into chunks of at most `room` that overlap by about `overlap`.

    Chunks begin at words where one begins near; every token is in a chunk; the last is as long as the others.

    Args:
        heads: whether each token begins a word.
        room: tokens a chunk may have.
        overlap: tokens that neighbours share, less than `room`.
    """
    count = len(heads)
    if count <= room:
        return [(0, count)]
    slack = min(16, (room - overlap) // 4)
    found: list[Span] = []
    start = 0
    while count - start > room:
        end = _word_at(heads, start + room, slack)
        found.append((start, end))
        start = max(_word_at(heads, end - overlap, slack), start + 1)
    found.append((min(start, _word_at(heads, count - room, -slack)), count))
    return found


def _word_at(heads: NDArray[np.bool_], at: int, slack: int) -> int:
    """The nearest word's beginning at `at` or up to `slack` tokens before it (after it, where negative)."""
    step = -1 if slack > 0 else 1
    for place in range(at, at - slack + step, step):
        if 0 <= place < len(heads) and heads[place]:
            return place
    return at


def choose(ids: Ids, found: Sequence[Span], query: Ids, limit: int) -> list[int]:
    """Which chunks to read where there are more than `limit`: first and last, then by BM25 (Robertson and
    Zaragoza 2009) against the query, over token ids, and evenly spread where no word of the query stands.

    Returns:
        Indices into `found`, ascending.
    """
    count = len(found)
    if count <= limit:
        return list(range(count))
    ends = [0, count - 1][:limit]
    scores = bm25(ids, found, query)
    scores[ends] = -1.0
    by_score = [int(index) for index in np.argsort(-scores, kind="stable") if scores[index] > 0]
    taken = ends + by_score[: limit - len(ends)]
    if missing := limit - len(taken):
        left = np.setdiff1d(np.arange(count), taken)
        taken += [int(left[at]) for at in np.linspace(0, len(left) - 1, missing).round().astype(int)]
    return sorted(set(taken))


def bm25(ids: Ids, found: Sequence[Span], query: Ids) -> NDArray[np.float32]:
    """BM25 of each chunk against the query, with the chunks as the corpus, (chunks,)."""
    import bm25s

    vocabulary, dense = np.unique(ids, return_inverse=True)
    asked = np.unique(query)
    places = np.searchsorted(vocabulary, asked)
    known = [int(p) for p, q in zip(places, asked, strict=True) if p < len(vocabulary) and vocabulary[p] == q]
    if not known:
        return np.zeros(len(found), np.float32)
    engine = bm25s.BM25(method="lucene")
    corpus = bm25s.tokenization.Tokenized(
        ids=[dense[start:end].tolist() for start, end in found],
        vocab={str(token): token for token in range(len(vocabulary))},
    )
    engine.index(corpus, show_progress=False)
    return np.asarray(engine.get_scores_from_ids(known), np.float32)


def covered(tokens: Tokens, read: Iterable[Span]) -> int:
    """Characters that stand in the spans, each counted once."""
    total = last = 0
    for start, end in sorted(read):
        if end > start:
            first = max(int(tokens.starts[start]), last)
            last = max(last, int(tokens.ends[end - 1]))
            total += max(0, last - first)
    return total


def whole_characters(text: str, start: int, end: int) -> Span:
    """Widen a span so that it cuts no character as people see it: combining marks, variation selectors and
    joined emoji stay with what they belong to."""
    while 0 < start < len(text) and _belongs(text, start):
        start -= 1
    while 0 < end < len(text) and _belongs(text, end):
        end += 1
    return start, end


def _belongs(text: str, at: int) -> bool:
    """Whether the character at `at` continues the one before it."""
    character, before = text[at], text[at - 1]
    if character.isascii():
        return False
    return (
        unicodedata.category(character).startswith("M")  # marks, variation selectors
        or character == "\u200d"
        or before == "\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
    )


def is_cover(found: Sequence[Span], count: int) -> bool:
    """Whether chunks leave no token out, in order (what `spans` promises)."""
    return found[0][0] == 0 and found[-1][1] == count and all(a[0] < b[0] <= a[1] for a, b in pairwise(found))
