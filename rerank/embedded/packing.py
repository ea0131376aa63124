"""From token ids to the model's inputs. numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PAD, CLS, SEP = 0, 101, 102
"""Token ids of the base model's vocabulary."""

QUERY, TEXT = 1, 2
"""Side ids; 0 is padding."""

SPECIALS = 4
"""How many special tokens a packed pair carries: `[CLS]` and `[SEP]` on each side."""


def pack(
    queries: Sequence[Sequence[int]], texts: Sequence[Sequence[int]], *, width: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lay pairs out as `[CLS] query [SEP] [CLS] text [SEP]`, padded on the right.

    Args:
        queries: token ids of each query, without special tokens.
        texts: token ids of each text (or chunk), without special tokens.
        width: pad to so many tokens; the longest pair's where not given.

    Returns:
        `input_ids` and `side_ids` (1 query, 2 text, 0 padding), each of shape (pairs, width).

    Raises:
        ValueError: a pair is longer than `width`, or there are not as many queries as texts.
    """
    longest = max((len(q) + len(t) for q, t in zip(queries, texts, strict=True)), default=0) + SPECIALS
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"a pair of {longest} tokens does not fit a width of {width}")
    input_ids = np.full((len(queries), width), PAD, np.int64)
    side_ids = np.zeros_like(input_ids)
    for row, (query, text) in enumerate(zip(queries, texts, strict=True)):
        middle = len(query) + 2
        end = middle + len(text) + 2
        input_ids[row, :end] = [CLS, *query, SEP, CLS, *text, SEP]
        side_ids[row, :middle] = QUERY
        side_ids[row, middle:end] = TEXT
    return input_ids, side_ids
