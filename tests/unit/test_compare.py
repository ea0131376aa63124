"""Old judgements against new: what counts as the same, as noise, and as changed."""

from __future__ import annotations

import pytest

from afterpass.sweep import compare
from afterpass.sweep.compare import Decisions, State


def test_equal_scores_are_the_same() -> None:
    found = compare.scores([1.0, -2.5], [1.0, -2.5], [1.0, -2.5])
    assert (found.state, found.exact, found.largest) == (State.SAME, 2, 0.0)


def test_what_two_runs_differ_by_is_noise() -> None:
    found = compare.scores([1.0, 2.0], [1.01, 2.0], [1.0, 2.006])
    assert found.state is State.NOISE
    assert found.largest == pytest.approx(0.01)
    assert found.noise_largest == pytest.approx(0.01)


def test_the_order_of_sums_is_noise_even_where_two_runs_agree() -> None:
    assert compare.scores([1.0], [1.00001], [1.00001]).state is State.NOISE
    assert compare.scores([1.0], [1.001], [1.001]).state is State.CHANGED


def test_a_new_error_is_a_change() -> None:
    found = compare.scores([1.0, 2.0], [1.0, None], [1.0, 2.0])
    assert (found.state, found.pairs, found.errors) == (State.CHANGED, 1, 1)


def test_nothing_stored_is_nothing_to_compare() -> None:
    assert compare.scores([], [], []).state is State.NONE
    assert compare.replies([], [], []).state is State.NONE
    assert Decisions().state(State.SAME) is State.NONE


@pytest.mark.parametrize(
    ("decisions", "scores", "state"),
    [
        (Decisions(items=9), State.NOISE, State.SAME),
        (Decisions(items=9, differ=2), State.NOISE, State.NOISE),
        (Decisions(items=9, differ=2), State.CHANGED, State.CHANGED),
        (Decisions(items=9, differ=2, by_policy=2), State.SAME, State.CHANGED),
        (Decisions(items=9), State.CHANGED, State.SAME),
    ],
)
def test_decisions_follow_their_scores(decisions: Decisions, scores: State, state: State) -> None:
    assert decisions.state(scores) is state


def test_replies_that_differ_as_often_between_two_runs_are_noise() -> None:
    stored = [f"reply {n}" for n in range(20)]
    now = ["another reply", *stored[1:]]
    found = compare.replies(stored, now, stored)
    assert (found.state, found.exact, found.noise) == (State.NOISE, 19, 1)
    assert found.alike == pytest.approx(1 / 3)


def test_more_than_noise_is_a_change() -> None:
    stored = [f"reply {n}" for n in range(20)]
    half = [f"other {n}" if n % 2 else text for n, text in enumerate(stored)]
    assert compare.replies(stored, half, half).state is State.CHANGED
    assert compare.replies(stored, half, ["x", *half[1:]]).state is State.CHANGED
    one = ["other", *stored[1:]]
    assert compare.replies(stored, one, one).state is State.CHANGED, "two runs agree: nothing excuses it"


def test_prompts_that_are_others_are_a_change() -> None:
    assert compare.replies(["a"], ["a"], ["a"], unknown=1).state is State.CHANGED
    assert compare.replies(["a"], [None], ["a"]).state is State.CHANGED


@pytest.mark.parametrize(
    ("changed", "noise", "count", "chance"),
    [(3, 0, 3, 1 / 20), (4, 0, 4, 1 / 70), (1, 1, 20, 0.756), (0, 5, 9, 1.0)],
)
def test_fishers_exact_test(changed: int, noise: int, count: int, chance: float) -> None:
    assert compare.by_chance(changed, noise, count) == pytest.approx(chance, abs=1e-3)
