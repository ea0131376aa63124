"""Texts of a group that say almost the same: MinHash (Broder 1997) over word shingles, by datasketch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from .lexical import words

PERMUTATIONS = 128
"""The estimate of a Jaccard similarity is off by about 1 / sqrt(128), 0.09 at most (one sigma, at 0.5)."""

_SHINGLE = 3
_MOST = 200_000


def near_duplicates(texts: Mapping[UUID, str], threshold: float) -> dict[UUID, UUID]:
    """Which texts count as another one.

    The longest text of a bunch stands for it (then the smallest hash), so the answer does not depend on the
    order in which texts come. Every text that is near is near to its representative itself: no chains.

    Args:
        texts: by text hash.
        threshold: Jaccard similarity of their sets of three-word shingles from which two count as one.

    Returns:
        The representative's hash for each text that is not one itself.
    """
    if len(texts) < 2:
        return {}
    from datasketch import MinHash, MinHashLSH

    index: Any = MinHashLSH(threshold=_below(threshold), num_perm=PERMUTATIONS)
    sets: dict[UUID, frozenset[int]] = {}
    follows: dict[UUID, UUID] = {}
    for text_hash in sorted(texts, key=lambda key: (-len(texts[key]), key)):
        shingles = _shingles(texts[text_hash])
        sketch = MinHash(num_perm=PERMUTATIONS, hashfunc=_identity)
        sketch.update_batch(list(shingles))
        # The index only proposes; the sets decide, exactly.
        near = [(_jaccard(shingles, sets[other]), other) for other in index.query(sketch)]
        near = [(similarity, other) for similarity, other in near if similarity >= threshold]
        if near:
            follows[text_hash] = min(near, key=lambda pair: (-pair[0], pair[1]))[1]
        else:
            index.insert(text_hash, sketch)
            sets[text_hash] = shingles
    return follows


def _below(threshold: float) -> float:
    """The index is asked a little wider than wanted, so that the estimate's error costs few pairs."""
    return min(max(0.05, threshold - 0.15), 0.95)


def _shingles(text: str) -> frozenset[int]:
    """32-bit hashes of runs of three words; of the words themselves where there are fewer."""
    found = [word for word, _, _ in words(text[:_MOST])]
    size = min(_SHINGLE, max(1, len(found)))
    grams = (" ".join(found[at : at + size]) for at in range(max(1, len(found) - size + 1)))
    return frozenset(zlib.crc32(gram.encode("utf-8", "surrogatepass")) for gram in grams)


def _jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def _identity(value: int) -> int:
    return value
