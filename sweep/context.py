"""What every phase of a sweep needs: where, by which rules, until when, and whom to tell."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ..core.config import Config, Policy
from ..core.keys import new_id
from ..core.paths import Home
from ..store.door import Door
from ..store.ledger import Ledger
from .account import Account
from .options import SweepOptions
from .progress import Progress, Silent

COMMIT_GROUPS = 64
COMMIT_SECONDS = 5.0


@dataclass
class Context:
    """One sweep's surroundings."""

    home: Home
    config: Config
    options: SweepOptions
    progress: Progress = field(default_factory=Silent)
    stop: threading.Event = field(default_factory=threading.Event)
    deadline: float | None = None
    """On `time.monotonic`'s clock: when to stop in good order."""
    deadline_reason: str = "max_runtime"
    sweep_id: UUID = field(default_factory=new_id)

    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.account = Account(self.home.root, self.sweep_id)
        self.door = Door(self.home, self.config.store)

    def ledger(self) -> Ledger:
        """The ledger, opened for a short while; close it before any model works.

        While a reader holds it, what is written waits in the outbox, and reading shows it nevertheless.
        """
        ledger = self.door.open()
        if self.door.held_by and self.door.held_by not in self.account.problems:
            self.account.problems.append(self.door.held_by)
            self.progress.note(f"{self.door.held_by}: results wait in {self.home.outbox}")
        for problem in self.door.problems:
            if problem not in self.account.problems:
                self.account.problems.append(problem)
        return ledger

    @property
    def stopping(self) -> bool:
        """Whether to take no new work; remembers the first reason for the account."""
        if self.account.stopped_because is None:
            if self.stop.is_set():
                self.account.stopped_because = "asked to stop"
            elif self.deadline is not None and time.monotonic() >= self.deadline:
                self.account.stopped_because = self.deadline_reason
        return self.account.stopped_because is not None

    @property
    def settle(self) -> timedelta | None:
        """How long groups must have been quiet, or None where that is not waited for."""
        return self.config.store.settle if self.options.waits else None


def now() -> datetime:
    """The present moment, timezone-aware."""
    return datetime.now(UTC)


def policy_hash(policy: Policy, calibration: str = "") -> UUID:
    """Names a policy's rules: verdicts carry it, so that an edited policy can be told from the old one.

    `calibration` names what labels taught, where that counts too.
    """
    return UUID(bytes=hashlib.sha256(f"{policy.model_dump_json()}{calibration}".encode()).digest()[:16])


class Cadence:
    """When to commit: after so many groups or so many seconds, whichever comes first."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self, groups: int, waiting: bool) -> bool:
        """Whether it is time, with `groups` finished and anything (`waiting`) to write at all."""
        return groups >= COMMIT_GROUPS or (waiting and time.monotonic() - self._last >= COMMIT_SECONDS)

    def mark(self) -> None:
        """Something was just committed."""
        self._last = time.monotonic()
