"""Which segments there are, and taking over those whose writer died."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core import failpoints
from ..core.paths import Home
from .spool_writer import NEW, OPEN, SEALED, hand_over


def sealed_segments(home: Home) -> list[Path]:
    """Segments that wait in the inbox, oldest first (their names start with the time)."""
    return _with_suffix(home.inbox, SEALED)


def open_segments(home: Home) -> list[Path]:
    """Segments that a writer holds, or held when it died, oldest first."""
    return _with_suffix(home.spool, OPEN)


def adopt_orphans(home: Home) -> list[Path]:
    """Move the segments of dead writers into the inbox, as they are.

    A writer is dead when its lock is free: the kernel drops it with the process, whatever became of its
    pid. A torn last line is left for the reader, to whom it costs just that line. Safe beside living
    writers and other adopters.

    Returns:
        Where the adopted segments lie now.
    """
    adopted = []
    for path in open_segments(home):
        with suppress(FileNotFoundError), _if_free(path) as descriptor:
            if descriptor is None:
                continue
            failpoints.hit("spool.adopt")
            os.fsync(descriptor)
            adopted.append(hand_over(home, path))
            with suppress(FileNotFoundError):  # a second name of the same file, where a crash left two
                os.unlink(path)
    # Nothing was ever acknowledged out of a file that nobody had seen.
    for path in _with_suffix(home.spool, NEW):
        with suppress(FileNotFoundError), _if_free(path) as descriptor:
            if descriptor is not None:
                os.unlink(path)
    return adopted


@contextmanager
def _if_free(path: Path) -> Iterator[int | None]:
    """Hold the file's lock, or give None where somebody else does or the file has moved on."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        ours = os.fstat(descriptor)
        there = os.stat(path, follow_symlinks=False)
        yield descriptor if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) else None
    finally:
        os.close(descriptor)


def _with_suffix(folder: Path, suffix: str) -> list[Path]:
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(suffix)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)]
