"""The scorer: pairs in as there is room, scores out as their chunks finish.

A thread reads (cleans, tokenises, cuts) ahead of the model, whose steps fill batches by tokens from a window
of rows sorted by length. Results are matched by job, never by position.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import EngineError
from ..core.types import Pair, Score
from . import batches
from .reading import Job, Reader
from .runner import Planned, Row, Runner

_ROWS = 1024
_CHARACTERS = 8_000_000
_READ_AT_ONCE = 64
_READ_CHARACTERS = 400_000
_LOST = 64


class CrossEncoder:
    """`core.seams.Scorer` over any runner and any kind of model.

    Args:
        batch_tokens: padded tokens of a batch at most.
        details: what `about` adds.
    """

    def __init__(
        self,
        runner: Runner,
        reader: Reader,
        *,
        key: str,
        batch_tokens: int,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self._runner = runner
        self._reader = reader
        self._key = key
        self._budget = batch_tokens
        self._details = dict(details or {})

        self._pending = 0
        self._unread = 0  # pairs that the thread has not given back
        self._characters = 0
        self._rows: list[Row] = []
        self._tokens = 0
        self._planned: deque[Planned] = deque()
        self._failures = 0  # rows in a row that failed even alone
        self._seen = {"rows": 0, "tokens": 0, "padded": 0, "batches": 0}

        self._inbox: queue.SimpleQueue[Pair | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[Job | Score, int]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="afterpass-reader", daemon=True)
        self._thread.start()

    @property
    def key(self) -> str:
        """The judgement key."""
        return self._key

    @property
    def pending(self) -> int:
        """Pairs submitted that have not come back."""
        return self._pending

    @property
    def room(self) -> int:
        """Pairs that it wants now: bounded in number and, for long texts, in characters."""
        return max(0, _ROWS - self._pending) if self._characters < _CHARACTERS else 0

    def submit(self, request: Pair) -> None:
        """Take a pair."""
        if self._closed.is_set():
            raise EngineError("the scorer is closed")
        self._pending += 1
        self._unread += 1
        self._characters += len(request.text)
        self._inbox.put(request)

    def step(self) -> list[Score]:
        """Run the next batch (or as many as the backend wants at once)."""
        done = self._collect(wait=not self._planned)
        if not self._planned:
            self._plan()
        if self._planned:
            count = min(len(self._planned), self._runner.parallel)
            for job in self._run([self._planned.popleft() for _ in range(count)]):
                done.append(job.score())
                self._characters -= len(job.pair.text)
        self._pending -= len(done)
        return done

    def about(self) -> Mapping[str, Any]:
        """Model, backend, sizes, and how well the batches were filled."""
        seen = self._seen
        return {
            **self._details,
            **self._runner.about(),
            "key": self._key,
            "batch_tokens": self._budget,
            "rows": seen["rows"],
            "batches": seen["batches"],
            "tokens": seen["tokens"],
            "padding_share": round(1 - seen["tokens"] / seen["padded"], 4) if seen["padded"] else 0.0,
        }

    def close(self) -> None:
        """End the thread and drop the weights."""
        if not self._closed.is_set():
            self._closed.set()
            self._inbox.put(None)
            self._thread.join(timeout=10)
            self._runner.close()

    @property
    def _window_full(self) -> bool:
        return self._tokens >= batches.WINDOW * self._budget

    def _collect(self, *, wait: bool) -> list[Score]:
        """What the reading thread finished; waits a little for it only where the model has nothing to do."""
        done: list[Score] = []
        until = time.monotonic() + 0.5
        while self._unread:
            try:
                if wait and not self._window_full:
                    result, characters = self._outbox.get(timeout=max(0.0, until - time.monotonic()))
                else:
                    result, characters = self._outbox.get_nowait()
            except queue.Empty:
                if not self._thread.is_alive():
                    raise EngineError(f"the thread that reads texts for {self._key} died") from None
                break
            self._unread -= 1
            if isinstance(result, Score):
                self._characters -= characters
                done.append(result)
                continue
            self._rows += [(result, chunk) for chunk in range(len(result.read))]
            self._tokens += result.tokens
        return done

    def _length(self, row: Row) -> int:
        job, chunk = row
        start, end = job.read[chunk]
        return end - start + len(job.query) + self._runner.specials

    def _plan(self) -> None:
        rows = self._rows
        lengths = [self._length(row) for row in rows]
        run = self._runner
        for width, chosen in batches.plan(
            lengths, self._budget, run.multiple, run.most_rows, run.most_tokens
        ):
            self._planned.append((width, [rows[index] for index in chosen]))
        self._rows, self._tokens = [], 0

    def _run(self, planned: Sequence[Planned]) -> list[Job]:
        """Give batches to the model; the jobs that this finished."""
        finished: list[Job] = []
        try:
            results = self._runner.logits(planned)
        except EngineError:  # the engine itself is gone, whatever the rows
            raise
        except Exception:
            if len(planned) > 1:
                return [job for batch in planned for job in self._run([batch])]
            width, rows = planned[0]
            if len(rows) <= 2:
                return self._alone(rows)
            half = len(rows) // 2
            return [job for part in (rows[:half], rows[half:]) for job in self._run([(width, part)])]
        for (width, rows), logits in zip(planned, results, strict=True):
            self._seen["rows"] += len(rows)
            self._seen["batches"] += 1
            self._seen["tokens"] += sum(map(self._length, rows))
            self._seen["padded"] += width * len(rows)
            again = []
            for row, logit in zip(rows, logits, strict=True):
                if math.isfinite(logit):
                    finished += _done(row, float(logit))
                    self._failures = 0
                else:
                    again.append(row)
            if again:  # a neighbour's overflow may be to blame: once more, alone
                finished += self._alone(again)
        return finished

    def _alone(self, rows: Sequence[Row]) -> list[Job]:
        """Rows one by one, so that a poisoned one takes nobody with it."""
        finished: list[Job] = []
        for row in rows:
            try:
                width = batches.padded(self._length(row), self._runner.multiple)
                logit = float(self._runner.logits([(width, [row])])[0][0])
                error = None if math.isfinite(logit) else "logit_not_finite"
            except EngineError:
                raise
            except Exception as failure:
                logit, error = math.nan, f"{type(failure).__name__}: {failure}"[:500]
                self._failures += 1
                if self._failures >= _LOST:
                    raise EngineError(
                        f"the scorer {self._key} failed on {_LOST} rows in a row, the last with {error}",
                        hint='`afterpass doctor` checks the model; try `backend = "torch"` and a smaller '
                        "`batch_tokens`",
                    ) from failure
            finished += _done(row, None if error else logit, error)
        return finished

    def _read(self) -> None:
        """The reading thread: whatever waits, up to 64 pairs or 400,000 characters at a time."""
        while (pair := self._inbox.get()) is not None:
            pairs, characters = [pair], len(pair.text)
            while len(pairs) < _READ_AT_ONCE and characters < _READ_CHARACTERS:
                try:
                    more = self._inbox.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    return
                pairs.append(more)
                characters += len(more.text)
            for pair, result in zip(pairs, self._reader.read(pairs), strict=True):
                self._outbox.put((result, len(pair.text)))
            if self._closed.is_set():
                return


def _done(row: Row, logit: float | None, error: str | None = None) -> list[Job]:
    """Note a chunk's logit; the job, if it was its last."""
    job, chunk = row
    job.logits[chunk] = logit
    job.error = error or job.error
    job.waiting -= 1
    return [] if job.waiting else [job]
