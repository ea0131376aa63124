"""A promise about what the decision drops, from labels of groups drawn at random.

Learn then Test (Angelopoulos, Bates, Candes, Jordan and Lei 2021) with one threshold: for each `min_logit`
the hypothesis is that the decision drops more than `max_miss` of a group's relevant items, on average over
groups that have any. Hypotheses are tested from the mildest threshold up, by the Hoeffding-Bentkus p-value
(Bates, Angelopoulos, Lei, Malik and Jordan 2021), until one cannot be rejected at 1 - `confidence`. What is
dropped only grows with the threshold, so testing in that order costs nothing for its many tests.

The unit is the group: items of one group are as correlated as they like, and each group counts once, however
many relevant items it has. The loss is that of the final decision, with top_k, duplicates and all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..core.config import DecidePolicy
from ..core.errors import InputError
from ..core.types import Candidate, Decision
from .calibration import Promise, Shape, rules
from .decide import Learnt, decide


@dataclass(frozen=True, slots=True)
class LabelledGroup:
    """A group drawn at random and labelled whole.

    Attributes:
        candidates: all of its items, scored.
        relevant: `seq` of those that somebody found relevant.
    """

    name: str
    candidates: tuple[Candidate, ...]
    relevant: frozenset[int]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the decision makes of a labelled group, whatever the threshold.

    Attributes:
        points: by `seq`, the `min_logit` above which the item is dropped: -inf where the policy drops it
            anyway, +inf where no threshold does.
        relevant: `seq` of the relevant items.
        shape: of its scores, for the drift check.
    """

    points: Mapping[int, float]
    relevant: frozenset[int]
    shape: Shape

    @property
    def limits(self) -> list[float]:
        """The points of the relevant items."""
        return [self.points[seq] for seq in self.relevant]


def promise(
    groups: Sequence[LabelledGroup],
    policy: DecidePolicy,
    *,
    max_miss: float,
    confidence: float,
    calibration: Learnt | None = None,
) -> Promise:
    """The largest `min_logit` with which the decision keeps the promise.

    Args:
        groups: drawn at random from those that the promise is for, each labelled whole.
        policy: the rules of decision; the threshold found comes on top of its own.
        max_miss: share of a group's relevant items that may be dropped, averaged over groups that have any.
        confidence: probability, over the draw of the groups, that the promise holds.

    Raises:
        InputError: too few labelled groups for such a promise, or the policy's own bounds break it already.
    """
    if not 0 < max_miss < 1 or not 0.5 <= confidence < 1:
        raise InputError(
            f"max_miss = {max_miss} and confidence = {confidence} make no promise",
            hint="max_miss lies between 0 and 1, confidence between 0.5 and 1",
        )
    return find(
        [measure(group, policy, calibration) for group in groups],
        policy,
        max_miss=max_miss,
        confidence=confidence,
    )


def find(groups: Sequence[Measured], policy: DecidePolicy, *, max_miss: float, confidence: float) -> Promise:
    """`promise`, of groups that were measured before."""
    telling = [group for group in groups if group.relevant]
    needed = least_groups(max_miss, confidence)
    if len(telling) < needed:
        raise InputError(
            f"the promise (at most {max_miss:.1%} missed, with confidence {confidence:.0%}) needs labels of "
            f"at least {needed} groups that have a relevant item, and there are {len(telling)} "
            f"(of {len(groups)} labelled whole)",
            hint="draw and label more groups: `afterpass label --for guarantee`",
        )
    limits = [group.limits for group in telling]
    if p_value(missed_share(limits, -math.inf), len(limits), max_miss) > 1 - confidence:
        raise _refusal(limits, max_miss, confidence, policy)
    thresholds = sorted({point for points in limits for point in points if math.isfinite(point)})
    # What is missed only grows with the threshold, and so does the p-value: the first that fails is found by
    # halving. Between two of these thresholds nothing changes, so all others are tested with them.
    passed = bisect_left(
        thresholds,
        True,
        key=lambda threshold: (
            p_value(missed_share(limits, threshold), len(limits), max_miss) > 1 - confidence
        ),
    )
    found = thresholds[passed - 1] if passed else None  # none: `min_keep` saves every relevant item
    return Promise(
        max_miss=max_miss,
        confidence=confidence,
        min_logit=found,
        groups=len(telling),
        relevant=sum(len(group.relevant) for group in telling),
        missed=missed_share(limits, -math.inf if found is None else found),
        dropped=dropped_share(groups, found),
        decide=rules(policy),
        shapes=tuple(group.shape for group in groups),
    )


def least_groups(max_miss: float, confidence: float) -> int:
    """Groups with a relevant item below which not even a spotless record makes the promise."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - max_miss))


def p_value(missed: float, groups: int, max_miss: float) -> float:
    """Hoeffding-Bentkus: how probable a mean loss of at most `missed` is, were the true one `max_miss`.

    Args:
        missed: mean over `groups` of losses between 0 and 1.
    """
    from scipy.special import bdtr, rel_entr  # scipy.stats would take seconds to import

    if missed >= max_miss:
        return 1.0
    divergence = float(rel_entr(missed, max_miss) + rel_entr(1 - missed, 1 - max_miss))
    hoeffding = math.exp(-groups * divergence)
    # Rounded first: 3 misses of 100 are 2.9999999999999996 when added as hundredths.
    bentkus = math.e * float(bdtr(math.ceil(round(groups * missed, 9)), groups, max_miss))
    return min(1.0, hoeffding, bentkus)


def measure(group: LabelledGroup, policy: DecidePolicy, calibration: Learnt | None = None) -> Measured:
    """At which `min_logit` the decision drops each item of a group."""
    bare = policy.model_copy(update={"max_miss": None})  # the threshold is what is looked for
    verdicts = {v.seq: v for v in decide(group.candidates, bare, calibration)}
    points = {}
    for seq, verdict in verdicts.items():
        judged = verdicts[verdict.duplicate_of] if verdict.duplicate_of is not None else verdict
        if judged.decision is not Decision.KEEP or judged.logit is None or judged.rank is None:
            points[seq] = -math.inf  # an error is no keep: whoever reads the kept items misses it
        else:
            points[seq] = math.inf if judged.rank <= policy.min_keep else judged.logit
    return Measured(points, group.relevant, shape(c.logit for c in group.candidates))


def dropped_share(groups: Sequence[Measured], min_logit: float | None) -> float:
    """Share of all items that the decision does not keep at a threshold."""
    least = -math.inf if min_logit is None else min_logit
    points = [point for group in groups for point in group.points.values()]
    return sum(point == -math.inf or point < least for point in points) / len(points) if points else 0.0


def shape(logits: Iterable[float | None]) -> Shape:
    """A group's scores in three numbers, for the drift check."""
    finite = [logit for logit in logits if logit is not None and math.isfinite(logit)]
    if not finite:
        return 0.0, 0.0, 0.0
    return max(finite), sum(finite) / len(finite), math.log1p(len(finite))


def missed_share(limits: Sequence[Sequence[float]], threshold: float) -> float:
    """Share of relevant items dropped at a threshold, averaged over groups.

    Args:
        limits: each group's, none empty.
    """
    return sum(
        sum(point == -math.inf or point < threshold for point in points) / len(points) for points in limits
    ) / len(limits)


def _refusal(
    limits: Sequence[Sequence[float]], max_miss: float, confidence: float, policy: DecidePolicy
) -> InputError:
    """Why the promise cannot be made even where nothing more is dropped."""
    already = missed_share(limits, -math.inf)
    told = (
        f"the policy's own bounds drop {already:.1%} of a group's relevant items in {len(limits)} labelled "
        "groups"
    )
    if already >= max_miss:
        return InputError(
            f"{told} (top_k = {policy.top_k} and the like), and {max_miss:.1%} were to be promised",
            hint="raise top_k or leave it out (the promise then bounds what is dropped), or promise less",
        )
    more = len(limits)
    while p_value(already, more, max_miss) > 1 - confidence:
        more = math.ceil(more * 1.05) + 1
    return InputError(
        f"{told}: too near {max_miss:.1%} to promise it with confidence {confidence:.0%}",
        hint=f"about {more} groups with a relevant item would do, or raise top_k",
    )
