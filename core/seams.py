"""The seam behind which models live.

Both models, the one that scores and the one that writes, are engines that are fed while they work:
requests go in as there is room, results come out as they finish, in any order, matched by id. So one
worker process, one watchdog and one set of contract tests serve both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from .types import Pair, Prompt, Reply, Score

Request = TypeVar("Request", contravariant=True)
Result = TypeVar("Result")


class Engine(Protocol[Request, Result]):
    """A model, loaded and ready.

    Exactly one result comes back for each request submitted. A request that cannot be answered comes back
    as a result with its `error` set; an exception means that the engine itself is lost.
    """

    @property
    def key(self) -> str:
        """The judgement key: names all that could change an answer (model, revision, backend, dtype, ...)."""
        ...

    @property
    def pending(self) -> int:
        """How many requests were submitted and have not come back."""
        ...

    @property
    def room(self) -> int:
        """How many more requests it wants now to keep its batches full."""
        ...

    def submit(self, request: Request) -> None:
        """Take a request. Does no model work and never blocks for long."""
        ...

    def step(self) -> list[Result]:
        """Do one batch of work (a second or so at most) and return what finished; [] when nothing did."""
        ...

    def about(self) -> Mapping[str, Any]:
        """What it is and how it was sized, for receipts and `doctor`; JSON values only."""
        ...

    def close(self) -> None:
        """Give back memory, threads and processes. Safe to call twice."""
        ...


Scorer = Engine[Pair, Score]
Summarizer = Engine[Prompt, Reply]
