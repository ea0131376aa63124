"""From scores to verdicts: rank a group and keep, drop or error each item. Pure; calls no model.

The order of the steps is what the names mean:

1. Texts with nothing to read (blank, or NULs alone) are dropped ("empty"): that is no error.
2. Texts that count as one (equal, or near where the policy says so) choose a representative. It alone is
   judged; the others follow its decision, are counted, and take no place in `top_k`.
3. Representatives without a finite logit are errors. NaN never ranks.
4. The rest are ranked by logit; ties go to the earlier item. `top_k` and `keep_share` bound how many are
   kept; `min_logit`, `min_probability` and `max_miss` say who is worth it; `min_keep` lifts those thresholds
   (never the bounds) for the best few.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from ..core.config import DecidePolicy
from ..core.errors import ConfigError
from ..core.types import Candidate, Decision, Verdict

NOTHING_TO_READ = "nothing_to_read"
"""A scorer's error for a text in which it finds no token."""


class Learnt(Protocol):
    """What deciding asks of a calibration (`calibration.Calibration`)."""

    def probability(self, logit: float) -> float | None:
        """The probability (0 to 1) that an item of this logit is relevant, which never falls as the logit
        rises; None where none was fitted."""
        ...

    def covers(self, policy: DecidePolicy, /) -> bool:
        """Whether there is a promise for these rules, withdrawn or not."""
        ...

    def least_logit(self, policy: DecidePolicy, /) -> float | None:
        """The threshold that a promise covers; None where it was withdrawn or allows none."""
        ...


def check_policy(policy: DecidePolicy, calibration: Learnt | None, *, name: str = "default") -> None:
    """Refuse a policy that cannot be carried out, before any model is loaded.

    Raises:
        ConfigError: `min_probability` without a calibration that gives a probability, or `max_miss` without
            a promise for these rules.
    """
    fitted = calibration is not None and calibration.probability(0.0) is not None
    if policy.min_probability is not None and not fitted:
        raise ConfigError(
            f"policy.{name}.decide.min_probability is {policy.min_probability}, and there is no calibration "
            "for this policy and model: its logits have no probability",
            hint=f"run `afterpass calibrate --policy {name} --labels FILE`, or use min_logit or top_k",
        )
    if policy.max_miss is not None and (calibration is None or not calibration.covers(policy)):
        raise ConfigError(
            f"policy.{name}.decide.max_miss is {policy.max_miss}, and no promise was made for these rules of "
            "decision and this model",
            hint=f"run `afterpass calibrate --policy {name} --labels FILE --max-miss {policy.max_miss}` "
            "(again, where [decide] was changed since)",
        )


def decide(
    candidates: Sequence[Candidate], policy: DecidePolicy, calibration: Learnt | None = None
) -> list[Verdict]:
    """Judge one group.

    Args:
        candidates: the group's items, in any order; `seq` is unique.
        policy: the bounds and thresholds.
        calibration: turns logits into probabilities; without one `probability` is None.

    Returns:
        One verdict for each candidate, ordered by `seq`. The same set of candidates gives the same verdicts
        in whatever order it comes.

    Raises:
        ConfigError: see `check_policy`.
    """
    check_policy(policy, calibration)
    verdicts: list[Verdict] = [Verdict(c.seq, Decision.DROP, "empty") for c in candidates if _empty(c)]
    ranked: list[Candidate] = []
    followers: list[tuple[Candidate, Candidate]] = []
    for cluster in _clusters(
        [c for c in candidates if not _empty(c)], near=policy.near_duplicates is not None
    ):
        first, *others = cluster
        followers += [(first, other) for other in others]
        if _finite(first.logit):
            ranked.append(first)
        else:
            verdicts.append(Verdict(first.seq, Decision.ERROR, _why(first)))
    ranked.sort(key=lambda c: (-_logit(c), c.seq))
    verdicts += _judge(ranked, policy, calibration)

    by_seq = {verdict.seq: verdict for verdict in verdicts}
    for first, other in followers:
        judged = by_seq[first.seq]
        reason = "duplicate" if other.text_hash == first.text_hash else "near_duplicate"
        verdicts.append(
            Verdict(
                other.seq,
                judged.decision,
                reason,
                logit=judged.logit,
                probability=judged.probability,
                duplicate_of=first.seq,
            )
        )
    scores = {c.seq: c.score_seq for c in candidates}
    return [
        replace(verdict, score_seq=scores[verdict.seq])
        for verdict in sorted(verdicts, key=lambda verdict: verdict.seq)
    ]


def _judge(ranked: Sequence[Candidate], policy: DecidePolicy, calibration: Learnt | None) -> list[Verdict]:
    """Verdicts of representatives in rank order."""
    most = len(ranked)
    bound, kept_as = None, "no_limit"
    if (policy.min_logit, policy.min_probability, policy.max_miss) != (None, None, None):
        kept_as = "above_threshold"
    if policy.top_k is not None:
        most, bound, kept_as = min(most, policy.top_k), "below_top_k", "top_k"
    if policy.keep_share is not None:
        # Rounded first: 0.7 * 10 is 7.000000000000001, and its ceiling would be 8.
        share = math.ceil(round(policy.keep_share * len(ranked), 9))
        if bound is None or share < most:
            most, bound, kept_as = min(most, share), "below_keep_share", "keep_share"
    floor = calibration.least_logit(policy) if calibration and policy.max_miss is not None else None
    verdicts = []
    for rank, candidate in enumerate(ranked, start=1):
        logit = _logit(candidate)
        probability = calibration.probability(logit) if calibration is not None else None
        failed = _threshold(logit, probability, policy)
        if failed is None and floor is not None and logit < floor:
            failed = "max_miss"
        if rank > most:
            decision, reason = Decision.DROP, failed or bound or "below_top_k"
        elif failed and rank > policy.min_keep:
            decision, reason = Decision.DROP, failed
        else:
            decision, reason = Decision.KEEP, "min_keep" if failed else kept_as
        verdicts.append(Verdict(candidate.seq, decision, reason, rank, logit, probability))
    return verdicts


def _threshold(logit: float, probability: float | None, policy: DecidePolicy) -> str | None:
    """The first threshold that is not met."""
    if policy.min_logit is not None and logit < policy.min_logit:
        return "min_logit"
    if policy.min_probability is not None and not (probability or 0.0) >= policy.min_probability:
        return "min_probability"
    return None


def _clusters(candidates: Sequence[Candidate], *, near: bool) -> list[list[Candidate]]:
    """Candidates that count as one, the representative first.

    It is one that has a score, of the text that the others are near to, recorded first.
    """
    near_to = {
        c.text_hash: c.near_duplicate_of for c in candidates if near and c.near_duplicate_of is not None
    }
    present = {c.text_hash for c in candidates}
    roots: dict[UUID, UUID] = {}
    clusters: dict[UUID, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        root = roots.get(candidate.text_hash)
        if root is None:
            root = roots[candidate.text_hash] = _root(candidate.text_hash, near_to, present)
        clusters[root].append(candidate)
    for root, cluster in clusters.items():
        cluster.sort(key=lambda c: (not _finite(c.logit), c.text_hash != root, c.seq))
    return list(clusters.values())


def _root(text_hash: UUID, near_to: dict[UUID, UUID], present: set[UUID]) -> UUID:
    """Follow `near_duplicate_of` to its end; a text that is not in the group ends the way, and so does a
    ring, at its smallest member."""
    path = [text_hash]
    while (following := near_to.get(path[-1])) is not None and following in present:
        if following in path:
            return min(path[path.index(following) :])
        path.append(following)
    return path[-1]


def _empty(candidate: Candidate) -> bool:
    """Blank, or without anything that a tokenizer would read (NULs, say)."""
    return candidate.blank or candidate.error == NOTHING_TO_READ


def _finite(logit: float | None) -> bool:
    return logit is not None and math.isfinite(logit)


def _logit(candidate: Candidate) -> float:
    assert candidate.logit is not None
    return candidate.logit


def _why(candidate: Candidate) -> str:
    if candidate.error:
        return candidate.error
    return "no_score" if candidate.logit is None else "logit_not_finite"
