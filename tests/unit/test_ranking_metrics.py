"""The metrics by which the embedded model is judged, and the halves that keep the judging honest."""

from __future__ import annotations

import math

import numpy as np
import pytest

from afterpass.rerank.training import data, metrics


def test_ndcg_of_the_best_order_is_one_and_counts_what_was_not_ranked() -> None:
    assert metrics.ndcg([3, 2, 1], [2, 1, 0], [2, 1]) == pytest.approx(1.0)
    missed = metrics.ndcg([3, 2, 1], [1, 0, 0], [1, 1])
    assert missed == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_ndcg_gains_are_exponential() -> None:
    swapped = metrics.ndcg([1, 2], [2, 1], [2, 1])
    assert swapped == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)))


def test_nothing_relevant_is_zero() -> None:
    assert metrics.ndcg([1, 2], [0, 0], []) == 0.0
    assert metrics.reciprocal_rank([1, 2], [0, 0]) == 0.0
    assert metrics.average_precision([1, 2], [0, 0], 0) == 0.0


def test_precision_and_reciprocal_rank() -> None:
    assert metrics.reciprocal_rank([3, 2, 1], [0, 1, 0]) == 0.5
    assert metrics.average_precision([4, 3, 2, 1], [1, 0, 1, 0], 2) == pytest.approx((1 + 2 / 3) / 2)


def test_ties_do_not_follow_the_order_given() -> None:
    gains = [1.0] + [0.0] * 9
    mirrored = gains[::-1]
    scores = [0.0] * 10
    assert {metrics.reciprocal_rank(scores, gains), metrics.reciprocal_rank(scores, mirrored)} != {1.0, 0.1}


def test_fusion_ignores_scale_and_survives_equal_scores() -> None:
    one = metrics.fusion([1, 2, 3], [30, 20, 10])
    other = metrics.fusion([10, 20, 30], [3, 2, 1])
    assert one == pytest.approx(other)
    assert np.isfinite(metrics.fusion([1, 1, 1], [0, 0, 0])).all()


def test_an_interval_holds_the_mean() -> None:
    values = np.random.default_rng(1).normal(0.3, 0.1, 200).tolist()
    low, high = metrics.interval(values)
    assert low < float(np.mean(values)) < high


def test_the_halves_never_meet() -> None:
    found = {f"q{i}": data.half_of(f"q{i}") for i in range(200)}
    assert set(found.values()) == {"stop", "test"}
    assert data.half_of("1") == data.half_of("1")
