"""Deciding: what holds for every group, whatever its scores."""

from __future__ import annotations

import itertools
import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.core.config import DecidePolicy
from afterpass.core.errors import ConfigError
from afterpass.core.types import Candidate, Decision, Verdict
from afterpass.rerank.decide import decide

TEXTS = [UUID(int=n + 1) for n in range(12)]


class Sigmoid:
    def probability(self, logit: float) -> float:
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, logit))))

    def covers(self, _: DecidePolicy) -> bool:
        return True

    def least_logit(self, _: DecidePolicy) -> float | None:
        return -0.5


@st.composite
def groups(draw: st.DrawFn) -> list[Candidate]:
    """Items over few texts, so that there are duplicates, near ones, blanks, errors and ties."""
    logits = draw(
        st.lists(
            st.one_of(st.none(), st.sampled_from([-2.0, 0.0, 0.0, 1.5]), st.floats(width=32)),
            min_size=12,
            max_size=12,
        )
    )
    near = draw(st.lists(st.one_of(st.none(), st.sampled_from(TEXTS)), min_size=12, max_size=12))
    blank = draw(st.lists(st.booleans(), min_size=12, max_size=12))
    items = draw(st.lists(st.integers(0, 11), max_size=40))
    return [
        Candidate(seq, TEXTS[t], 10, blank[t], None if blank[t] else logits[t], None, near[t])
        for seq, t in enumerate(items)
    ]


bounds = st.one_of(st.none(), st.integers(0, 10))
shares = st.one_of(st.none(), st.floats(0, 1))
thresholds = st.one_of(st.none(), st.floats(-3, 3))
policies = st.builds(
    DecidePolicy,
    top_k=bounds,
    min_logit=thresholds,
    min_probability=shares,
    min_keep=st.integers(0, 4),
    keep_share=shares,
    near_duplicates=st.sampled_from([None, 0.9]),
    max_miss=st.sampled_from([None, 0.05]),
)


def kept(verdicts: list[Verdict]) -> set[int]:
    return {v.seq for v in verdicts if v.decision is Decision.KEEP}


@given(groups(), policies)
def test_every_item_has_one_verdict(group: list[Candidate], policy: DecidePolicy) -> None:
    verdicts = decide(group, policy, Sigmoid())
    assert sorted(v.seq for v in verdicts) == sorted(c.seq for c in group)


@given(groups(), policies, st.randoms())
def test_input_order_does_not_matter(group: list[Candidate], policy: DecidePolicy, random: object) -> None:
    shuffled = list(group)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(group, policy, Sigmoid()) == decide(shuffled, policy, Sigmoid())


@given(groups(), policies)
def test_duplicates_follow_a_judged_representative(group: list[Candidate], policy: DecidePolicy) -> None:
    by_seq = {v.seq: v for v in decide(group, policy, Sigmoid())}
    for verdict in by_seq.values():
        if verdict.duplicate_of is not None:
            representative = by_seq[verdict.duplicate_of]
            assert representative.duplicate_of is None
            assert representative.decision is verdict.decision
            assert verdict.rank is None
            assert representative.reason != "empty"


@given(groups(), policies)
def test_equal_texts_get_equal_decisions_and_one_rank(group: list[Candidate], policy: DecidePolicy) -> None:
    verdicts = {v.seq: v for v in decide(group, policy, Sigmoid())}
    by_text: dict[UUID, list[Verdict]] = {}
    for c in group:
        by_text.setdefault(c.text_hash, []).append(verdicts[c.seq])
    for same in by_text.values():
        assert len({v.decision for v in same}) == 1
        assert sum(v.rank is not None for v in same) <= 1


@given(groups(), policies)
def test_ranks_are_dense_and_follow_the_logits(group: list[Candidate], policy: DecidePolicy) -> None:
    ranked = sorted((v for v in decide(group, policy, Sigmoid()) if v.rank), key=lambda v: v.rank or 0)
    assert [v.rank for v in ranked] == list(range(1, len(ranked) + 1))
    for better, worse in itertools.pairwise(ranked):
        assert better.logit is not None
        assert worse.logit is not None
        assert (better.logit, -better.seq) >= (worse.logit, -worse.seq)


@given(groups(), policies)
def test_bounds_hold_and_count_representatives_only(group: list[Candidate], policy: DecidePolicy) -> None:
    verdicts = decide(group, policy, Sigmoid())
    representatives = [v for v in verdicts if v.rank]
    taken = sum(v.decision is Decision.KEEP for v in representatives)
    if policy.top_k is not None:
        assert taken <= policy.top_k
    if policy.keep_share is not None:
        assert taken <= math.ceil(round(policy.keep_share * len(representatives), 9))


@given(groups(), policies)
def test_kept_are_the_best(group: list[Candidate], policy: DecidePolicy) -> None:
    ranked = sorted((v for v in decide(group, policy, Sigmoid()) if v.rank), key=lambda v: v.rank or 0)
    decisions = [v.decision is Decision.KEEP for v in ranked]
    assert decisions == sorted(decisions, reverse=True)


@given(groups(), policies)
def test_no_score_is_an_error_and_blank_is_not(group: list[Candidate], policy: DecidePolicy) -> None:
    by_seq = {v.seq: v for v in decide(group, policy, Sigmoid())}
    for c in group:
        verdict = by_seq[c.seq]
        if c.blank:
            assert (verdict.decision, verdict.reason) == (Decision.DROP, "empty")
        elif verdict.duplicate_of is None:
            unscored = c.logit is None or not math.isfinite(c.logit)
            assert (verdict.decision is Decision.ERROR) == unscored
        if verdict.decision is Decision.KEEP:
            assert verdict.logit is not None
            assert math.isfinite(verdict.logit)


@given(groups(), policies, st.floats(-3, 3), st.floats(0, 3))
def test_a_stricter_min_logit_keeps_no_more(
    group: list[Candidate], policy: DecidePolicy, low: float, more: float
) -> None:
    loose = decide(group, policy.model_copy(update={"min_logit": low}), Sigmoid())
    strict = decide(group, policy.model_copy(update={"min_logit": low + more}), Sigmoid())
    assert kept(strict) <= kept(loose)


@given(groups(), policies, st.floats(0, 1), st.floats(0, 1))
def test_a_stricter_min_probability_keeps_no_more(
    group: list[Candidate], policy: DecidePolicy, a: float, b: float
) -> None:
    loose = decide(group, policy.model_copy(update={"min_probability": min(a, b)}), Sigmoid())
    strict = decide(group, policy.model_copy(update={"min_probability": max(a, b)}), Sigmoid())
    assert kept(strict) <= kept(loose)


@given(groups(), policies, st.integers(0, 12), st.integers(0, 12))
def test_more_top_k_keeps_no_less(group: list[Candidate], policy: DecidePolicy, a: int, b: int) -> None:
    few = decide(group, policy.model_copy(update={"top_k": min(a, b)}), Sigmoid())
    many = decide(group, policy.model_copy(update={"top_k": max(a, b)}), Sigmoid())
    assert kept(few) <= kept(many)


@given(groups(), policies, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_keeps_no_less(
    group: list[Candidate], policy: DecidePolicy, a: float, b: float
) -> None:
    few = decide(group, policy.model_copy(update={"keep_share": min(a, b)}), Sigmoid())
    many = decide(group, policy.model_copy(update={"keep_share": max(a, b)}), Sigmoid())
    assert kept(few) <= kept(many)


@given(groups(), policies, st.integers(0, 6), st.integers(0, 6))
def test_a_larger_min_keep_keeps_no_less(
    group: list[Candidate], policy: DecidePolicy, a: int, b: int
) -> None:
    few = decide(group, policy.model_copy(update={"min_keep": min(a, b)}), Sigmoid())
    many = decide(group, policy.model_copy(update={"min_keep": max(a, b)}), Sigmoid())
    assert kept(few) <= kept(many)


def item(seq: int, logit: float | None, text: int | None = None, **more: object) -> Candidate:
    return Candidate(seq, TEXTS[seq if text is None else text], 10, False, logit, **more)  # type: ignore[arg-type]


def test_no_items_no_verdicts() -> None:
    assert decide([], DecidePolicy()) == []


def test_all_blank() -> None:
    blanks = [Candidate(seq, TEXTS[0], 0, True, None) for seq in range(3)]
    assert [v.reason for v in decide(blanks, DecidePolicy())] == ["empty"] * 3


def test_ties_go_to_the_earlier_item() -> None:
    verdicts = decide([item(2, 1.0), item(0, 1.0), item(1, 1.0)], DecidePolicy(top_k=2))
    assert kept(verdicts) == {0, 1}


def test_reasons_name_the_rule() -> None:
    policy = DecidePolicy(top_k=2, min_logit=0.0)
    verdicts = decide([item(0, 3.0), item(1, 2.0), item(2, 1.0), item(3, -1.0), item(4, None)], policy)
    assert [v.reason for v in verdicts] == ["top_k", "top_k", "below_top_k", "min_logit", "no_score"]


def test_nan_and_infinity_never_rank() -> None:
    verdicts = decide(
        [item(0, math.nan), item(1, math.inf), item(2, -math.inf), item(3, -9.0)], DecidePolicy(top_k=1)
    )
    assert [v.decision for v in verdicts] == [Decision.ERROR] * 3 + [Decision.KEEP]


def test_an_error_says_why_and_its_duplicate_points_to_it() -> None:
    verdicts = decide([item(0, None, 0, error="boom"), item(1, None, 0, error="boom")], DecidePolicy())
    assert verdicts[0].reason == "boom"
    assert (verdicts[1].decision, verdicts[1].duplicate_of) == (Decision.ERROR, 0)


def test_near_duplicates_join_only_where_the_policy_says_so() -> None:
    group = [item(0, 1.0), item(1, 2.0, near_duplicate_of=TEXTS[0])]
    joined = decide(group, DecidePolicy(near_duplicates=0.8))
    assert (joined[1].reason, joined[1].duplicate_of, joined[1].logit) == ("near_duplicate", 0, 1.0)
    assert [v.duplicate_of for v in decide(group, DecidePolicy())] == [None, None]


def test_a_representative_without_a_score_gives_way_to_one_with() -> None:
    group = [item(0, None), item(1, 2.0, near_duplicate_of=TEXTS[0])]
    verdicts = decide(group, DecidePolicy(near_duplicates=0.8))
    assert [v.decision for v in verdicts] == [Decision.KEEP, Decision.KEEP]
    assert verdicts[0].duplicate_of == 1


def test_a_ring_of_near_duplicates_has_one_representative() -> None:
    group = [item(0, 1.0, near_duplicate_of=TEXTS[1]), item(1, 2.0, near_duplicate_of=TEXTS[0])]
    verdicts = decide(group, DecidePolicy(near_duplicates=0.8))
    assert [v.duplicate_of for v in verdicts] == [None, 0]


def test_share_rounds_up_and_not_beyond() -> None:
    assert len(kept(decide([item(n, float(n)) for n in range(10)], DecidePolicy(keep_share=0.7)))) == 5
    policy = DecidePolicy(top_k=None, keep_share=0.7)
    assert len(kept(decide([item(n, float(n)) for n in range(10)], policy))) == 7
    assert len(kept(decide([item(0, 1.0)], DecidePolicy(keep_share=0.01)))) == 1


def test_min_keep_lifts_thresholds_but_not_bounds() -> None:
    group = [item(n, -float(n)) for n in range(5)]
    assert len(kept(decide(group, DecidePolicy(min_logit=1.0, min_keep=2)))) == 2
    assert len(kept(decide(group, DecidePolicy(top_k=1, min_logit=1.0, min_keep=2)))) == 1


def test_probability_without_calibration_is_null_and_its_threshold_refused() -> None:
    assert decide([item(0, 1.0)], DecidePolicy())[0].probability is None
    with pytest.raises(ConfigError, match="no calibration"):
        decide([item(0, 1.0)], DecidePolicy(min_probability=0.5))


def test_max_miss_needs_a_promise_and_drops_below_its_threshold() -> None:
    with pytest.raises(ConfigError, match="no promise"):
        decide([item(0, 1.0)], DecidePolicy(max_miss=0.05))
    verdicts = decide([item(0, 1.0), item(1, -0.6)], DecidePolicy(top_k=None, max_miss=0.05), Sigmoid())
    assert [v.reason for v in verdicts] == ["above_threshold", "max_miss"]


def test_a_group_of_100_000() -> None:
    group = [
        Candidate(
            seq,
            UUID(int=seq % 60_000 + 1),
            10,
            seq % 60_000 < 100,
            None if seq % 60_000 < 100 else float(seq % 60_000 % 977),
        )
        for seq in range(100_000)
    ]
    verdicts = decide(group, DecidePolicy(top_k=50))
    assert len(verdicts) == 100_000
    assert sum(v.decision is Decision.KEEP and v.rank is not None for v in verdicts) == 50
    assert sum(v.duplicate_of is not None for v in verdicts) == 40_000 - 100
