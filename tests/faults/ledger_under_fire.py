"""Agents, sweeps, imports and readers in one home, killed again and again; run by `test_ledger_kills`.

    python ledger_under_fire.py HOME KILLS SEED

Children are forked two at a time and die at a named moment of the store, a little after one (within DuckDB's
own opening, WAL replay, commit and checkpoint, which have no names), or wherever they are. One line of JSON
says what became of what was acknowledged, and how often each moment was hit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb  # loaded here, and used by none but the forks
import pyarrow.parquet  # noqa: F401
from ledger_play import books, finish, record, small, sweep_now

from afterpass.core import failpoints
from afterpass.core.errors import LedgerBusy, SweepRunning
from afterpass.core.keys import given_item_id
from afterpass.core.paths import Home
from afterpass.core.types import Item
from afterpass.store import export
from afterpass.store.importer import import_records
from afterpass.summarize import extractive  # noqa: F401
from afterpass.sweep import worker

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
NEW = ("ledger.create", "ledger.created", "ledger.linked", "ledger.migrate", "ledger.migrated")
SWEEPING = (
    "ledger.open", "ledger.opened", "ledger.begun", "ledger.commit", "ledger.committed", "ledger.close",
    "ledger.closed", "ingest.batch", "ingest.committed", "ingest.unlink", "ingest.unlinked",
    "commit.start_sweep", "commit.scores", "commit.verdicts", "commit.replies",
    "commit.summaries", "commit.end_sweep", "export.written", "export.renamed", "export.merge",
    "export.manifest_write", "export.manifest", "export.manifest_renamed", "export.done", "export.unlink",
)  # fmt: skip
HELD = ("outbox.write", "outbox.written", "outbox.renamed", "outbox.kept")
APPLYING = ("outbox.aside", "outbox.apply", "outbox.applied", "outbox.unlinked")
MOMENTS = {*NEW, *SWEEPING, *HELD, *APPLYING, "ingest.known_unlinked"}
WITHIN = ("ledger.open", "ledger.commit", "ledger.close")
"""Moments after which DuckDB works for a while: death comes up to 20 ms later, wherever it then is."""


def work(home: Home, acknowledged: Path, *, seed: int, busy_timeout: float) -> None:
    """An agent and a sweep, over and over; now and then an import of its own beside the others."""
    chance = random.Random(seed)
    export.MOST_FILES = 2  # merged and cleared away at once, so that there are moments to die in
    export.GRACE_SECONDS = 0.0
    while True:
        record(home, acknowledged, chance)
        try:
            if chance.random() < 0.2:
                bring(home, acknowledged, chance)
            sweep_now(home, busy_timeout)
        except (SweepRunning, LedgerBusy):
            time.sleep(0.01)


def bring(home: Home, acknowledged: Path, chance: random.Random) -> None:
    """An import; what it returns from is promised."""
    mine = chance.randrange(2**31)
    ids = [given_item_id("default", f"{mine}-{n}") for n in range(3)]
    import_records(
        home,
        small(0.5).store,
        [
            Item(item_id=item, text=f"Brought {n} {mine}.", created_at=CREATED, query="What?", run=f"i{mine}")
            for n, item in enumerate(ids)
        ],
    )
    with open(acknowledged, "ab", buffering=0) as file:
        file.write("".join(f"{item}\n" for item in ids).encode())


def hold(home: Home, ready: int) -> None:
    """A reader that keeps the ledger open; it comes when nobody writes."""
    while True:
        try:
            with duckdb.connect(str(home.ledger), read_only=True) as connection:
                connection.execute("SELECT count(*) FROM item").fetchall()
                os.write(ready, b"x")
                time.sleep(60)
        except duckdb.IOException:
            time.sleep(0.01)


def forked(play: Callable[[], None], aim: str, within: float, log: Path) -> int:
    """A child that dies at `aim`, `within` seconds after it where that is given; else when we say so."""
    child = os.fork()
    if child == 0:
        worker._prctl(worker.PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            if within:
                failpoints.hit = partial(_a_little_after, aim, log, within)
            elif aim:
                failpoints.hit = failpoints._armed(failpoints.parse(f"{aim}=kill"), str(log))
            play()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(9)
    return child


def _a_little_after(aim: str, log: Path, within: float, name: str) -> None:
    # The alarm's default action ends the process from within the kernel, as kill -9 does.
    if name == aim and not signal.getitimer(signal.ITIMER_REAL)[0]:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{name}+\n")
        signal.setitimer(signal.ITIMER_REAL, within)


def aims(chance: random.Random) -> list[str]:
    """All moments in some order, last first; some come only after what went wrong at another."""
    follow = {**dict(zip(HELD, APPLYING, strict=True)), "ingest.unlink": "ingest.known_unlinked"}
    first = [*SWEEPING, *HELD, *(f"{name}+" for name in WITHIN * 3), *("",) * 4]
    found = []
    for aim in chance.sample(first, len(first)):
        found += [follow[aim], aim] if aim in follow else [aim]
    return found


def under_fire(home: Home, kills: int, seed: int) -> dict[str, object]:
    """The whole game; returns its account."""
    chance = random.Random(seed)
    acknowledged, log = home.root / "acknowledged", home.root / "hits"
    births = max(len(NEW), kills // 40)
    for n in range(births):
        born_under_fire(Home(home.root / f"new-{n}"), NEW[n % len(NEW)], log, chance)
    died = Counter[str](aimed=births)
    waiting: list[str] = []
    while died.total() < kills:
        waiting = waiting or aims(chance)
        aim = waiting.pop()
        if aim == "outbox.aside" or chance.random() < 0.03:
            damage(home, chance)
        reader = reader_of(home) if aim in HELD and home.ledger.exists() else None
        play = partial(work, home, acknowledged, busy_timeout=2.0 if reader is None else 0.01)
        children = [forked(partial(play, seed=chance.randrange(2**31)), *how_to_die(aim, chance), log)]
        if chance.random() < 0.2:
            children.append(forked(partial(play, seed=chance.randrange(2**31)), "", 0.0, log))
        died.update(reap(children, patience(aim, chance)))
        if reader is not None:
            os.kill(reader, signal.SIGKILL)
            os.waitpid(reader, 0)
    finished(partial(finish, home))
    account = finished(partial(books, home, acknowledged))
    return {
        "part": "ledger",
        "kills": died.total(),
        "random": died["random"],
        "aimed": dict(sorted(Counter(line.split()[0] for line in log.read_text().splitlines()).items())),
        **account,
    }


def patience(aim: str, chance: random.Random) -> float:
    """Seconds after which who has not met its moment dies wherever it is."""
    if not aim:
        return chance.uniform(0.05, 1.0)
    # Each sweep comes to these, however much the last ones left it to do; to others perhaps never.
    return 60.0 if aim.startswith("commit.") else 5.0


def how_to_die(aim: str, chance: random.Random) -> tuple[str, float]:
    """At which hit of the moment, and how long after it."""
    if aim.endswith("+"):
        return aim[:-1], chance.uniform(1e-4, 0.02)
    # With a reader, not at the first: something is to be left in the outbox. A sweep commits a kind but once.
    hit = 2 if aim in HELD else 1 if aim.startswith("commit.") else chance.choice((1, 1, 2, 3))
    return (f"{aim}@{hit}" if aim else ""), 0.0


def born_under_fire(home: Home, aim: str, log: Path, chance: random.Random) -> None:
    """A ledger that is being made when death comes: the next who comes makes it, and nothing is lost."""
    home.root.mkdir()
    acknowledged = home.root / "acknowledged"
    record(home, acknowledged, chance)
    child = forked(partial(sweep_now, home), aim, 0.0, log)
    died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert died == -signal.SIGKILL, died
    finished(partial(finish, home))
    account = finished(partial(books, home, acknowledged))
    assert not account["wrong"], account
    assert not account["lost"], account


def reader_of(home: Home) -> int:
    """A process that holds the ledger by now."""
    ours, theirs = os.pipe()
    child = forked(partial(hold, home, theirs), "", 0.0, home.root / "hits")
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    return child


def reap(children: list[int], patience: float) -> list[str]:
    """How they died: of their aim, or, who lives after `patience` seconds, killed wherever it was."""
    end = time.monotonic() + patience
    gone = []
    while children and time.monotonic() < end:
        for child in list(children):
            if (ended := os.waitpid(child, os.WNOHANG))[0]:
                gone.append(_died(ended[1], "aimed"))
                children.remove(child)
                # The other one goes on a little, beside what the dead one left.
                end = min(end, time.monotonic() + 0.2)
        time.sleep(0.002)
    for child in children:
        os.kill(child, signal.SIGKILL)
        gone.append(_died(os.waitpid(child, 0)[1], "random"))
    return gone


def _died(status: int, how: str) -> str:
    code = os.waitstatus_to_exitcode(status)
    assert code in (-signal.SIGKILL, -signal.SIGALRM), f"a child ended by itself: {code}"
    return how


def damage(home: Home, chance: random.Random) -> None:
    """What waits in the outbox, or tells readers, is damaged or gone: results are made again."""
    waiting = sorted(home.outbox.glob("*.commit")) if home.outbox.exists() else []
    if waiting:
        path = chance.choice(waiting)
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 0xFF
        path.write_bytes(content)
    (home.exports / "manifest.json").unlink(missing_ok=True)


def finished(play: Callable[[], object]) -> object:
    """What `play` returns, done in a child: a process that is to fork must not have used Arrow or DuckDB."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ours)
            with os.fdopen(theirs, "w") as file:
                json.dump(play(), file)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(9)
    os.close(theirs)
    with os.fdopen(ours) as file:
        told = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "see what it printed"
    return json.loads(told)


if __name__ == "__main__":
    print(json.dumps(under_fire(Home(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))))
