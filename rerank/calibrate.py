"""Fitting probabilities to labels, and measuring them on groups that the fit has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InputError
from .calibration import Fit, Method

FOLDS = 5
BINS = 10
LEAST = 20
"""Labels of each kind below which nothing is fitted."""
LEAST_ISOTONIC = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """A labelled item: the group it stands in, its logit, and whether somebody found it relevant."""

    group: str
    logit: float
    relevant: bool


@dataclass(frozen=True, slots=True)
class Bin:
    """One point of a reliability plot: of `count` items, what was said and what was so."""

    count: int
    said: float
    was: float


@dataclass(frozen=True, slots=True)
class Report:
    """A fit and its reliability on held-out groups."""

    fit: Fit
    bins: tuple[Bin, ...]
    raw: tuple[Bin, ...]
    others: dict[Method, tuple[float, float]]
    """(ECE, Brier) of the other methods tried."""


def fit(samples: Sequence[Sample], method: Method | None = None) -> Report:
    """Fit probabilities; without a method the one with the least Brier score on held-out groups.

    Args:
        samples: finite logits with labels; groups are kept whole when folds are made.

    Raises:
        InputError: too few labels or groups, labels all alike, or logits that rise where relevance falls.
    """
    y = np.array([sample.relevant for sample in samples], float)
    x = np.array([sample.logit for sample in samples], float)
    groups = np.array([sample.group for sample in samples])
    kinds = len(set(groups.tolist()))
    positive = int(y.sum())
    if min(positive, len(y) - positive) < LEAST or kinds < FOLDS:
        raise InputError(
            f"{len(y)} labels ({positive} relevant) in {kinds} groups are too few to fit probabilities to",
            hint=f"label at least {LEAST} relevant and {LEAST} other items in {FOLDS} groups or more: "
            "`afterpass label --for model`",
        )
    methods: list[Method] = [method] if method else ["temperature", "platt"]
    if not method and len(y) >= LEAST_ISOTONIC:
        methods.append("isotonic")
    held = {name: _held_out(x, y, groups, _FITS[name]) for name in methods}
    raw = np.array([_sigmoid(value) for value in x])
    measured = {name: (ece(p, y), brier(p, y)) for name, p in held.items()}
    best = min(methods, key=lambda name: measured[name][1])
    final = _FITS[best](x, y)
    if final.slope <= 0:
        raise InputError(
            "by these labels an item of higher logit is less relevant: the scorer does not fit this data",
            hint="look at a few labels with `afterpass explain`, and try another model",
        )
    final = replace(
        final,
        labels=len(y),
        groups=kinds,
        relevant=positive,
        ece=measured[best][0],
        brier=measured[best][1],
        ece_raw=ece(raw, y),
        brier_raw=brier(raw, y),
    )
    others: dict[Method, tuple[float, float]] = {n: measured[n] for n in methods if n != best}
    return Report(final, reliability(held[best], y), reliability(raw, y), others)


def ece(said: Floats, was: Floats) -> float:
    """Expected calibration error over bins of equal count (Naeini et al. 2015; Nguyen and O'Connor 2015)."""
    return float(sum(b.count * abs(b.said - b.was) for b in reliability(said, was)) / len(said))


def brier(said: Floats, was: Floats) -> float:
    """Mean squared error of the probabilities (Brier 1950)."""
    from sklearn.metrics import brier_score_loss

    return float(brier_score_loss(was, said))


def reliability(said: Floats, was: Floats) -> tuple[Bin, ...]:
    """Items in order of what was said, in up to ten bins of equal count; equal values stay together."""
    order = np.argsort(said, kind="stable")
    said, was = said[order], was[order]
    edges = [0]
    for place in np.linspace(0, len(said), min(BINS, len(said)) + 1).round().astype(int)[1:-1]:
        place = int(np.searchsorted(said, said[place], side="left"))
        if place > edges[-1]:
            edges.append(place)
    edges.append(len(said))
    return tuple(
        Bin(end - start, float(said[start:end].mean()), float(was[start:end].mean()))
        for start, end in pairwise(edges)
        if end > start
    )


def _held_out(
    x: Floats, y: Floats, groups: NDArray[np.str_], make: Callable[[Floats, Floats], Fit]
) -> Floats:
    """Each item's probability by a fit that has not seen its group."""
    from sklearn.model_selection import GroupKFold

    said = np.empty(len(x))
    folds = GroupKFold(n_splits=min(FOLDS, len(set(groups.tolist()))), shuffle=True, random_state=0)
    for train, test in folds.split(x, y, groups):
        made = make(x[train], y[train]) if 0 < y[train].sum() < len(train) else Fit(method="platt")
        said[test] = [made.probability(value) for value in x[test]]
    return said


def _temperature(x: Floats, y: Floats) -> Fit:
    from scipy.optimize import minimize_scalar

    def loss(log_slope: float) -> float:
        z = math.exp(log_slope) * x
        return float(np.mean(np.logaddexp(0.0, z) - y * z))

    found = minimize_scalar(loss, bounds=(-5.0, 3.0), method="bounded")
    return Fit(method="temperature", slope=math.exp(found.x))


def _platt(x: Floats, y: Floats) -> Fit:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e4, max_iter=1000).fit(x[:, None], y)
    return Fit(method="platt", slope=float(model.coef_[0, 0]), offset=float(model.intercept_[0]))


def _isotonic(x: Floats, y: Floats) -> Fit:
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
    knots = sorted(
        {float(a): float(b) for a, b in zip(model.X_thresholds_, model.y_thresholds_, strict=True)}.items()
    )
    return Fit(method="isotonic", knots=tuple(knots))


_FITS: dict[Method, Callable[[Floats, Floats], Fit]] = {
    "temperature": _temperature,
    "platt": _platt,
    "isotonic": _isotonic,
}


def _sigmoid(x: float) -> float:
    return Fit(method="temperature").probability(float(x))
