"""From a pair to the rows that a model is given: clean, tokenise once, cut, choose."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from ..core.clean import Cleaned, clean
from ..core.types import Pair, Score
from .chunks import Span, Tokens, choose, covered, spans, whole_characters
from .decide import NOTHING_TO_READ
from .encoding import Ids, Layout

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PIECE = 50_000
_QUERIES = 4096


@dataclass(slots=True)
class Job:
    """A pair on its way through the model.

    Attributes:
        query: the query's ids, cut to its budget.
        text: all ids of the text; `read` are the spans of it that the model reads.
        excerpts: the recorded text's span of each chunk read.
        logits: what came back, by chunk; None while it has not, or failed.
    """

    pair: Pair
    query: Ids
    text: Ids
    read: list[Span]
    excerpts: list[Span]
    share_read: float
    flags: tuple[str, ...]
    waiting: int
    logits: list[float | None] = field(default_factory=list)
    error: str | None = None
    tokens: int = 0

    def score(self) -> Score:
        """The finished pair: the best chunk's logit (MaxP, Dai and Callan 2019) and its excerpt."""
        query_hash, text_hash = self.pair.query_hash, self.pair.text_hash
        good = [(logit, -index) for index, logit in enumerate(self.logits) if logit is not None]
        if not good:
            return Score(
                query_hash,
                text_hash,
                None,
                chunks=len(self.read),
                tokens=self.tokens,
                share_read=self.share_read,
                flags=self.flags,
                error=self.error or "no_logit",
            )
        logit, index = max(good)
        start, end = self.excerpts[-index]
        flags = self.flags if len(good) == len(self.read) else (*self.flags, "chunk_failed")
        return Score(
            query_hash,
            text_hash,
            logit,
            start,
            end,
            chunks=len(good),
            tokens=self.tokens,
            share_read=self.share_read * len(good) / len(self.read),
            flags=flags,
        )


class Reader:
    """Makes jobs of pairs. Used by one thread; the tokenizer works outside Python's lock."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        layout: Layout,
        *,
        max_length: int,
        query_length: int,
        overlap: int,
        max_chunks: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._lead = layout.lead
        self._specials = layout.specials
        self._max_length = max_length
        self._query_length = query_length
        self._overlap = overlap
        self._max_chunks = max_chunks
        self._unknown = _unknown(tokenizer)
        self._queries: OrderedDict[UUID, Ids] = OrderedDict()

    def read(self, pairs: Sequence[Pair]) -> Iterator[Job | Score]:
        """A job for each pair, or at once a score that says why it cannot be read."""
        cleaned: list[Cleaned | None] = []
        for pair in pairs:
            try:
                cleaned.append(clean(pair.text))
            except Exception:  # told below, where the pair is read alone
                cleaned.append(None)
        try:
            tokenised: Sequence[Tokens | None] = self._tokenise([c.text if c else "" for c in cleaned])
        except Exception:
            tokenised = [None] * len(pairs)
        for pair, text, tokens in zip(pairs, cleaned, tokenised, strict=True):
            try:
                text = clean(pair.text) if text is None else text
                yield self._job(pair, text, self._tokenise([text.text])[0] if tokens is None else tokens)
            except Exception as error:  # a poisoned row never fails its batch
                yield Score(pair.query_hash, pair.text_hash, None, error=f"{type(error).__name__}: {error}")

    def _job(self, pair: Pair, text: Cleaned, tokens: Tokens) -> Job | Score:
        asked = self._query(pair)
        if not len(asked):
            return Score(pair.query_hash, pair.text_hash, None, error="query_without_words")
        if not len(tokens):
            return Score(pair.query_hash, pair.text_hash, None, error=NOTHING_TO_READ)
        query = asked[: self._query_length]
        flags: tuple[str, ...] = ("query_truncated",) if len(asked) > len(query) else ()
        if text.elided:
            flags += ("elided",)
        if self._unknown is not None and 2 * np.count_nonzero(tokens.ids == self._unknown) > len(tokens):
            flags += ("mostly_unknown",)
        room = self._max_length - self._specials - len(query)
        found = spans(tokens.heads, room, self._overlap)
        taken = choose(tokens.ids, found, asked, self._max_chunks)
        read = [found[index] for index in taken]
        share = 1.0
        if len(taken) < len(found):
            share = covered(tokens, read) / max(1, covered(tokens, [(0, len(tokens))]))
            flags += ("chunks_chosen",)
        return Job(
            pair=pair,
            query=query,
            text=tokens.ids,
            read=read,
            excerpts=[_excerpt(pair.text, text, tokens, span) for span in read],
            share_read=share,
            flags=flags,
            waiting=len(read),
            logits=[None] * len(read),
            tokens=sum(end - start + len(query) + self._specials for start, end in read),
        )

    def _query(self, pair: Pair) -> Ids:
        known = self._queries.get(pair.query_hash)
        if known is None:
            known = self._tokenise([clean(pair.query).text])[0].ids
            self._queries[pair.query_hash] = known
            if len(self._queries) > _QUERIES:
                self._queries.popitem(last=False)
        return known

    def _tokenise(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text's tokens. Long ones go in pieces cut before white space, which no token crosses."""
        pieces: list[tuple[int, int, int]] = []
        for index, text in enumerate(texts):
            start = 0
            while len(text) - start > _PIECE + _PIECE // 2:
                end = _blank_before(text, start + _PIECE)
                pieces.append((index, start, end))
                start = end
            pieces.append((index, start, len(text)))
        lead = self._lead
        encoded = self._tokenizer.encode_batch(
            [
                lead + texts[index][start:end] if start == 0 else texts[index][start:end]
                for index, start, end in pieces
            ],
            add_special_tokens=False,
        )
        parts: list[list[Tokens]] = [[] for _ in texts]
        for (index, start, _), encoding in zip(pieces, encoded, strict=True):
            shift = start - (len(lead) if start == 0 else 0)
            offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2) + shift
            np.maximum(offsets, start, out=offsets)
            words = np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)
            heads = np.ones(len(words), np.bool_)
            heads[1:] = words[1:] != words[:-1]
            parts[index].append(Tokens(np.array(encoding.ids, np.int32), offsets[:, 0], offsets[:, 1], heads))
        return [part[0] if len(part) == 1 else _joined(part) for part in parts]


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The id that stands for what the vocabulary does not have, where there is one."""
    model = json.loads(tokenizer.to_str())["model"]
    if isinstance(word := model.get("unk_token"), str):
        return tokenizer.token_to_id(word)
    number = model.get("unk_id")
    return int(number) if number is not None else None


def _joined(parts: Sequence[Tokens]) -> Tokens:
    return Tokens(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.heads for part in parts]),
    )


def _blank_before(text: str, at: int) -> int:
    """The last white space in the 1,000 characters before `at`, or `at`."""
    for place in range(at, at - 1000, -1):
        if text[place].isspace():
            return place
    return at


def _excerpt(recorded: str, text: Cleaned, tokens: Tokens, span: Span) -> Span:
    """A chunk's characters in the recorded text; the first reaches to its beginning, the last to its end."""
    start, end = span
    first = int(tokens.starts[start]) if start > 0 else 0
    last = int(tokens.ends[end - 1]) if end < len(tokens) else len(text.text)
    first, last = text.original(first, last)
    if start == 0:
        first = 0
    if end == len(tokens):
        last = len(recorded)
    return whole_characters(recorded, first, last)
