"""What labels taught about a scorer on one kind of data: probabilities, and a promise about what is dropped.

A calibration belongs to a policy and a judgement key and lies as JSON in the home. Fitting it is the work of
`calibrate` and `guarantee`; this module only holds and applies it, with the standard library alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..core.config import DecidePolicy
from ..core.errors import InputError

VERSION = 1

Method = Literal["temperature", "platt", "isotonic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A map from logits to probabilities that never falls.

    Attributes:
        method: "temperature" divides the logit, "platt" (Platt 1999) also shifts it, "isotonic" (Zadrozny and
            Elkan 2002) steps through `knots`.
        slope, offset: probability = sigmoid(slope * logit + offset); unused by "isotonic".
        knots: (logit, probability), ascending; between two the line, beyond them the last.
        ece, brier: expected calibration error and Brier score, on groups that were held out of the fit.
        ece_raw, brier_raw: the same of sigmoid(logit), for comparison.
    """

    method: Method
    slope: float = 1.0
    offset: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()
    labels: int = 0
    groups: int = 0
    relevant: int = 0
    ece: float = 0.0
    brier: float = 0.0
    ece_raw: float = 0.0
    brier_raw: float = 0.0

    def probability(self, logit: float) -> float:
        """Probability of relevance, 0 to 1."""
        if self.method != "isotonic":
            return sigmoid(self.slope * logit + self.offset)
        place = bisect_right(self.knots, logit, key=lambda knot: knot[0])
        if place == 0:
            return self.knots[0][1]
        if place == len(self.knots):
            return self.knots[-1][1]
        (left, low), (right, high) = self.knots[place - 1], self.knots[place]
        return low + (high - low) * (logit - left) / (right - left)


Shape = tuple[float, float, float]
"""A group's scores in three numbers, for the drift check: best logit, mean logit, log(1 + items scored)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The decision drops at most `max_miss` of a group's relevant items on average, with `confidence`.

    Attributes:
        min_logit: representatives below it may be dropped; None where no threshold is covered.
        groups: how many labelled groups with a relevant item it rests on.
        relevant: how many relevant items they had.
        missed: share of them that the decision drops on the labelled groups themselves, averaged over groups.
        dropped: share of all items that it drops there.
        decide: names the rules of decision that it holds for.
        shapes: of the labelled groups.
        withdrawn: why it no longer counts; empty while it does.
    """

    max_miss: float
    confidence: float
    min_logit: float | None
    groups: int
    relevant: int
    missed: float
    dropped: float
    decide: str
    shapes: tuple[Shape, ...] = ()
    withdrawn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All that was learnt for one policy and judgement key."""

    policy: str
    model_key: str
    fit: Fit | None = None
    promise: Promise | None = None

    @property
    def name(self) -> str:
        """Names this calibration: changes whenever what it says changes."""
        told = json.dumps(_data(self), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    def probability(self, logit: float) -> float | None:
        """Probability of relevance; None where none was fitted."""
        return self.fit.probability(logit) if self.fit else None

    def promised(self, policy: DecidePolicy) -> Promise | None:
        """The promise that covers these rules of decision, withdrawn or not; None where there is none."""
        promise = self.promise
        if promise is None or policy.max_miss is None or promise.max_miss > policy.max_miss:
            return None
        return promise if promise.decide == rules(policy) else None

    def covers(self, policy: DecidePolicy) -> bool:
        """Whether there is a promise for these rules, withdrawn or not."""
        return self.promised(policy) is not None

    def least_logit(self, policy: DecidePolicy) -> float | None:
        """The threshold that a promise covers; None where it was withdrawn or allows none."""
        promise = self.promised(policy)
        return None if promise is None or promise.withdrawn else promise.min_logit

    def withdraw(self, why: str) -> Calibration:
        """The same without a promise that counts."""
        if self.promise is None:
            return self
        return replace(self, promise=replace(self.promise, withdrawn=why))


def rules(policy: DecidePolicy) -> str:
    """Names the rules of decision that a promise holds for: all of them but the promise itself."""
    return hashlib.sha256(policy.model_dump_json(exclude={"max_miss"}).encode()).hexdigest()[:12]


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    return (e := math.exp(x)) / (1.0 + e)


def path(folder: Path, policy: str, model_key: str) -> Path:
    """Where the calibration of a policy and judgement key lies."""
    mark = hashlib.sha256(f"{policy}\0{model_key}".encode()).hexdigest()[:12]
    return folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', policy)}-{mark}.json"


def load(folder: Path, policy: str, model_key: str) -> Calibration | None:
    """The calibration kept for a policy and judgement key, None where there is none.

    Raises:
        InputError: there is one and it cannot be read.
    """
    file = path(folder, policy, model_key)
    if not file.exists():
        return None
    found = _read(file)
    return found if (found.policy, found.model_key) == (policy, model_key) else None


def every(folder: Path) -> list[Calibration]:
    """All calibrations kept in a folder, by policy.

    Raises:
        InputError: one cannot be read.
    """
    return [_read(file) for file in sorted(folder.glob("*.json")) if not file.name.startswith(".")]


def save(folder: Path, calibration: Calibration) -> Path:
    """Keep a calibration, replacing what was kept for the same policy and judgement key."""
    folder.mkdir(parents=True, exist_ok=True)
    file = path(folder, calibration.policy, calibration.model_key)
    scratch = file.with_name(f".{file.name}")
    scratch.write_text(json.dumps(_data(calibration), indent=1) + "\n", "utf-8")
    scratch.replace(file)
    return file


def _read(file: Path) -> Calibration:
    try:
        data = json.loads(file.read_text("utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}, and this Afterpass reads {VERSION}")
        return _parsed(data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the calibration {file} cannot be read: {error}", hint="make it again with `afterpass calibrate`"
        ) from error


def _data(calibration: Calibration) -> dict[str, Any]:
    return {"version": VERSION, **asdict(calibration)}


def _parsed(data: dict[str, Any]) -> Calibration:
    fit, promise = data["fit"], data["promise"]
    if fit:
        fit = Fit(**{**fit, "knots": tuple((float(x), float(y)) for x, y in fit["knots"])})
    if promise:
        shapes = tuple((float(a), float(b), float(c)) for a, b, c in promise["shapes"])
        promise = Promise(**{**promise, "shapes": shapes})
    return Calibration(policy=data["policy"], model_key=data["model_key"], fit=fit, promise=promise)
