"""Probabilities from labels, promises about drops, labels that may and may not be used."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterpass.core.config import DecidePolicy
from afterpass.core.errors import InputError
from afterpass.core.types import Candidate, Decision
from afterpass.rerank import calibrate, calibration, drift, guarantee, labels
from afterpass.rerank.calibrate import Sample
from afterpass.rerank.calibration import Calibration, Fit, Promise
from afterpass.rerank.decide import decide
from afterpass.rerank.guarantee import LabelledGroup


def samples(n: int, slope: float = 1.0, offset: float = -1.0, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    found = []
    for group in range(n // 10):
        for _ in range(10):
            logit = rng.gauss(0, 3)
            relevant = rng.random() < calibration.sigmoid(slope * logit + offset)
            found.append(Sample(f"g{group}", logit, relevant))
    return found


def group(name: int, logits: list[float], relevant: set[int]) -> LabelledGroup:
    return LabelledGroup(
        f"g{name}",
        tuple(Candidate(seq, UUID(int=seq + 1), 10, False, logit) for seq, logit in enumerate(logits)),
        frozenset(relevant),
    )


def many(count: int, seed: int = 0, shift: float = 0.0) -> list[LabelledGroup]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        relevant = {n for n in range(8) if rng.random() < 0.25}
        logits = [rng.gauss((2.0 if n in relevant else -2.0) + shift, 1.5) for n in range(8)]
        found.append(group(number, logits, relevant))
    return found


# ------------------------------------------------------------------------------------------- fits


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic", None])
def test_a_fit_never_falls_and_beats_the_raw_sigmoid(method: calibration.Method | None) -> None:
    report = calibrate.fit(samples(2000, slope=0.4, offset=-1.0), method)
    said = [report.fit.probability(x / 4) for x in range(-60, 60)]
    assert said == sorted(said)
    assert all(0 <= p <= 1 for p in said)
    assert report.fit.brier < report.fit.brier_raw
    assert report.fit.ece < report.fit.ece_raw
    assert (report.fit.labels, report.fit.groups) == (2000, 200)
    assert sum(b.count for b in report.bins) == 2000


def test_the_best_method_is_chosen_by_held_out_groups() -> None:
    report = calibrate.fit(samples(2000, slope=0.4, offset=-2.0))
    assert report.fit.method in ("platt", "isotonic")
    assert all(report.fit.brier <= other for _, other in report.others.values())
    assert report.fit.method != "platt" or report.fit.slope == pytest.approx(0.4, abs=0.08)


def test_too_few_or_contrary_labels_are_refused() -> None:
    with pytest.raises(InputError, match="too few"):
        calibrate.fit(samples(30))
    with pytest.raises(InputError, match="too few"):
        calibrate.fit([Sample(f"g{n % 9}", n / 100, False) for n in range(500)])
    with pytest.raises(InputError, match="less relevant"):
        calibrate.fit(samples(2000, slope=-1.0, offset=0.0), "platt")


def test_isotonic_is_flat_beyond_its_knots() -> None:
    fit = Fit(method="isotonic", knots=((-1.0, 0.1), (1.0, 0.9)))
    assert [fit.probability(x) for x in (-9, -1, 0, 1, 9)] == pytest.approx([0.1, 0.1, 0.5, 0.9, 0.9])


def test_kept_and_read_back(tmp_path: Path) -> None:
    made = Calibration(
        policy="default/x y",
        model_key="m@1/torch",
        fit=calibrate.fit(samples(400), "isotonic").fit,
        promise=guarantee.promise(many(150), DecidePolicy(top_k=None), max_miss=0.1, confidence=0.9),
    )
    calibration.save(tmp_path, made)
    assert calibration.load(tmp_path, "default/x y", "m@1/torch") == made
    assert calibration.load(tmp_path, "default/x y", "m@2/torch") is None
    assert made.name != made.withdraw("drift").name
    calibration.path(tmp_path, "p", "m").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"):
        calibration.load(tmp_path, "p", "m")


# -------------------------------------------------------------------------------------- promises


@settings(max_examples=40)
@given(
    st.integers(0, 10_000),
    st.one_of(st.none(), st.integers(0, 5)),
    st.integers(0, 3),
    st.one_of(st.none(), st.floats(0.1, 1)),
    st.floats(-4, 4),
)
def test_drop_points_say_what_decide_does(
    seed: int, top_k: int | None, min_keep: int, share: float | None, threshold: float
) -> None:
    policy = DecidePolicy(top_k=top_k, min_keep=min_keep, keep_share=share)
    with_threshold = policy.model_copy(update={"min_logit": threshold})
    for labelled in many(3, seed):
        verdicts = {v.seq: v for v in decide(labelled.candidates, with_threshold)}
        points = guarantee.measure(labelled, policy).limits
        for seq, point in zip(labelled.relevant, points, strict=True):
            assert (verdicts[seq].decision is not Decision.KEEP) == (point < threshold)


def test_duplicates_and_errors_count_as_the_decision_has_them() -> None:
    candidates = (
        Candidate(0, UUID(int=1), 10, False, 3.0),
        Candidate(1, UUID(int=1), 10, False, 3.0),
        Candidate(2, UUID(int=2), 10, False, None, error="boom"),
        Candidate(3, UUID(int=3), 10, False, -1.0),
    )
    labelled = LabelledGroup("g", candidates, frozenset({1, 2, 3}))
    assert sorted(guarantee.measure(labelled, DecidePolicy(top_k=1)).limits) == [-math.inf, -math.inf, 3.0]


def test_a_promise_holds_on_new_groups() -> None:
    """Over many draws the true miss rate is above the promised one in at most about 1 - confidence."""
    policy = DecidePolicy(top_k=None)
    population = many(2000, seed=99)
    measured = [guarantee.measure(g, policy) for g in population]
    limits = [group.limits for group in measured if group.relevant]
    broken = 0
    rng = random.Random(1)
    for _ in range(100):
        promise = guarantee.find(rng.sample(measured, 150), policy, max_miss=0.1, confidence=0.9)
        assert promise.min_logit is not None
        assert promise.missed <= 0.1
        broken += guarantee.missed_share(limits, promise.min_logit) > 0.1
    assert broken <= 16  # 10 expected at most; 16 are exceeded once in 50 times at exactly 10 %


def test_too_few_groups_are_refused_with_how_many_are_needed() -> None:
    assert guarantee.least_groups(0.05, 0.95) == 59
    with pytest.raises(InputError, match="at least 59 groups"):
        guarantee.promise(many(40), DecidePolicy(), max_miss=0.05, confidence=0.95)


def test_bounds_that_break_the_promise_are_named() -> None:
    with pytest.raises(InputError, match="top_k = 1"):
        guarantee.promise(many(200), DecidePolicy(top_k=1), max_miss=0.05, confidence=0.95)


def test_spotless_groups_allow_their_lowest_relevant_logit() -> None:
    groups = [group(n, [float(n), -50.0], {0}) for n in range(80)]
    promise = guarantee.promise(groups, DecidePolicy(top_k=None), max_miss=0.05, confidence=0.95)
    assert promise.min_logit == 0.0
    assert promise.dropped == 0.5


def test_a_policy_that_saves_every_relevant_item_needs_no_threshold() -> None:
    groups = [group(n, [5.0, -50.0], {0}) for n in range(80)]
    policy = DecidePolicy(top_k=None, min_keep=1)
    promise = guarantee.promise(groups, policy, max_miss=0.05, confidence=0.95)
    assert (promise.min_logit, promise.missed, promise.dropped) == (None, 0.0, 0.0)


def test_p_value_is_that_of_the_binomial_or_better_known() -> None:
    assert guarantee.p_value(0.0, 59, 0.05) <= 0.05 < guarantee.p_value(0.0, 58, 0.05)
    assert guarantee.p_value(0.06, 1000, 0.05) == 1.0
    assert guarantee.p_value(3 / 100, 100, 0.05) >= guarantee.p_value(2 / 100, 100, 0.05)


def test_a_promise_binds_to_its_rules_and_can_be_withdrawn() -> None:
    policy = DecidePolicy(top_k=None, max_miss=0.1)
    promise = guarantee.promise(many(150), policy, max_miss=0.1, confidence=0.9)
    held = Calibration(policy="p", model_key="m", promise=promise)
    assert held.least_logit(policy) == promise.min_logit
    assert held.covers(policy)
    assert not held.covers(policy.model_copy(update={"top_k": 3}))
    assert not held.covers(policy.model_copy(update={"max_miss": 0.05}))
    gone = held.withdraw("the scores moved")
    assert gone.covers(policy)
    assert gone.least_logit(policy) is None


# ------------------------------------------------------------------------------------------ drift


def promised(shapes: list[calibration.Shape]) -> Promise:
    base = Promise(
        max_miss=0.1, confidence=0.9, min_logit=0, groups=1, relevant=1, missed=0, dropped=0, decide=""
    )
    return replace(base, shapes=tuple(shapes))


def shapes(count: int, seed: int, shift: float = 0.0) -> list[calibration.Shape]:
    return [guarantee.shape(c.logit for c in g.candidates) for g in many(count, seed, shift)]


def test_the_same_kind_of_groups_fits_and_another_does_not() -> None:
    promise = promised(shapes(150, 0))
    wrong = sum(not drift.check(promise, shapes(200, seed)).fits for seed in range(1, 60))
    assert wrong <= 4
    moved = drift.check(promise, shapes(200, 1, shift=-1.5))
    assert not moved.fits
    assert "logit" in moved.where
    assert drift.check(promise, shapes(5, 1, shift=-9)).fits  # too few to tell


# ----------------------------------------------------------------------------------------- labels

LINE = '{"group": "g_1", "item": "i_1", "relevant": true, "drawn": "random", "by": "ann"}'


def test_labels_read_back() -> None:
    (label,) = labels.parse([LINE, "", " \n"])
    assert labels.parse([label.line()]) == [label]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1"),
        ("[]", "not a JSON object"),
        (LINE.replace('"by": "ann"', '"by": ""'), "by is missing"),
        (LINE.replace("true", '"yes"'), "relevant is 'yes'"),
        (LINE.replace('"i_1"', "7"), "item must be text"),
    ],
)
def test_what_is_no_label_is_named(line: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        labels.parse([line])


def test_only_random_groups_labelled_by_people_back_a_promise() -> None:
    assert labels.for_guarantee(labels.parse([LINE])) == {"g_1": {"i_1": True}}
    with pytest.raises(InputError, match="near_threshold"):
        labels.for_guarantee(labels.parse([LINE.replace("random", "near_threshold")]))
    with pytest.raises(InputError, match="model:judge"):
        labels.for_guarantee(labels.parse([LINE.replace("ann", "model:judge")]))


def test_disagreement_counts_as_relevant() -> None:
    other = LINE.replace("ann", "bob").replace("true", "false")
    assert labels.for_guarantee(labels.parse([other, LINE])) == {"g_1": {"i_1": True}}
    assert labels.for_guarantee(labels.parse([LINE, other])) == {"g_1": {"i_1": True}}
