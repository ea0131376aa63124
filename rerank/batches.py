"""Batches filled by tokens, not rows: what a batch costs is its padded area."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW = 16
"""Rows are sorted by length within about so many batches: enough that padding is a few per cent."""


def padded(length: int, multiple: int) -> int:
    """`length` rounded up to a multiple."""
    return -(-length // multiple) * multiple


def plan(
    lengths: Sequence[int],
    budget: int,
    multiple: int = 8,
    most: int | None = None,
    most_tokens: int | None = None,
) -> list[tuple[int, list[int]]]:
    """Group rows of like length.

    Args:
        lengths: tokens of each row.
        budget: rows times width of a batch at most; a row that is longer alone makes a batch alone.
        multiple: widths are multiples of it.
        most: rows of a batch; None for as many as the budget takes.
        most_tokens: a smaller budget, of whatever runs the batches; None where it has none.

    Returns:
        (width, indices into `lengths`) of each batch, the widest first, so that a lack of memory shows at
        once. Every index stands in exactly one batch.
    """
    budget = min(budget, most_tokens or budget)
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[tuple[int, list[int]]] = []
    rows: list[int] = []
    width = 0
    for index in order:
        if rows and ((len(rows) + 1) * width > budget or len(rows) == most):
            batches.append((width, rows))
            rows = []
        if not rows:
            width = padded(max(lengths[index], 1), multiple)
        rows.append(index)
    if rows:
        batches.append((width, rows))
    return batches
