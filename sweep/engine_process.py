"""The sweep's handle on a model: starts its process, keeps it fed, replaces it when it dies or hangs."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..core.errors import AfterpassError, EngineError
from ..core.types import Pair, Prompt, Reply, Score

Request = TypeVar("Request", Pair, Prompt)
Result = TypeVar("Result", Score, Reply)

_TAG = "_AFTERPASS_ENGINE"
"""The environment variable by which whatever an engine started is known, even when its guard was killed."""
MAX_DEATHS_IN_A_ROW = 4
"""So many deaths without a single result between them, and the engine is given up."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds, before an engine counts as hung."""

    load: float = 900.0
    step: float = 300.0


class EngineProcess(Generic[Request, Result]):
    """A model in a process of its own, seen as a queue: submit requests, poll results.

    A death or a hang replaces the process. What was in flight is suspect: it is sent again in small waves,
    and a request during which a process dies again, alone in its wave, comes back as an error. So one
    poisoned request costs itself, not its neighbours.

    Args:
        kind: "scorer" or "summarizer".
        config: the model's section of the configuration.
        log: where the process's output goes.
        extra: further arguments of the loader.
    """

    def __init__(
        self,
        kind: str,
        config: Any,
        *,
        log: Path,
        extra: Mapping[str, Any] | None = None,
        patience: Patience = Patience(),
    ) -> None:
        self._kind, self._config, self._extra = kind, config, dict(extra or {})
        self._name = f"the {kind} {config.model!r}"
        self._log = log
        self._patience = patience
        self._in_flight: dict[Hashable, Request] = {}
        self._waiting: deque[Request] = deque()
        self._suspects: deque[Request] = deque()
        self._wave = 0
        self._set_aside: list[Result] = []
        self._deaths_in_a_row = 0
        self._capacity = 0
        self._busy_before = self._busy = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self.key = ""
        self.about: dict[str, Any] = {}
        self.deaths = 0
        self.load_seconds = 0.0

    # ------------------------------------------------------------------------------- for callers

    def __enter__(self) -> EngineProcess[Request, Result]:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def busy_seconds(self) -> float:
        """Seconds spent inside the engine's own steps, over all processes."""
        return self._busy_before + self._busy

    @property
    def outstanding(self) -> int:
        """Requests submitted that have not come back."""
        return len(self._in_flight) + len(self._waiting) + len(self._suspects) + len(self._set_aside)

    @property
    def room(self) -> int:
        """How many more requests the engine wants now."""
        return max(0, self._capacity - self.outstanding)

    def start(self) -> None:
        """Load the model. Raises what the loader raises, or EngineError when it died or hung."""
        began = time.perf_counter()
        try:
            self._spawn()
        except BaseException:
            self._kill()
            raise
        self.load_seconds += time.perf_counter() - began

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; more than `room` are taken, and wait here."""
        self._waiting.extend(requests)
        self._feed()

    def poll(self, timeout: float = 1.0) -> list[Result]:
        """The results that arrived, after at most `timeout` seconds; each request comes back exactly once.

        Raises:
            EngineError: the engine keeps dying.
        """
        if not self.outstanding:
            return []
        if self._set_aside:
            set_aside, self._set_aside = self._set_aside, []
            return set_aside
        assert self._connection is not None
        results: list[Result] = []
        try:
            if self._connection.poll(timeout):
                while self._connection.poll(0):
                    results += self._receive()
            elif time.monotonic() - self._heard > self._patience.step:
                self._replace(f"no sign of progress for {self._patience.step:.0f} s")
        except (EOFError, OSError):  # what came before its end still counts
            self._replace("its process died")
        self._feed()
        return results

    def close(self) -> None:
        """End the process, its memory and all that it started. Waits until they are gone."""
        if self._process is None:
            return
        self._outbound.put(("end",))
        with contextlib.suppress(subprocess.TimeoutExpired):
            # An idle engine ends by itself; a busy one is not waited for.
            self._process.wait(timeout=0.1 if self._in_flight else 20)
        self._kill()

    # ------------------------------------------------------------------------------------ inside

    def _spawn(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        ours, theirs = Pipe(duplex=True)
        read_end, self._lifeline = os.pipe()
        self._tag = uuid.uuid4().hex
        try:
            with open(self._log, "ab", buffering=0) as log:
                self._process = subprocess.Popen(
                    # -P: the folder we happen to be in must not shadow anybody's modules.
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "afterpass.sweep.worker",
                        str(theirs.fileno()),
                        str(read_end),
                    ],
                    pass_fds=(theirs.fileno(), read_end),
                    env={**os.environ, _TAG: self._tag},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        finally:
            theirs.close()
            os.close(read_end)
        self._connection: Connection | None = ours
        # A thread of its own to send: were both sides to wait for a full pipe to empty, neither would move.
        self._outbound: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        threading.Thread(target=_send_all, args=(ours, self._outbound), daemon=True).start()
        self._outbound.put(("load", self._kind, self._config, self._extra))
        self._await_ready(ours)

    def _await_ready(self, connection: Connection) -> None:
        try:
            if not connection.poll(self._patience.load):
                raise EngineError(
                    f"{self._name} did not load within {self._patience.load:.0f} s",
                    hint=f"see {self._log}",
                )
            message = connection.recv()
        except (EOFError, OSError):
            raise EngineError(f"{self._name} died while it was loading", hint=f"see {self._log}") from None
        if message[0] == "failed":
            raise message[1]
        _, self.key, self.about, _, self._capacity = message
        self._heard = time.monotonic()

    def _receive(self) -> list[Result]:
        assert self._connection is not None
        message = self._connection.recv()
        self._heard = time.monotonic()
        if message[0] == "failed":
            self._failure = message[1]
            raise EOFError
        _, results, self._capacity, self._busy = message
        for result in results:
            self._in_flight.pop(identity(result), None)
        if results:
            self._deaths_in_a_row = 0
        return list(results)

    def _feed(self) -> None:
        # While there are suspects, only they are in flight, a wave at a time.
        if self._suspects or self._wave:
            if self._in_flight:
                return
            if not self._suspects:
                self._wave = 0
            else:
                self._send([self._suspects.popleft() for _ in range(min(self._wave, len(self._suspects)))])
                return
        batch = [
            self._waiting.popleft()
            for _ in range(min(len(self._waiting), max(0, self._capacity - len(self._in_flight))))
        ]
        if batch:
            self._send(batch)

    def _send(self, requests: list[Request]) -> None:
        for request in requests:
            self._in_flight[identity(request)] = request
        self._outbound.put(("submit", requests))

    def _replace(self, why: str) -> None:
        failure, self._failure = self._failure, None
        why = failure.message if isinstance(failure, AfterpassError) else why
        self._kill()
        self._busy_before, self._busy = self.busy_seconds, 0.0
        self.deaths += 1
        self._deaths_in_a_row += 1
        lost, self._in_flight = list(self._in_flight.values()), {}
        if self._wave and len(lost) == 1:  # it was alone, and it is the second death it was part of
            self._set_aside.append(_error(lost[0], f"the engine died twice on it ({why})"))  # type: ignore[arg-type]
            self._deaths_in_a_row = 0
        else:
            self._suspects.extendleft(reversed(lost))
            self._wave = max(1, len(lost) // 16)
        if self._deaths_in_a_row > MAX_DEATHS_IN_A_ROW:
            raise EngineError(
                f"{self._name} died {self._deaths_in_a_row} times in a row ({why})",
                hint=f"see {self._log}",
            )
        self.start()
        self._feed()

    _failure: BaseException | None = None

    def _kill(self) -> None:
        if self._process is None:
            return
        self._outbound.put(None)
        os.close(self._lifeline)  # the guard clears everything below it
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.returncode < 0:
            # The guard was killed itself. The model died with it; what the model had started did not.
            _clear(self._tag)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._process = None


def identity(value: Pair | Score | Prompt | Reply) -> Hashable:
    """What matches a result to its request."""
    if isinstance(value, Pair | Score):
        return value.query_hash, value.text_hash
    return value.id


def _error(request: Pair | Prompt, why: str) -> Score | Reply:
    if isinstance(request, Pair):
        return Score(request.query_hash, request.text_hash, None, error=why)
    return Reply(id=request.id, finish_reason="error", error=why)


def _clear(tag: str, patience: float = 5.0) -> None:
    """Kill every process that inherited the tag, until none is left (or after `patience` seconds)."""
    mark = f"{_TAG}={tag}".encode()
    until = time.monotonic() + patience
    while living := [pid for pid in _others() if mark in _environment(pid)]:
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(0.02)


def _others() -> list[int]:
    with contextlib.suppress(OSError):  # no /proc: nothing to go by
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return []


def _environment(pid: int) -> bytes:
    """Empty for zombies, for other users' processes and for those that are gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _send_all(connection: Connection, outbound: queue.SimpleQueue[tuple[Any, ...] | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while (message := outbound.get()) is not None:
            connection.send(message)
