"""A scorer that needs no model: how much of the query stands in the text, BM25's way.

The small honest stand-in for the cross-encoder (run by the same contract tests), and a fair choice where
no model can be loaded at all. A pair is scored alone, so there is no corpus to learn idf from: a short list
of function words and the length of a word stand in for it, and 150 words for the average length.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.types import Pair, Score

KEY = "lexical/2"

_K1, _B, _AVERAGE = 1.2, 0.75, 150
_WINDOW, _STEP = 200, 150
_BATCH = 64

_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about all an and any are as at be been but by can could did do does for from had has have how i if
        in into is it its me my no not of on or our should so such than that the their them then there these
        they this to was we were what when where which who why will with would you your
        """,
    )
)
# A word; a run of Han, Kana, Hangul or Thai, which are written without spaces between words.
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")


def words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text, folded for comparison, with their first and one-past-last character.

    Scripts without spaces give overlapping pairs of characters.
    """
    for match in _WORD.finditer(text):
        start, end, word = match.start(), match.end(), match[0]
        if word.isascii() or not _UNSPACED.search(word):
            yield _fold(word), start, end
            continue
        at = 0
        for run in _UNSPACED.finditer(word):
            if run.start() > at:
                yield _fold(word[at : run.start()]), start + at, start + run.start()
            at = run.end()
            if len(run[0]) == 1:
                yield run[0], start + run.start(), start + run.end()
            for i in range(run.start(), run.end() - 1):
                yield word[i : i + 2], start + i, start + i + 2
        if at < len(word):
            yield _fold(word[at:]), start + at, end


def _fold(word: str) -> str:
    word = word.casefold()
    # The plural's s is worth more than a stemmer here: it joins most of what English splits.
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _weight(word: str) -> float:
    if word in _FUNCTION_WORDS:
        return 0.1
    return 1.0 + 0.1 * min(len(word), 10) + (0.5 if any(c.isdigit() for c in word) else 0.0)


def score(pair: Pair) -> Score:
    """Score one pair: the best window of 200 words, as share of what the query could earn, from -5 to 5."""
    weights = {word: _weight(word) for word, _, _ in words(pair.query)}
    spans: list[tuple[int, int]] = []
    hits: list[tuple[int, str]] = []
    for index, (word, start, end) in enumerate(words(pair.text)):
        spans.append((start, end))
        if word in weights:
            hits.append((index, word))
    best, best_start = -1.0, 0
    starts = range(0, max(1, len(spans) - _WINDOW + _STEP), _STEP)
    for window, counts in _windows(starts, hits):
        length = min(_WINDOW, len(spans) - window)
        saturation = _K1 * (1 - _B + _B * length / _AVERAGE)
        gained = sum(weights[word] * n * (_K1 + 1) / (n + saturation) for word, n in counts.items())
        if gained > best:
            best, best_start = gained, window
    total = sum(weights.values()) * (_K1 + 1)
    logit = 10.0 * (max(best, 0.0) / total if total else 0.0) - 5.0
    first, last = 0, len(pair.text)
    if len(spans) > _WINDOW:
        first = spans[best_start][0]
        last = spans[min(best_start + _WINDOW, len(spans)) - 1][1]
    return Score(pair.query_hash, pair.text_hash, logit, first, last, chunks=len(starts), tokens=len(spans))


def _windows(starts: range, hits: list[tuple[int, str]]) -> Iterator[tuple[int, Counter[str]]]:
    """Each window's start and how often each of the query's words stands in it."""
    inside: deque[tuple[int, str]] = deque()
    counts: Counter[str] = Counter()
    following = iter(hits)
    ahead = next(following, None)
    for start in starts:
        while ahead is not None and ahead[0] < start + _WINDOW:
            inside.append(ahead)
            counts[ahead[1]] += 1
            ahead = next(following, None)
        while inside and inside[0][0] < start:
            _, word = inside.popleft()
            counts[word] -= 1
            if not counts[word]:
                del counts[word]
        yield start, counts


class LexicalScorer:
    """`core.seams.Scorer` without a model."""

    def __init__(self) -> None:
        self._waiting: deque[Pair] = deque()

    @property
    def key(self) -> str:
        """The judgement key."""
        return KEY

    @property
    def pending(self) -> int:
        """How many pairs wait."""
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many more keep the next step full."""
        return max(0, 2 * _BATCH - len(self._waiting))

    def submit(self, request: Pair) -> None:
        """Take a pair."""
        self._waiting.append(request)

    def step(self) -> list[Score]:
        """Score up to 64 pairs."""
        done = []
        for _ in range(min(_BATCH, len(self._waiting))):
            pair = self._waiting.popleft()
            try:
                done.append(score(pair))
            except Exception as error:  # a poisoned row never fails its batch
                message = f"{type(error).__name__}: {error}"
                done.append(Score(pair.query_hash, pair.text_hash, None, error=message))
        return done

    def about(self) -> Mapping[str, Any]:
        """What it is."""
        return {"model": "lexical", "key": KEY, "backend": "python", "device": "cpu"}

    def close(self) -> None:
        """Nothing to give back."""
        self._waiting.clear()
