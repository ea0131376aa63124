"""What the ledger costs: taking in, picking due work, committing, growing, and how much memory it needs.

    python benchmarks/store.py [--items N] [--ingest N] [--sweeps N] [--million] [--quick] [--json]

Ratios are made within one run, in turn, so that both sides meet the same machine:

- ingest against a bare DuckDB insert of the very same Arrow rows, batch by batch (2 KB texts);
- picking 10,000 due items of `--items` (100-byte texts), all at the end or scattered over the whole;
- committing 10,000 verdicts; growth of the file over the sweeps (the second half of them against the first);
- the peak memory of a process that ingests, and of one that does a sweep's side of the store;
- `ten_times`: by how much each figure of the ledger grew from a tenth of the items.

`benchmarks/record.py` measures `record()` in 1, 4 and 8 processes; it is run from here, so that the last line
has everything: `record_p50_us`, `record_p99_us`, `asyncio_added_p99_us`, `ingest_ratio`, `pick_end_s`,
`pick_scattered_s`, `peak_mb`, `growth`, `commit_10k_verdicts_s`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from afterpass.core.config import StoreConfig
from afterpass.core.keys import new_id
from afterpass.core.paths import Home
from afterpass.core.types import Decision, Item, Score, Selection, Verdict
from afterpass.store.ingest import ingest
from afterpass.store.ingest_batch import Source, batches
from afterpass.store.ledger import Ledger
from afterpass.store.ledger_open import CHECKPOINT, MEMORY
from afterpass.store.spool import SegmentWriter, item_record, read_segment, sealed_segments

MODEL = "model/revision/torch/float32/256/64/64/32"
A_GROUP = 10
DUE = 10_000
FILL = """
INSERT INTO item BY NAME
SELECT i + 1 AS seq, md5('i' || i)::UUID AS item_id, 'default' AS namespace,
       md5('g' || i // 10)::UUID AS group_id, md5('t' || i)::UUID AS text_hash, 100 AS chars, false AS blank,
       'run' || (i // 1000) AS run_id, 'result' AS kind, 'agent' AS agent,
       TIMESTAMPTZ '2026-01-01' + to_seconds(i) AS created_at, 0 AS priority,
       md5('s' || i // 1000)::UUID AS segment_id
FROM range($n) r(i);
INSERT INTO text SELECT md5('t' || i)::UUID, left(repeat(md5('x' || i), 4), 100), 100 FROM range($n) r(i);
INSERT INTO item_group
SELECT 'default', md5('g' || g)::UUID, 'run' || (g // 100), 'default', md5('q' || g)::UUID,
       'what is ' || g || '?', 12
FROM range($n // 10) r(g);
INSERT INTO group_state BY NAME
SELECT 'default' AS namespace, md5('g' || g)::UUID AS group_id, 'default' AS policy,
       md5('q' || g)::UUID AS query_hash, 10 AS items, 1000 AS chars, g * 10 + 1 AS first_seq,
       g * 10 + 10 AS last_seq, g * 10 + 10 AS judged_seq, md5('w' || g // 10000)::UUID AS judged_sweep,
       0 AS rejudge_after, g * 10 + 10 AS summarised_seq, md5('w' || g // 10000)::UUID AS summarised_from,
       md5('w' || g // 10000)::UUID AS summarised_sweep, 0 AS summary_seq, 1 AS change,
       TIMESTAMPTZ '2026-01-01' + to_seconds(g) AS due_at, false AS closed, 0 AS priority
FROM range($n // 10) r(g);
INSERT INTO score BY NAME
SELECT i + 1 AS score_seq, md5('w' || i // 100000)::UUID AS sweep_id, md5('q' || i // 10)::UUID AS query_hash,
       md5('t' || i)::UUID AS text_hash, $model AS model_key, random() * 10 - 5 AS logit, 0 AS excerpt_start,
       100 AS excerpt_end, 1 AS chunks, 40 AS tokens, 1.0 AS share_read
FROM range($n) r(i);
INSERT INTO verdict BY NAME
SELECT md5('w' || i // 100000)::UUID AS sweep_id, md5('g' || i // 10)::UUID AS group_id, i + 1 AS seq,
       CASE WHEN i % 10 < 5 THEN 'keep' ELSE 'drop' END AS decision, 'top_k' AS reason, i % 10 + 1 AS rank,
       1.5 AS logit, i + 1 AS score_seq, $model AS model_key
FROM range($n) r(i);
UPDATE counter SET next_item = $n + 1, next_score = $n + 1, next_summary = $n + 1;
"""
PICKED = {
    "end": "first_seq > (SELECT max(last_seq) FROM group_state) - $due",
    "scattered": "(first_seq // 10) % greatest(1, (SELECT max(last_seq) FROM group_state) // $due) = 0",
}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


# ------------------------------------------------------------------------------------------- ingest


def text_of(chance: random.Random, size: int) -> str:
    words = [f"{chance.getrandbits(40):x}" for _ in range(size // 9)]
    return " ".join(words)[:size].ljust(size, ".")


def spool(home: Home, items: int, size: int, seed: int) -> None:
    chance = random.Random(seed)
    now = datetime.now(UTC)
    writer = SegmentWriter(home)
    for number in range(items):
        item = Item(
            item_id=new_id(), text=text_of(chance, size), created_at=now, query=f"question {number // 20}",
            run=f"{seed}-{number // 200}", step=str(number), kind="tool", agent="searcher",
        )  # fmt: skip
        writer.write(item_record(item))
        if writer.size > 8 * 2**20:
            writer.seal()
            writer = SegmentWriter(home)
    writer.seal()


def bare_insert(path: Path, tables: list[tuple[Any, Any]]) -> None:
    """What a program without any care would do: the same rows, batch by batch, into two tables; DuckDB set up
    as the ledger's is."""
    config = {"threads": "2", "memory_limit": MEMORY, "checkpoint_threshold": CHECKPOINT}
    with duckdb.connect(str(path), config=config) as connection:
        connection.execute("CREATE TABLE text (text_hash UUID, text VARCHAR, chars INTEGER)")
        for items, texts in tables:
            connection.register("incoming_items", items)
            connection.register("incoming_texts", texts)
            connection.execute("CREATE TABLE IF NOT EXISTS item AS FROM incoming_items LIMIT 0")
            connection.execute("BEGIN TRANSACTION")
            connection.execute("INSERT INTO item FROM incoming_items")
            connection.execute("INSERT INTO text FROM incoming_texts")
            connection.execute("COMMIT")


def measure_ingest(root: Path, items: int) -> dict[str, Any]:
    """`ingest_ratio` is ingest's rate over the bare insert's: 1 would be no cost beside the insert itself."""
    ours, bare = [], []
    for turn in range(3):
        home = Home.at(root / f"ingest-{turn}")
        spool(home, items, 2048, turn)
        now = datetime.now(UTC)
        sources = (Source(path, read_segment(path), now, 0) for path in sealed_segments(home))
        tables = [(b.incoming, b.texts.table) for b in batches(sources)]
        bare.append(timed(lambda t=turn, rows=tables: bare_insert(root / f"bare-{t}.duckdb", rows))[0])
        del tables
        seconds, report = timed(lambda h=home: ingest(h, StoreConfig()))
        assert report.rows == items
        ours.append(seconds)
    return {
        "ingest_rows_s": round(items / statistics.median(ours)),
        "bare_rows_s": round(items / statistics.median(bare)),
        "ingest_ratio": round(statistics.median(b / o for b, o in zip(bare, ours, strict=True)), 3),
    }


# ---------------------------------------------------------------------------------- a ledger's size


def fill(path: Path, items: int) -> float:
    with Ledger.open(path) as ledger:
        connection = ledger._file.connection
        begun = time.perf_counter()
        for statement in FILL.strip().split(";\n"):
            known = {"n": items, "model": MODEL}
            connection.execute(statement, {name: v for name, v in known.items() if f"${name}" in statement})
        return time.perf_counter() - begun


def measure_picking(path: Path) -> dict[str, Any]:
    """Seconds from an open ledger to the due groups and their pairs to score; the best of five."""
    found: dict[str, Any] = {}
    for where, condition in PICKED.items():
        with Ledger.open(path) as ledger:
            connection = ledger._file.connection
            connection.execute("UPDATE group_state SET judged_seq = last_seq")
            connection.execute(f"UPDATE group_state SET judged_seq = 0 WHERE {condition}", {"due": DUE})
            connection.execute("CHECKPOINT")
        with Ledger.open(path) as ledger:
            groups_s, pick_s = [], []
            for _ in range(5):
                begun = time.perf_counter()
                groups = ledger.due_groups(
                    policies=["default"], now=datetime.now(UTC), settle=None, sweep_id=new_id(), limit=DUE
                )
                groups_s.append(time.perf_counter() - begun)
                work = ledger.pairs_to_score(groups, "another model")
                pick_s.append(time.perf_counter() - begun)
            assert len(work.pairs) == sum(group.items for group in groups) >= DUE * 0.9, len(work.pairs)
        found |= {f"pick_{where}_s": round(min(pick_s), 3), f"due_{where}_s": round(min(groups_s), 3)}
    return found


def measure_commit(path: Path) -> dict[str, Any]:
    """Seconds to commit the verdicts of 1,000 groups of ten, 64 groups a transaction."""
    with Ledger.open(path) as ledger:
        sweep = new_id()
        groups = ledger.due_groups(
            policies=["default"], now=datetime.now(UTC), settle=None, sweep_id=sweep, limit=DUE // A_GROUP
        )
        candidates = ledger.candidates(groups, MODEL)
        judged = [
            (group, [Verdict(c.seq, Decision.DROP, "bench", 1, c.logit) for c in candidates[group.key]])
            for group in groups
        ]
        begun = time.perf_counter()
        for start in range(0, len(judged), 64):
            ledger.write_verdicts(sweep, MODEL, judged[start : start + 64], policy_hash={})
        return {"commit_10k_verdicts_s": round(time.perf_counter() - begun, 3)}


# --------------------------------------------------------------------------- memory, growth, scaling


def sweep_side(path: str, passes: int) -> list[int]:
    """A sweep's reading and writing, without models; returns the file's size after each pass."""
    sizes = []
    for _ in range(passes):
        with Ledger.open(path) as ledger:
            sweep = new_id()
            ledger.start_sweep(sweep, config={}, started=datetime.now(UTC))
            groups = ledger.due_groups(
                policies=["default"], now=datetime.now(UTC), settle=None, sweep_id=sweep, limit=1000
            )
            work = ledger.pairs_to_score(groups, "sweep")
            ledger.texts([pair.text_hash for pair in work.pairs])
            ledger.write_scores(
                sweep, "sweep", [Score(p.query_hash, p.text_hash, 0.5, 0, p.chars) for p in work.pairs]
            )
            candidates = ledger.candidates(groups, "sweep")
            for start in range(0, len(groups), 64):
                page = groups[start : start + 64]
                judged = [
                    (g, [Verdict(c.seq, Decision.KEEP, "bench", 1, c.logit, score_seq=c.score_seq)
                         for c in candidates[g.key]])
                    for g in page
                ]  # fmt: skip
                ledger.write_verdicts(sweep, "sweep", judged, policy_hash={})
            ledger.kept(groups[:64])
            ledger.end_sweep(sweep, outcome="done", account={}, ended=datetime.now(UTC))
            ledger.reopen(Selection(), "redecide")
        sizes.append(Path(path).stat().st_size)
    return sizes


def measure_growth(root: Path, sweeps: int) -> dict[str, Any]:
    """`growth`: bytes that the second half of the sweeps added over the first's; 10,000 verdicts each."""
    path = root / "growth.duckdb"
    fill(path, DUE)
    with Ledger.open(path) as ledger:
        ledger._file.connection.execute("UPDATE group_state SET judged_seq = 0")
    before = path.stat().st_size
    sizes = [before, *sweep_side(str(path), sweeps)]
    half = sweeps // 2
    return {
        "growth": round((sizes[-1] - sizes[half]) / max(1, sizes[half] - sizes[0]), 3),
        "growth_bytes_a_verdict": round((sizes[-1] - sizes[0]) / (sweeps * DUE), 1),
    }


def peak_mb_of(*arguments: str) -> float:
    """The peak memory of this very program in another process, doing one thing."""
    done = subprocess.run(
        [sys.executable, __file__, "--only", *arguments], check=True, capture_output=True, text=True
    )
    return float(done.stdout.strip().rpartition("\n")[2])


def only(what: str, path: str) -> None:
    if what == "ingest":
        ingest(Home.at(path), StoreConfig())
    else:
        sweep_side(path, 1)
    # Not getrusage: its peak includes what the process that started this one had at that moment.
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(int(peak.split()[1]) / 1024)


def measure_memory(root: Path, ledger: Path, items: int) -> dict[str, Any]:
    home = Home.at(root / "memory")
    spool(home, items, 2048, 99)
    peaks = {
        "peak_ingest_mb": peak_mb_of("ingest", str(home.root)),
        "peak_sweep_mb": peak_mb_of("sweep", str(ledger)),
    }
    return {**{name: round(peak) for name, peak in peaks.items()}, "peak_mb": round(max(peaks.values()))}


def measure_size(root: Path, items: int) -> dict[str, Any]:
    path = root / f"ledger-{items}.duckdb"
    seconds = fill(path, items)
    print(f"filled {items:,} items in {seconds:.0f} s: {path.stat().st_size / 1e6:.0f} MB", flush=True)
    found = measure_picking(path)
    return {**found, **measure_commit(path), "ledger_mb": round(path.stat().st_size / 1e6)}


def record_figures(seconds: float) -> dict[str, Any]:
    script = Path(__file__).with_name("record.py")
    done = subprocess.run(
        [sys.executable, script, "--json", "--seconds", str(seconds)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    names = ("record_p50_us", "record_p99_us", "asyncio_added_p99_us", "processes")
    return {name: found[name] for name in names}


def ten_times(smaller: dict[str, Any], larger: dict[str, Any]) -> dict[str, float]:
    """By how much each figure grew from a tenth of the items: 10 is linear."""
    numbers = {name: value for name, value in larger.items() if isinstance(value, float | int)}
    return {name: round(value / smaller[name], 2) for name, value in numbers.items() if smaller.get(name)}


def measure_million(root: Path) -> dict[str, Any]:
    """A million items of 2 KB once: seconds and peak memory of the process that takes them in."""
    home = Home.at(root / "million")
    spool(home, 1_000_000, 2048, 7)
    seconds, peak = timed(lambda: peak_mb_of("ingest", str(home.root)))
    size = home.ledger.stat().st_size
    shutil.rmtree(home.root)
    return {
        "million_s": round(seconds, 1),
        "million_peak_mb": round(peak),
        "million_gb": round(size / 1e9, 2),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--items", type=int, default=10_000_000, help="of the ledger that work is picked from"
    )
    arguments.add_argument("--ingest", type=int, default=200_000, help="2 KB items to take in, three times")
    arguments.add_argument("--sweeps", type=int, default=100, help="over which the file grows")
    arguments.add_argument("--million", action="store_true", help="take in a million items of 2 KB as well")
    arguments.add_argument("--quick", action="store_true", help="a hundredth of it all, in a minute")
    arguments.add_argument("--no-record", action="store_true", help="leave benchmarks/record.py out")
    arguments.add_argument("--folder", type=Path, help="where to work; a temporary folder where not given")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.only:
        only(*given.only)
        return
    if given.quick:
        given.items, given.ingest, given.sweeps = given.items // 50, given.ingest // 40, given.sweeps // 10
    root = Path(tempfile.mkdtemp(prefix="afterpass-store-", dir=given.folder))
    result: dict[str, Any] = {"version": 1, "items": given.items}
    smaller: dict[str, Any] = {}

    def sizes() -> dict[str, Any]:
        smaller.update(measure_size(root, given.items // 10))
        larger = measure_size(root, given.items)
        return {**larger, "ten_times": ten_times(smaller, larger)}

    try:
        for measure in (
            lambda: {} if given.no_record else record_figures(1.0 if given.quick else 3.0),
            lambda: measure_ingest(root, given.ingest),
            sizes,
            lambda: measure_memory(root, root / f"ledger-{given.items}.duckdb", given.ingest),
            lambda: measure_growth(root, given.sweeps),
            lambda: measure_million(root) if given.million else {},
        ):
            found = measure()
            result |= found
            print(found, flush=True)
    finally:
        shutil.rmtree(root)
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
