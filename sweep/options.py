"""What a caller may ask of a sweep or a plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from ..core.types import Selection

Reopen = Literal["rejudge", "redecide", "retry_errors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How one sweep differs from the configured one.

    Attributes:
        now: do not wait for groups to settle nor for a window; implied by `run` and `group`.
        run, group: judge only the groups with an item of that run, or of that name or reference.
        summaries: False gives verdicts and extracts only; the groups stay due for their summaries.
        reopen: judge chosen groups again: with fresh scores, by the policy alone, or where errors stand.
        max_runtime: stop in good order after so long; the rest stays due.
    """

    now: bool = False
    run: str | None = None
    group: str | None = None
    namespace: str | None = None
    summaries: bool = True
    reopen: Reopen | None = None
    max_runtime: timedelta | None = None

    @property
    def selection(self) -> Selection:
        """The part of the ledger that is meant."""
        return Selection(run=self.run, group=self.group, namespace=self.namespace)

    @property
    def waits(self) -> bool:
        """Whether settling and windows are waited for."""
        return not (self.now or self.run or self.group)


DEFAULT = SweepOptions()
