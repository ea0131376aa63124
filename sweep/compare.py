"""Old judgements against new ones: the same, within run-to-run noise, or changed. Arithmetic on figures.

A model's answers move a little from run to run: what shares a batch with a request changes the order of
floating-point sums. So two new runs are compared with each other first, and that is the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

SUMS = 1e-4
"""Logits that differ by no more are equal up to the order of sums, even where two runs gave none of it."""
WIDER = 3.0
"""The largest difference of one sample can be so much larger than another's by chance."""
CHANCE = 0.05
"""Replies count as changed where so many others would come by noise alone with less than this probability."""


class State(StrEnum):
    """What became of a part."""

    SAME = "same"
    """Equal to the last bit, or letter."""
    NOISE = "within noise"
    """Different, and no more so than two runs of today differ."""
    CHANGED = "changed"
    """Something else judges, or judges otherwise."""
    NONE = "nothing to compare"
    """Not asked for, or nothing is stored."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores judged again.

    Attributes:
        pairs: compared.
        exact: of them, equal to the last bit.
        largest, mean: absolute difference of stored and new logits.
        noise_largest, noise_mean: that of two new runs.
        errors: pairs that had a score and now fail.
    """

    pairs: int = 0
    exact: int = 0
    largest: float = 0.0
    mean: float = 0.0
    noise_largest: float = 0.0
    noise_mean: float = 0.0
    errors: int = 0

    @property
    def allowed(self) -> float:
        """The largest difference that counts as noise."""
        return max(SUMS, WIDER * self.noise_largest)

    @property
    def state(self) -> State:
        if not self.pairs and not self.errors:
            return State.NONE
        if self.errors or self.largest > self.allowed:
            return State.CHANGED
        return State.SAME if self.exact == self.pairs else State.NOISE


def scores(stored: Sequence[float], first: Sequence[float | None], second: Sequence[float | None]) -> Scores:
    """Compare stored logits with those of two new runs; None is a new error."""
    known = [
        (old, a, b)
        for old, a, b in zip(stored, first, second, strict=True)
        if a is not None and b is not None
    ]
    changes = [abs(a - old) for old, a, _ in known]
    noise = [abs(a - b) for _, a, b in known]
    return Scores(
        pairs=len(known),
        exact=sum(change == 0 for change in changes),
        largest=max(changes, default=0.0),
        mean=sum(changes) / max(1, len(known)),
        noise_largest=max(noise, default=0.0),
        noise_mean=sum(noise) / max(1, len(known)),
        errors=len(stored) - len(known),
    )


@dataclass(frozen=True, slots=True)
class Decisions:
    """Verdicts decided again, from stored scores and from new ones.

    Attributes:
        items: compared.
        differ: of them, with another decision or rank by the new scores.
        decisions_differ: of those, kept then and not now, or the other way round.
        noise: items on which two new runs do not agree.
        by_policy: items that the rules of today decide otherwise, with the very scores of then.
    """

    items: int = 0
    differ: int = 0
    decisions_differ: int = 0
    noise: int = 0
    by_policy: int = 0

    def state(self, scores: State) -> State:
        """`scores` is the state of the scores that they rest on."""
        if not self.items:
            return State.NONE
        if not self.differ and not self.by_policy:
            return State.SAME
        return State.CHANGED if self.by_policy or scores is State.CHANGED else State.NOISE


@dataclass(frozen=True, slots=True)
class Replies:
    """Prompts asked again.

    Attributes:
        prompts: compared.
        exact: replies equal to the stored ones, letter by letter.
        noise: replies that differ between two new runs.
        chance: the probability of at least so many others, were noise alone at work; None without any.
        alike: share of words in common, where a new reply differs from the stored one; None without any.
        unknown: summarised groups whose prompts are others today.
        errors: prompts that had a reply and now get none.
    """

    prompts: int = 0
    exact: int = 0
    noise: int = 0
    chance: float | None = None
    alike: float | None = None
    unknown: int = 0
    errors: int = 0

    @property
    def state(self) -> State:
        if self.errors or self.unknown:
            return State.CHANGED
        if not self.prompts:
            return State.NONE
        if self.exact == self.prompts:
            return State.SAME
        return State.NOISE if self.noise and (self.chance or 0.0) >= CHANCE else State.CHANGED


def replies(
    stored: Sequence[str], first: Sequence[str | None], second: Sequence[str | None], unknown: int = 0
) -> Replies:
    """Compare stored replies with those of two new runs; None is a new error."""
    known = [
        (old, a, b)
        for old, a, b in zip(stored, first, second, strict=True)
        if a is not None and b is not None
    ]
    others = [(old, a) for old, a, _ in known if old != a]
    noise = sum(a != b for _, a, b in known)
    return Replies(
        prompts=len(known),
        exact=len(known) - len(others),
        noise=noise,
        chance=by_chance(len(others), noise, len(known)) if others else None,
        alike=sum(_alike(old, new) for old, new in others) / len(others) if others else None,
        unknown=unknown,
        errors=len(stored) - len(known),
    )


def by_chance(changed: int, noise: int, count: int) -> float:
    """The probability of at least `changed` of `changed + noise` falling on one of two equal samples.

    Fisher's exact test, one-sided: two samples of `count` each, with `changed` and `noise` hits.
    """
    hits, both = changed + noise, 2 * count
    ways = math.comb(both, hits)
    most = min(hits, count)
    return sum(math.comb(count, k) * math.comb(count, hits - k) for k in range(changed, most + 1)) / ways


def _alike(a: str, b: str) -> float:
    ours, theirs = set(a.split()), set(b.split())
    return len(ours & theirs) / max(1, len(ours | theirs))


def figures(part: Scores | Decisions | Replies) -> dict[str, Any]:
    """For JSON: floats with the digits that matter."""
    return {
        name: float(f"{value:.3g}") if isinstance(value, float) else value
        for name, value in asdict(part).items()
    }
