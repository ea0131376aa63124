"""How space comes back after pruning: a compacting copy, against texts in monthly files.

    python benchmarks/keeping.py [--gib 1.0] [--share 0.25] [--months 12] [--json]

Both sides get the same texts, about 2 KB each and as compressible as prose, in groups of ten whose last item
came in one of twelve months; `--share` of the months are pruned. Deduplication is across months: one text in
fifty comes again in the next month.

- `copy`: the ledger as it is; `afterpass prune`'s own code writes it anew and renames it over the old.
- `monthly`: the same ledger with its texts in a file for each month, attached at each opening; old files are
  unlinked, after the texts in them that later months share were copied on, and rows are deleted in place.

Given are seconds, the peak of extra bytes on disk, the bytes that came back, and what each costs every day:
the time of opening the ledger (done hundreds of times a sweep) and of fetching 1,000 texts by their hashes;
and the seconds that it takes to forget a single item so that no file has its bytes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from afterpass.core.config import StoreConfig
from afterpass.core.paths import Home
from afterpass.store import prune, rewrite
from afterpass.store.erase import erase
from afterpass.store.erase_filter import which
from afterpass.store.ledger_file import LedgerFile

A_GROUP = 10
FILL = """
CREATE TEMP TABLE words AS SELECT list(md5('w' || w)[1:3 + (w % 6)::INTEGER]) AS word FROM range(4000) r(w);
CREATE TEMP TABLE made AS
SELECT i, i // $group AS g, (i // $group) * $months // ($n // $group) AS month,
       CASE WHEN i % 50 = 49 AND i >= $n // $months THEN i - $n // $months ELSE i END AS t
FROM range($n) r(i);
INSERT INTO item BY NAME
SELECT i + 1 AS seq, md5('i' || i)::UUID AS item_id, 'default' AS namespace, md5('g' || g)::UUID AS group_id,
       md5('t' || t)::UUID AS text_hash, 2000 AS chars, false AS blank, 'run' || g AS run_id,
       'result' AS kind, TIMESTAMPTZ '2026-01-15' + to_months(month::INTEGER) AS created_at, 0 AS priority,
       md5('s' || i // 1000)::UUID AS segment_id
FROM made ORDER BY i;
INSERT INTO item_group
SELECT 'default', md5('g' || g)::UUID, 'run' || g, 'default', md5('q' || g)::UUID, 'what is ' || g || '?', 12
FROM range($n // $group) r(g);
INSERT INTO group_state BY NAME
SELECT 'default' AS namespace, md5('g' || g)::UUID AS group_id, 'default' AS policy,
       md5('q' || g)::UUID AS query_hash, $group AS items, 2000 * $group AS chars,
       g * $group + 1 AS first_seq, g * $group + $group AS last_seq,
       g * $group + $group AS judged_seq, md5('sweep')::UUID AS judged_sweep,
       0 AS rejudge_after, 0 AS summarised_seq, md5('sweep')::UUID AS summarised_from, 0 AS summary_seq,
       1 AS change, TIMESTAMPTZ '2026-01-15' + to_months((g * $months // ($n // $group))::INTEGER) AS due_at,
       true AS closed, 0 AS priority
FROM range($n // $group) r(g);
INSERT INTO score BY NAME
SELECT i + 1 AS score_seq, md5('sweep')::UUID AS sweep_id, md5('q' || g)::UUID AS query_hash,
       md5('t' || t)::UUID AS text_hash, 'm' AS model_key, random() * 10 - 5 AS logit, 0 AS excerpt_start,
       900 AS excerpt_end, 1 AS chunks, 400 AS tokens, 1.0 AS share_read
FROM made ORDER BY i;
INSERT INTO verdict BY NAME
SELECT md5('sweep')::UUID AS sweep_id, md5('g' || g)::UUID AS group_id, i + 1 AS seq,
       CASE WHEN i % 10 < 5 THEN 'keep' ELSE 'drop' END AS decision, 'top_k' AS reason, i % 10 + 1 AS rank,
       1.5 AS logit, i + 1 AS score_seq, 'm' AS model_key
FROM made ORDER BY i;
UPDATE counter SET next_item = $n + 1, next_score = $n + 1, next_change = 2;
"""
TEXTS = """
SELECT md5('t' || t)::UUID AS text_hash,
       list_aggregate(list_transform(range(400), lambda k: word[1 + (hash(t * 1000 + k) % 4000)::INTEGER]),
                      'string_agg', ' ') AS text, 2000 AS chars
FROM (SELECT t FROM made WHERE i BETWEEN $first AND $last AND t = i), words
ORDER BY t
"""


def fill(home: Home, n: int, months: int) -> None:
    """A ledger of `n` items, a hundredth of the texts at a time."""
    with closing(LedgerFile(home.ledger)) as file:
        connection = file.connection
        sizes = {"n": n, "group": A_GROUP, "months": months}
        for statement in FILL.split(";\n"):
            if statement.strip():
                used = {name: value for name, value in sizes.items() if f"${name}" in statement}
                connection.execute(statement, used)
        step = max(1, n // 20)
        for first in range(0, n, step):
            connection.execute(f"INSERT INTO text {TEXTS}", {"first": first, "last": first + step - 1})
    file = LedgerFile(home.ledger)  # filling leaves blocks free: both sides begin without
    rewrite.nothing_gone(file)
    rewrite.replace_ledger(file)


def monthly(home: Home, into: Home, months: int) -> None:
    """The same ledger with its texts in a file for each month."""
    into.root.mkdir()
    shutil.copyfile(home.ledger, into.ledger)
    with closing(duckdb.connect(str(into.ledger))) as connection:
        connection.execute("SET threads = 1")
        for month in range(months):
            attach(connection, into, month)
            connection.execute(
                f"CREATE TABLE m{month}.text AS SELECT t.* FROM text t WHERE text_hash IN ("
                "SELECT text_hash FROM item GROUP BY text_hash "
                "HAVING date_part('month', min(created_at)) = $m)",
                {"m": month + 1},
            )
            connection.execute(f"DETACH m{month}")
        connection.execute("DROP TABLE text")
    with closing(duckdb.connect(str(into.ledger))) as connection:  # its space was never in this layout
        fresh = into.root / "fresh.duckdb"
        connection.execute(f"ATTACH '{fresh}' AS fresh")
        connection.execute("COPY FROM DATABASE ledger TO fresh")
        connection.execute("DETACH fresh")
    os.rename(fresh, into.ledger)


def attach(connection: duckdb.DuckDBPyConnection, home: Home, month: int) -> None:
    connection.execute(f"ATTACH IF NOT EXISTS '{home.root / f'text-{month:02d}.duckdb'}' AS m{month}")


def prune_monthly(home: Home, old: int) -> None:
    """Carry on what later months share, unlink what is old, delete the rest in place."""
    with closing(duckdb.connect(str(home.ledger))) as connection:
        for month in (*range(old), old):
            attach(connection, home, month)
        connection.execute(
            "CREATE TEMP TABLE gone AS SELECT seq, text_hash, group_id FROM item "
            "WHERE date_part('month', created_at) <= $old", {"old": old},
        )  # fmt: skip
        shared = "SELECT text_hash FROM item WHERE seq NOT IN (SELECT seq FROM gone)"
        for month in range(old):
            connection.execute(
                f"INSERT INTO m{old}.text SELECT * FROM m{month}.text WHERE text_hash IN ({shared})"
            )
        for month in (*range(old), old):
            connection.execute(f"DETACH m{month}")
        for month in range(old):
            (home.root / f"text-{month:02d}.duckdb").unlink()
        connection.execute("BEGIN")
        for table in ("item", "verdict"):
            connection.execute(f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM gone)")
        for table in ("group_state", "item_group"):
            connection.execute(f"DELETE FROM {table} WHERE group_id IN (SELECT group_id FROM gone)")
        connection.execute("DELETE FROM score WHERE score_seq IN (SELECT seq FROM gone)")
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")


def forget_monthly(home: Home, month: int) -> None:
    """One text out of its month's file: the file is written anew, and so is the ledger with its item."""
    with closing(duckdb.connect(str(home.ledger))) as connection:
        connection.execute("SET threads = 1")
        attach(connection, home, month)
        ((text_hash,),) = connection.execute(f"SELECT min(text_hash) FROM m{month}.text").fetchall()
        aside = home.root / "aside.duckdb"
        connection.execute(f"ATTACH '{aside}' AS aside")
        connection.execute(
            f"CREATE TABLE aside.text AS FROM m{month}.text WHERE text_hash <> $t", {"t": text_hash}
        )
        connection.execute("DETACH aside")
        connection.execute(f"DETACH m{month}")
        os.rename(aside, home.root / f"text-{month:02d}.duckdb")
        connection.execute("DELETE FROM item WHERE text_hash = $t", {"t": text_hash})
        connection.execute(f"ATTACH '{aside}' AS aside")
        connection.execute("COPY FROM DATABASE ledger TO aside")
        connection.execute("DETACH aside")
        os.rename(aside, home.ledger)


# ------------------------------------------------------------------------------------------ measuring


def used(folder: Path) -> int:
    """Bytes below a folder, as allocated."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue
    return total


@contextmanager
def watched(home: Home) -> Iterator[dict[str, float]]:
    """Seconds, peak of extra bytes, and bytes that came back."""
    before, peak, stop = used(home.root), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            peak[0] = max(peak[0], used(home.root) - before)

    thread = threading.Thread(target=watch)
    thread.start()
    result: dict[str, float] = {"bytes_before": before}
    began = time.perf_counter()
    try:
        yield result
    finally:
        result["seconds"] = round(time.perf_counter() - began, 2)
        stop.set()
        thread.join()
        result["peak_extra_bytes"] = peak[0]
        result["bytes_returned"] = before - used(home.root)


def daily(home: Home, months: range) -> dict[str, float]:
    """Milliseconds of an opening and of fetching 1,000 texts by their hashes, medians of seven."""
    opened, fetched = [], []
    source = " UNION ALL ".join(f"FROM m{month}.text" for month in months) or "FROM text"
    for _ in range(7):
        began = time.perf_counter()
        connection = duckdb.connect(str(home.ledger), config={"threads": "2", "memory_limit": "1GB"})
        for month in months:
            attach(connection, home, month)
        connection.execute("SELECT next_item FROM counter").fetchall()
        opened.append(time.perf_counter() - began)
        connection.execute(
            "CREATE TEMP TABLE wanted AS SELECT DISTINCT text_hash FROM item WHERE seq % 97 = 0 LIMIT 1000"
        )
        began = time.perf_counter()
        connection.execute(
            f"SELECT text_hash, text FROM ({source}) WHERE text_hash IN (SELECT text_hash FROM wanted)"
        ).fetchall()
        fetched.append(time.perf_counter() - began)
        connection.close()
    return {
        "open_ms": round(statistics.median(opened) * 1000, 1),
        "fetch_1000_ms": round(statistics.median(fetched) * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0, help="text, before compression")
    parser.add_argument("--share", type=float, default=0.25, help="of the months, pruned")
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="only the last line")
    options = parser.parse_args()
    say: Callable[[str], None] = (lambda _: None) if options.json else print
    n = int(options.gib * 2**30 / 2000) // (A_GROUP * options.months) * A_GROUP * options.months
    old = round(options.months * options.share)
    results: dict[str, Any] = {"items": n, "pruned_share": old / options.months}
    with tempfile.TemporaryDirectory(prefix="keeping-") as folder:
        copy, months = Home(Path(folder) / "copy"), Home(Path(folder) / "monthly")
        copy.root.mkdir()
        fill(copy, n, options.months)
        monthly(copy, months, options.months)
        say(f"{n:,} items; copy {used(copy.root):,} bytes, monthly {used(months.root):,}")
        results["copy"] = daily(copy, range(0))
        results["monthly"] = daily(months, range(options.months))
        with watched(copy) as measured:
            file = LedgerFile(copy.ledger)
            prune.choose(file, before=datetime(2026, old + 1, 1, tzinfo=UTC), summarised=[])
            prune.prune(file)
        results["copy"] |= measured
        with watched(months) as measured:
            prune_monthly(months, old)
        results["monthly"] |= measured
        began = time.perf_counter()
        with closing(duckdb.connect(str(copy.ledger), read_only=True)) as connection:
            ((item_id,),) = connection.execute("SELECT item_id FROM item LIMIT 1").fetchall()
        erase(copy, StoreConfig(export=False), which(items=[str(item_id)]), wait=0)
        results["copy"]["forget_one_s"] = round(time.perf_counter() - began, 2)
        began = time.perf_counter()
        forget_monthly(months, old + 1)
        results["monthly"]["forget_one_s"] = round(time.perf_counter() - began, 2)
    for side in ("copy", "monthly"):
        say(f"{side}: {results[side]}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
