"""A sweep's account: what it saw, did and left, adding up, as one JSON document."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from ..core.errors import AfterpassError
from ..core.keys import reference

VERSION = 1


@dataclass(slots=True)
class Account:
    """Counted while the sweep runs; `outcome` is set at its end.

    `items.seen == items.kept + items.dropped + items.errors` always.
    """

    home: Path
    sweep_id: UUID
    outcome: str = "running"
    items: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    ingest: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, int] = field(default_factory=dict)
    tokens: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    models: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_started: bool = False
    engine_failed: bool = False
    stopped_because: str | None = None

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the wall time of a block to a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - began

    @property
    def engine_share(self) -> float | None:
        """The share of the wall time, loading apart, that was spent inside the engines; None without any."""
        busy = self.seconds["score_engine"] + self.seconds["summarise_engine"] + self.seconds["check_engine"]
        wall = self.seconds["total"] - self.seconds["load"]
        return round(min(1.0, busy / wall), 4) if busy and wall > 0 else None

    @property
    def exit_code(self) -> int:
        """As the design's table: 69 where an engine failed, 3 with errors, 130 interrupted, else 0."""
        if self.engine_failed:
            return 69
        return {"errors": 3, "interrupted": 130}.get(self.outcome, 0)

    def problem(self, error: AfterpassError) -> None:
        """Note what a person should hear of at the end."""
        self.problems.append(f"{error.message}; {error.hint}" if error.hint else error.message)

    def settle(self) -> None:
        """Set the outcome from what was counted, unless the sweep's end set it already."""
        if self.outcome != "running":
            return
        if self.stopped_because:
            self.outcome = "stopped"
        elif self.items["errors"] or self.groups["errors"] or self.engine_failed:
            self.outcome = "errors"
        elif (
            self.items["seen"] or self.groups["judged"] or self.groups["summarised"] or self.groups["skipped"]
        ):
            self.outcome = "done"
        else:
            self.outcome = "nothing_due"

    def as_json(self) -> dict[str, Any]:
        """The contract of `afterpass sweep --json`."""
        return {
            "version": VERSION,
            "home": str(self.home),
            "sweep": reference("s", self.sweep_id),
            "outcome": self.outcome,
            "stopped_because": self.stopped_because,
            "items": _counts(self.items, "seen", "kept", "dropped", "errors", "duplicates", "cached"),
            "groups": _counts(self.groups, "judged", "summarised", "skipped", "extracts", "errors"),
            "pairs": _counts(self.pairs, "scored", "checked", "errors"),
            "waiting": self.waiting,
            "ingested": _counts(self.ingest, "segments", "rows", "known"),
            "overflowed": self.ingest["overflowed"],
            "refused": self.ingest["refused"],
            "quarantined": self.ingest["quarantined"],
            "tokens": _counts(self.tokens, "scored", "prompt", "cached_prompt", "output"),
            "replies_cached": self.tokens["replies_cached"],
            "seconds": {name: round(value, 3) for name, value in sorted(self.seconds.items())},
            "engine_share": self.engine_share,
            "models": self.models,
            "problems": self.problems,
        }


def _counts(counter: Counter[str], *names: str) -> dict[str, int]:
    return {name: counter[name] for name in names}
