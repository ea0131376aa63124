"""From the relevance data to training lists: balanced over sets, with negatives mined two ways.

A list is one query with its positives, the negatives that came with it, and negatives mined by BM25 (here)
and by the bi-encoder (in `features`) from a pool of the same set. The development sets are read here too, in
two halves that never meet: `stop` (even first byte of the SHA-256 of the query's id) to stop and choose,
`test` for the final figures.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Half = Literal["stop", "test", "all"]

QUERIES = {
    # Heavily covered tools (115 make up all of metatool) and long medical pages are held down.
    "metatool": 300,
    "squad_sent": 900,
    "nl2bash": 500,
    "tldr_cmd": 500,
    "tldr_page": 300,
    "selqa": 600,
    "nq": 700,
    "cosqa": 700,
    "pubmedqa": 350,
    "medquad": 350,
    "covidqa": 350,
    "doc_sections": 450,
    "py_docstring": 450,
}
"""Queries taken of each set for a round of training; `DEFAULT` of those not named."""
DEFAULT = 400


@dataclass(frozen=True, slots=True)
class RankingList:
    """One query and its candidates; `texts` are indices into the set's texts, `gains` are 0 or more."""

    qid: str
    query: str
    texts: tuple[int, ...]
    gains: tuple[float, ...]
    bm25: tuple[float, ...] = ()
    ideal: tuple[float, ...] = ()
    """Grades of all relevant documents, candidates or not, best first: what nDCG divides by."""


@dataclass(slots=True)
class Dataset:
    """A set's unique texts and the lists over them."""

    name: str
    texts: list[str] = field(default_factory=list)
    lists: list[RankingList] = field(default_factory=list)


class _Texts:
    """Gives each text its index, the same text always the same one."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        if (found := self._index.get(text)) is not None:
            return found
        self._index[text] = len(self.all)
        self.all.append(text)
        return len(self.all) - 1


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a `.jsonl.zst` file."""
    import zstandard

    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def half_of(qid: str) -> Half:
    """ "stop" where the first byte of the id's SHA-256 is even, else "test"."""
    return "stop" if hashlib.sha256(qid.encode()).digest()[0] % 2 == 0 else "test"


def development(folder: Path, half: Half, *, depth: int = 30) -> list[Dataset]:
    """The development sets' lists of one half: the given candidates, or BM25's first `depth`."""
    found = []
    for path in sorted((folder / "dev").glob("*.jsonl.zst")):
        texts, lists = _Texts(), []
        for record in read(path):
            if half != "all" and half_of(record["qid"]) != half:
                continue
            candidates = record["cands"]
            if record["pool"] != "given":
                candidates = sorted(candidates, key=lambda c: -c["bm25"])[:depth]
            if not candidates:
                continue
            lists.append(
                RankingList(
                    qid=record["qid"],
                    query=record["query"],
                    texts=tuple(texts.add(c["text"]) for c in candidates),
                    gains=tuple(float(c["rel"]) for c in candidates),
                    bm25=tuple(float(c["bm25"]) for c in candidates),
                    ideal=tuple(sorted((float(grade) for grade in record["qrels"].values()), reverse=True)),
                )
            )
        found.append(Dataset(path.name.removesuffix(".jsonl.zst"), texts.all, lists))
    return found


def training(
    folder: Path,
    *,
    seed: int = 0,
    skip: int = 0,
    mined: int = 16,
    scale: float = 1.0,
    names: Collection[str] = (),
) -> list[Dataset]:
    """Training lists with negatives mined by BM25.

    Args:
        folder: the data's folder; only `train/` is read.
        seed: of the order in which a set's queries are taken.
        skip: how many rounds of queries to leave out from the start of that order (0 is the first round).
        mined: BM25 negatives of a list at most, from the pool that the round's texts make up.
        scale: of the number of queries of each set.
        names: only these sets; all where empty.
    """
    return [
        _train_set(path, seed, skip, mined, scale)
        for path in sorted((folder / "train").glob("*.jsonl.zst"))
        if not names or path.name.removesuffix(".jsonl.zst") in names
    ]


def _train_set(path: Path, seed: int, skip: int, mined: int, scale: float) -> Dataset:
    import bm25s

    name = path.name.removesuffix(".jsonl.zst")
    records = list(read(path))
    random.Random(f"{seed}:{name}").shuffle(records)
    count = int(QUERIES.get(name, DEFAULT) * scale)
    start = skip * count % max(1, len(records) - count)
    chosen = records[start : start + count]
    texts = _Texts()
    given = []
    for record in chosen:
        positives = [texts.add(text) for text in record["pos"]]
        negatives = [texts.add(text) for text in record["neg"][:3] + record["bm25_neg"][:3]]
        given.append((record["q"], positives, negatives))
    tokenized = bm25s.tokenize(texts.all, stopwords="en", show_progress=False)
    index = bm25s.BM25()
    index.index(tokenized, show_progress=False)
    asked = bm25s.tokenize([q for q, _, _ in given], stopwords="en", show_progress=False)
    depth = min(mined, len(texts.all))
    best, scores = index.retrieve(asked, k=depth, show_progress=False)
    lists = []
    for row, (query, positives, negatives) in enumerate(given):
        extra = [int(i) for i, s in zip(best[row], scores[row], strict=True) if s > 0]
        order = list(dict.fromkeys(positives + negatives + extra))
        gains = tuple(float(index in set(positives)) for index in order)
        if len(order) > len(positives):
            lists.append(RankingList(f"{name}:{start + row}", query, tuple(order), gains))
    return Dataset(name, texts.all, lists)


def pool_texts(datasets: Sequence[Dataset]) -> dict[str, list[str]]:
    """Texts by set, for the frequency table."""
    return {dataset.name: dataset.texts for dataset in datasets}
