"""Ranking metrics and paired bootstrap intervals. numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def order(scores: ArrayLike, seed: int = 0) -> NDArray[np.int64]:
    """Best first; ties fall in a random but fixed order, so that the order of the file helps nobody."""
    values = np.asarray(scores, np.float64)
    return np.lexsort((np.random.default_rng(seed).permutation(len(values)), -values))


def ndcg(scores: ArrayLike, gains: ArrayLike, ideal: ArrayLike, *, at: int = 10) -> float:
    """nDCG with gain 2^grade - 1; `ideal` has the grades of all relevant documents, also those not ranked."""
    grades = np.asarray(gains, np.float64)[order(scores)][:at]
    best = np.sort(np.asarray(ideal, np.float64))[::-1][:at]
    reached = ((2**grades - 1) / np.log2(np.arange(len(grades)) + 2)).sum()
    possible = ((2**best - 1) / np.log2(np.arange(len(best)) + 2)).sum()
    return float(reached / possible) if possible else 0.0


def average_precision(scores: ArrayLike, gains: ArrayLike, relevant: int) -> float:
    """Mean over the `relevant` documents of the precision at each one's rank; 0 for those not ranked."""
    hits = np.asarray(gains)[order(scores)] > 0
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].sum() / max(1, relevant))


def reciprocal_rank(scores: ArrayLike, gains: ArrayLike) -> float:
    """1 over the rank of the first relevant document, 0 without one."""
    hits = np.flatnonzero(np.asarray(gains)[order(scores)] > 0)
    return float(1 / (hits[0] + 1)) if len(hits) else 0.0


def standardise(scores: ArrayLike) -> NDArray[np.float64]:
    """z-scores within one list; zeros where all are equal."""
    values = np.asarray(scores, np.float64)
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def fusion(first: ArrayLike, second: ArrayLike, weight: float = 0.5) -> NDArray[np.float64]:
    """Per-group fusion: z-scores of the first plus `weight` times those of the second."""
    return standardise(first) + weight * standardise(second)


def interval(values: Sequence[float], *, rounds: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the mean. For a paired comparison hand in the differences."""
    numbers = np.asarray(values, np.float64)
    if not len(numbers):
        return 0.0, 0.0
    drawn = np.random.default_rng(seed).integers(0, len(numbers), (rounds, len(numbers)))
    low, high = np.quantile(numbers[drawn].mean(1), [0.025, 0.975])
    return float(low), float(high)
