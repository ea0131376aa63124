"""Whether the groups at hand still look like those that a promise was learnt from.

A promise holds for groups like the labelled ones. Each group's scores are taken as three numbers (best logit,
mean logit, how many), so that a group counts once, and both sets of groups are compared by two-sample
Kolmogorov-Smirnov tests, Bonferroni's correction over the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .calibration import Promise, Shape

LEAST = 20
"""Groups below which nothing is said."""
LEVEL = 0.001
"""How often a check takes groups of the same kind for others. Sweeps check often, and labels are dear."""

_NAMES = ("best logit", "mean logit", "number of items")


@dataclass(frozen=True, slots=True)
class Drift:
    """What the check found.

    Attributes:
        fits: False where the groups are not of the labelled ones' kind.
        p_value: the smallest of the three, corrected; None with too few groups to tell.
        where: which of the numbers moved furthest, from what to what.
    """

    fits: bool
    p_value: float | None = None
    where: str = ""


def check(promise: Promise, shapes: Sequence[Shape]) -> Drift:
    """Compare the groups at hand with the labelled ones."""
    if len(shapes) < LEAST or len(promise.shapes) < LEAST:
        return Drift(True)
    from statistics import median

    from scipy.stats import ks_2samp

    found = []
    for index, name in enumerate(_NAMES):
        before, now = [s[index] for s in promise.shapes], [s[index] for s in shapes]
        test: Any = ks_2samp(before, now)
        p = float(test.pvalue)
        found.append((p, f"{name}: median {median(before):.2f} when labelled, {median(now):.2f} now"))
    p, where = min(found)
    corrected = min(1.0, p * len(_NAMES))
    return Drift(corrected >= LEVEL, corrected, where)
