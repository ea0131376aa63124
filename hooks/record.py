"""`afterpass.record(...)` and its companions: one recorder for the process, made when it is first needed.

Unless `configure` named a home, the recorder follows `AFTERPASS_HOME`, should that change in mid-process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from ..core.paths import Home
from .queue import RecorderCounts
from .recorder import Recorder
from .settings import Durability
from .values import Redact

log = logging.getLogger("afterpass")

_recorder: Recorder | None = None
_follows: str | None = None
"""What `AFTERPASS_HOME` said when the recorder was made."""
_configured = False
_failed = False
_lock = threading.RLock()


def record(
    text: str,
    *,
    query: str | None = None,
    group: str | None = None,
    run: str | UUID | None = None,
    step: str | int | None = None,
    kind: str = "result",
    agent: str | None = None,
    policy: str = "default",
    namespace: str = "default",
    id: str | int | UUID | None = None,
    created_at: datetime | None = None,
    priority: int = 0,
    deadline: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    wait: bool | float = False,
) -> str | None:
    """Record one intermediate result of an agent; see `Recorder.record`."""
    found = recorder()
    if found is None:
        return None
    return found.record(
        text,
        query=query,
        group=group,
        run=run,
        step=step,
        kind=kind,
        agent=agent,
        policy=policy,
        namespace=namespace,
        id=id,
        created_at=created_at,
        priority=priority,
        deadline=deadline,
        meta=meta,
        wait=wait,
    )


def flush(timeout: float | None = 30.0) -> bool:
    """Wait until all that was recorded is on disk and in the inbox; see `Recorder.flush`."""
    return _recorder.flush(timeout) if _recorder is not None else True


def close(*, run: str | UUID | None = None, group: str | None = None, namespace: str = "default") -> None:
    """Say that a run or a group is complete; see `Recorder.close`."""
    if (found := recorder()) is not None:
        found.close(run=run, group=group, namespace=namespace)


def counts() -> RecorderCounts:
    """What became of the items recorded in this process."""
    return _recorder.counts if _recorder is not None else RecorderCounts()


def configure(
    home: Home | str | os.PathLike[str] | None = None,
    *,
    redact: Redact | None = None,
    durability: Durability | None = None,
    queue_rows: int | None = None,
    queue_bytes: int | None = None,
    segment_bytes: int | None = None,
    segment_age: float | None = None,
    block: float | None = None,
) -> Recorder:
    """Choose how this process records; what was recorded before is written first. See `Recorder`.

    Raises:
        ConfigError: an argument is out of its range; nothing is changed then.
    """
    global _recorder, _configured
    with _lock:
        new = Recorder(
            home,
            redact=redact,
            durability=durability,
            queue_rows=queue_rows,
            queue_bytes=queue_bytes,
            segment_bytes=segment_bytes,
            segment_age=segment_age,
            block=block,
        )
        old, _recorder = _recorder, new
        _configured = True
    if old is not None:
        old.shutdown()
    return new


def recorder() -> Recorder | None:
    """The recorder of this process; None where there is not even a home folder (said once)."""
    found = _recorder
    if found is not None and (_configured or os.environ.get("AFTERPASS_HOME") == _follows):
        return found
    return _new()


def _new() -> Recorder | None:
    global _recorder, _follows, _failed
    with _lock:
        old, follows = _recorder, os.environ.get("AFTERPASS_HOME")
        if old is not None and (_configured or follows == _follows):
            return old  # another thread was faster
        try:
            _recorder, _follows = Recorder(), follows
        except Exception as error:
            if not _failed:
                log.warning(
                    "nothing is recorded: %s; name a folder with AFTERPASS_HOME or configure()", error
                )
            _failed, _recorder = True, None
    if old is not None:
        old.shutdown(0)  # it writes what it has and ends by itself
    return _recorder


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
