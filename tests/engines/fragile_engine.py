"""Engines that die or hang on command, loaded by name in a model's process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Any

from afterpass.core.types import Pair, Score


class Fragile:
    """Scores a text by its length; a text that starts with a command does what it says instead."""

    key = "fragile"
    room_for = 64

    def __init__(self) -> None:
        self._queue: deque[Pair] = deque()

    @property
    def pending(self) -> int:
        return len(self._queue)

    @property
    def room(self) -> int:
        return max(0, self.room_for - self.pending)

    def submit(self, request: Pair) -> None:
        self._queue.append(request)

    def step(self) -> list[Score]:
        batch = [self._queue.popleft() for _ in range(min(4, len(self._queue)))]
        for pair in batch:
            match pair.text.split(":")[0]:
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(3600)
                case "raise":
                    raise RuntimeError("no such luck")
        return [Score(p.query_hash, p.text_hash, float(len(p.text))) for p in batch]

    def about(self) -> dict[str, Any]:
        return {"kind": "fragile", "pid": os.getpid()}

    def close(self) -> None:
        pass


def load(_config: Any) -> Fragile:
    return Fragile()


def load_with_family(_config: Any) -> Fragile:
    """Starts a grandchild in a session of its own, as engines do; it ignores SIGTERM."""
    subprocess.Popen(
        [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"],
        start_new_session=True,
    )
    return Fragile()


def load_never(_config: Any) -> Fragile:
    time.sleep(3600)
    raise AssertionError


def load_dying(_config: Any) -> Fragile:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
