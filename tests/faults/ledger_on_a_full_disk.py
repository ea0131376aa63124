"""A whole sweep on a disk that is full, at every amount of free space; run by `test_ledger_disk`.

    python ledger_on_a_full_disk.py DISK STEP_KB

DISK is a small tmpfs. Again and again agents record, the disk is filled up to so many KB, a sweep is tried,
and the disk is cleared: each time another write is the one that finds no room. One line of JSON tells how the
sweeps ended, and what the books say.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

from ledger_play import books, finish, record, sweep_now

from afterpass.core.errors import AfterpassError
from afterpass.core.paths import Home

MOST_KB = 4000


def fill(disk: Path, leave: int) -> Path:
    """Take all but `leave` bytes of the disk."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - leave))
    return ballast


def on_a_full_disk(disk: Path, step: int, acknowledged: Path) -> dict[str, object]:
    """The whole game; returns its account."""
    chance = random.Random(5)
    home = Home(disk / "home")
    home.root.mkdir()
    ended = Counter[str]()
    for free in range(0, MOST_KB * 1024, step * 1024):
        record(home, acknowledged, chance, groups=6)
        ballast = fill(disk, free)
        try:
            ended[sweep_now(home).outcome] += 1
        except AfterpassError as error:
            ended[type(error).__name__] += 1
        finally:
            ballast.unlink()
    finish(home)
    return {"ended": ended, **books(home, acknowledged)}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps(on_a_full_disk(place, int(sys.argv[2]), place.with_name("acknowledged"))))
