"""The demo's library as a search engine would have it: passages under a BM25 index, kept in a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .corpus import Passage

_WORD = re.compile(r"[a-z0-9]+")
_ENDINGS = ("ing", "ed", "es", "ly", "s")


class Library:
    """Passages, searchable.

    Args:
        passages: what there is.
        index: a `bm25s.BM25` over them.
    """

    def __init__(self, passages: Sequence[Passage], index: Any) -> None:
        self.passages = passages
        self._index = index
        self._place = {passage.text: number for number, passage in enumerate(passages)}

    @classmethod
    def build(cls, passages: Sequence[Passage]) -> Library:
        """Index passages."""
        import bm25s

        index = bm25s.BM25()
        index.index([words(passage.text) for passage in passages], show_progress=False)
        return cls(passages, index)

    def save(self, folder: Path) -> None:
        """Keep it for other processes."""
        folder.mkdir(parents=True, exist_ok=True)
        self._index.save(str(folder / "bm25s"))
        rows = (json.dumps([passage.symbol, passage.text]) for passage in self.passages)
        (folder / "passages.jsonl").write_text("\n".join(rows), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Library:
        """Take a kept one."""
        import bm25s

        rows = (folder / "passages.jsonl").read_text("utf-8").split("\n")
        return cls([Passage(*json.loads(row)) for row in rows], bm25s.BM25.load(str(folder / "bm25s")))

    def search(self, query: str, k: int) -> list[Passage]:
        """The `k` best passages by BM25, best first."""
        found, _ = self._index.retrieve([words(query)], k=k, show_progress=False)
        return [self.passages[int(number)] for number in found[0]]

    def rank(self, query: str, texts: Sequence[str]) -> list[str]:
        """Texts of this library by their BM25 score for a query, best first; ties in their given order."""
        scores = self._index.get_scores(words(query))
        return sorted(texts, key=lambda text: -scores[self._place[text]])


def words(text: str) -> list[str]:
    """Lower-case words without their commonest endings; names fall apart at dots and underscores."""
    return [_stem(word) for word in _WORD.findall(text.lower())]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word
