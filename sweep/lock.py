"""One sweep at a time in one home."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.errors import StoreError, SweepRunning


@contextmanager
def sweep_lock(path: Path) -> Iterator[None]:
    """Hold the home's lock. The kernel gives it back however the process ends, so it is never stale.

    Raises:
        SweepRunning: another sweep holds it; the message names its process.
        StoreError: the home cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{path.parent} cannot be written: {error.strerror}",
            hint="name a home that this user can write with --home or AFTERPASS_HOME",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SweepRunning(
                f"another sweep is at work in {path.parent} (process {holder(path) or 'unknown'})",
                hint="wait for it, or end it with SIGTERM: it stops in good order",
            ) from None
        with suppress(OSError):  # on a full disk the lock holds nevertheless, only without a name
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
        with suppress(OSError):
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def holder(path: Path) -> int | None:
    """The process that holds the lock, or None when it is free (or was never taken)."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(handle, 32, 0)
        return int(written) if written.isdigit() else None
    else:
        return None
    finally:
        os.close(handle)
