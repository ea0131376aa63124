"""Recording processes that are killed again and again, in one home; run by `test_spool_kills`.

    python spool_under_fire.py HOME KILLS SEED

forks recorders and adopters two at a time, kills them at random and at each named moment of the spool, and
prints one line of JSON: what was acknowledged, stored, lost and doubled, and how often each moment was hit.
A fork is as good as a fresh interpreter here and a hundred times cheaper.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from afterpass.core import failpoints
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.spool import Bad, adopt_orphans, open_segments, read_segment, sealed_segments

WRITING = (
    "spool.create",
    "spool.made",
    "spool.created",
    "spool.headed",
    "spool.opened",
    "spool.append",
    "spool.write",
    "spool.appended",
    "spool.sync",
    "spool.synced",
    "spool.seal",
    "spool.seal.synced",
    "spool.seal.renamed",
    "spool.seal.inbox_synced",
    "spool.sealed",
)
ADOPTING = ("spool.adopt", "spool.seal.renamed", "spool.seal.inbox_synced", "spool.sealed")


def record_until_killed(home: Home, acknowledged: Path, seed: int) -> None:
    """Record all sorts of things; write down each id once it is acknowledged."""
    chance = random.Random(seed)
    said = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    recorder = Recorder(
        home,
        segment_bytes=chance.choice((2_000, 20_000, 8_000_000)),
        segment_age=chance.choice((0.005, 0.05, 5.0)),
        durability=chance.choice(("segment", "record")),
    )
    waiting: list[str] = []
    for n in range(100_000):
        text = f"{n} " + "x" * chance.choice((0, 10, 500, 3_000))
        wait = chance.random() < 0.02
        item = recorder.record(text, query="q", run=f"r{n // 10}", wait=wait)
        if item is not None:
            if wait:
                os.write(said, f"{item}\n".encode())
            else:
                waiting.append(item)
        if chance.random() < 0.01 and recorder.flush():
            os.write(said, "".join(f"{item}\n" for item in waiting).encode())
            waiting.clear()
        if chance.random() < 0.01:
            recorder.close(run=f"r{n // 10}")
        if chance.random() < 0.01:
            recorder.record(None)  # type: ignore[arg-type]
        if chance.random() < 0.1:
            time.sleep(0.001)


def adopt_until_killed(home: Home) -> None:
    """What a sweep does at its start, over and over."""
    while True:
        adopt_orphans(home)
        time.sleep(0.002)


def forked(work: Callable[[], None], aim: str, log: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            if aim:
                failpoints.hit = failpoints._armed(failpoints.parse(aim), str(log))
            work()
        finally:
            os._exit(9)
    return child


def under_fire(home: Home, kills: int, seed: int) -> dict[str, object]:
    """The whole game; returns its account."""
    chance = random.Random(seed)
    acknowledged, log = home.root / "acknowledged", home.root / "hits"
    aims = [(name, "write") for name in WRITING] + [(name, "adopt") for name in ADOPTING]
    died = Counter[str]()
    for n in range(0, kills, 2):
        children = []
        for offset in range(2):
            name, role = aims[(n + offset) % len(aims)] if chance.random() < 0.7 else ("", "write")
            aim = f"{name}@{chance.choice((1, 1, 2, 5))}=kill" if name else ""
            work = (
                partial(adopt_until_killed, home)
                if role == "adopt"
                else partial(record_until_killed, home, acknowledged, chance.randrange(2**31))
            )
            children.append(forked(work, aim, log))
        # Whoever did not meet its moment by then, or has none, dies wherever it is.
        end = time.monotonic() + chance.uniform(0.005, 0.15)
        while children and time.monotonic() < end:
            for child in list(children):
                if (ended := os.waitpid(child, os.WNOHANG))[0]:
                    assert os.waitstatus_to_exitcode(ended[1]) == -signal.SIGKILL, ended
                    children.remove(child)
                    died["aimed"] += 1
            time.sleep(0.002)
        for child in children:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(ended[1]) == -signal.SIGKILL, ended
            died["random"] += 1

    adopt_orphans(home)
    assert open_segments(home) == [], "orphans that nobody can adopt"
    assert not list(home.spool.glob(".*")), "hidden files that nobody clears away"
    stored, torn = Counter[str](), 0
    for path in sealed_segments(home):
        for _, said in read_segment(path):
            if isinstance(said, Bad):
                assert said.reason == "torn", said
                torn += 1
            elif said["type"] == "item":
                stored[said["item_id"]] += 1
    promised = set(acknowledged.read_text().split()) if acknowledged.exists() else set()
    return {
        "part": "spool",
        "kills": died.total(),
        "random": died["random"],
        "aimed": dict(sorted(Counter(line.split()[0] for line in log.read_text().splitlines()).items())),
        "segments": len(sealed_segments(home)),
        "acknowledged": len(promised),
        "stored": len(stored),
        "torn": torn,
        "lost": len(promised - stored.keys()),
        "doubled": sum(count > 1 for count in stored.values()),
    }


if __name__ == "__main__":
    print(json.dumps(under_fire(Home(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))))
