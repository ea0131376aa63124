"""What labels taught of a policy's scorer, while a sweep decides by it: a promise is withdrawn where it no
longer fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..core.types import Candidate
from ..rerank import calibration, drift
from ..rerank.guarantee import shape
from .context import Context


class Learnt:
    """One policy's calibration, and the look of the groups that it is applied to.

    The drift check comes at 20, 40, 80, ... groups; those of sweeps with fewer add up. Groups decided by a
    promise before it was withdrawn stand; the note says how to decide them again.
    """

    def __init__(self, context: Context, name: str, key: str) -> None:
        self._context = context
        self._name = name
        self.policy = context.config.policy[name].decide
        self.calibration = calibration.load(context.home.calibrations, name, key)
        self._shapes: list[calibration.Shape] = []
        self._next = drift.LEAST
        if (promise := self._promise) is None:
            return
        if promise.withdrawn:
            self._say(promise.withdrawn)
        else:
            self._shapes = _read(self._unchecked)

    def see(self, candidates: Sequence[Candidate]) -> None:
        """Note a group that is about to be decided."""
        promise = self._promise
        if promise is None or promise.withdrawn:
            return
        self._shapes.append(shape(candidate.logit for candidate in candidates))
        if len(self._shapes) >= self._next:
            self._next *= 2
            self._check(promise)
        elif self._next == drift.LEAST:
            _write(self._unchecked, self._shapes)

    def _check(self, promise: calibration.Promise) -> None:
        _write(self._unchecked, [])
        found = drift.check(promise, self._shapes)
        if not found.fits:
            assert self.calibration is not None
            why = f"scores are not what they were when labelled (p = {found.p_value:.2g}; {found.where})"
            self.calibration = self.calibration.withdraw(why)
            calibration.save(self._context.home.calibrations, self.calibration)
            self._say(why)

    @property
    def _promise(self) -> calibration.Promise | None:
        return self.calibration.promised(self.policy) if self.calibration else None

    @property
    def _unchecked(self) -> Path:
        """Where the shapes of groups lie that no check has seen yet, from one sweep to the next."""
        assert self.calibration is not None
        return self._context.home.calibrations / "unchecked" / f"{self.calibration.name}.json"

    def _say(self, why: str) -> None:
        text = (
            f"policy {self._name!r}: the promise of max_miss = {self.policy.max_miss} is withdrawn: {why}. "
            "Nothing is dropped by it; label groups of today and run `afterpass calibrate --max-miss` again, "
            "then `afterpass sweep --redecide`"
        )
        if text not in self._context.account.problems:
            self._context.account.problems.append(text)
            self._context.progress.note(text)


def _read(path: Path) -> list[calibration.Shape]:
    try:
        return [(float(a), float(b), float(c)) for a, b, c in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _write(path: Path, shapes: Sequence[calibration.Shape]) -> None:
    """A disk that refuses costs a later check and nothing else."""
    try:
        if shapes:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(shapes), "utf-8")
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return
