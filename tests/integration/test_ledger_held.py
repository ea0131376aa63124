"""A sweep while somebody else holds the ledger: it goes on beside readers, and never loses a result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from afterpass.core import config as configuration
from afterpass.core.config import StoreConfig
from afterpass.core.errors import LedgerBusy, StoreError
from afterpass.core.keys import new_id
from afterpass.core.types import Item, Reply, Score, Selection, Summary, SummaryStatus
from afterpass.store.door import Door
from afterpass.store.ledger import Ledger
from afterpass.store.ledger_parked import ParkedLedger
from afterpass.sweep import SweepOptions, plan

HOLD = """
import sys, time
import duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reader")
print("held", flush=True)
time.sleep(300)
"""


@contextmanager
def held(stock: Any, by: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(stock.home.ledger), by], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def door(stock: Any) -> Door:
    return Door(stock.home, StoreConfig(busy_timeout=timedelta(seconds=0.1)))


def test_a_whole_sweep_beside_a_reader_is_in_the_ledger_once_it_is_free(stock: Any, door: Door) -> None:
    items = stock.fill("a", "bb", "ccc")
    with held(stock, "reader") as pid:
        with door.open() as ledger:
            assert isinstance(ledger, ParkedLedger)
            assert f"process {pid}" in (door.held_by or "")
            sweep = stock.judge(ledger, keep=2)
        with door.open() as ledger:  # and what was written is seen by who asks next
            assert stock.due(ledger) == []
            (group,) = ledger.due_summaries(policies=["default"], sweep_id=sweep)
            assert [kept.excerpt for kept in ledger.kept([group])[group.key]] == ["ccc", "bb"]
            ledger.write_replies(sweep, "lm", [(new_id(), 0, Reply(id="x", text="y"))])
            ledger.write_summaries(sweep, [(group, [Summary(status=SummaryStatus.DONE, text="said")])])
            assert [row.text for row in ledger.summaries()] == ["said"]
            assert ledger.pairs_to_score([group], "lexical").cached == 3
            shown = ledger.verdicts().to_list()
        assert door.parked == 6
        with Ledger.open(stock.home.ledger, read_only=True) as ledger:
            assert ledger.verdicts().to_list() == []
    with door.open() as ledger:
        assert type(ledger) is Ledger
        assert (door.held_by, door.parked) == (None, 0)
        assert ledger.verdicts().to_list() == shown
        assert [row.item_id for row in ledger.verdicts(keep=True)] == [items[2].item_id, items[1].item_id]
        assert [row.text for row in ledger.summaries()] == ["said"]
        assert [(row.sweep_id, row.outcome) for row in ledger.history()] == [(sweep, "done")]


def test_another_process_finds_what_a_killed_sweep_left_in_the_outbox(stock: Any, door: Door) -> None:
    stock.fill("a", "bb")
    with held(stock, "reader"):
        with door.open() as ledger:
            sweep = stock.judge(ledger)
        fresh = Door(stock.home, StoreConfig(busy_timeout=timedelta(seconds=0.1)))
        with fresh.open() as ledger:
            assert {row.sweep_id for row in ledger.verdicts()} == {sweep}
    with Door(stock.home, StoreConfig()).open() as ledger:
        assert {row.sweep_id for row in ledger.verdicts()} == {sweep}


def test_what_is_applied_but_not_yet_thrown_away_is_not_applied_again(stock: Any, door: Door) -> None:
    stock.fill("a")
    with held(stock, "reader"), door.open() as ledger:
        stock.judge(ledger)
    files = {path: path.read_bytes() for path in stock.home.outbox.iterdir()}
    door.open().close()
    with door.open() as ledger:
        ledger._file.transact(
            lambda: [
                ledger._file.rows("INSERT INTO applied VALUES ($c)", {"c": path.name[13:-7]})
                for path in files
            ]
        )
    for path, content in files.items():
        path.write_bytes(content)
    with door.open() as ledger:
        counts = [
            ledger._file.rows(f"SELECT count(*) FROM {t}") for t in ("verdict", "score", "sweep", "applied")
        ]
    assert counts == [[(1,)], [(1,)], [(1,)], [(0,)]]


def test_beside_a_writer_results_are_kept_and_questions_are_refused(stock: Any, door: Door) -> None:
    stock.fill("a")
    with door.open() as ledger:
        (group,) = stock.due(ledger)
        (pair,) = ledger.pairs_to_score([group], "lexical").pairs
    with held(stock, "writer") as pid, door.open() as ledger:
        ledger.write_scores(new_id(), "lexical", [Score(pair.query_hash, pair.text_hash, 1.0)])
        for question in (ledger.history, lambda: stock.due(ledger), lambda: ledger.kept([group])):
            with pytest.raises(LedgerBusy, match=f"process {pid}"):
                question()
        with pytest.raises(LedgerBusy):  # a sweep that cannot even plan does not begin
            ledger.start_sweep(new_id(), config={}, started=datetime.now(UTC))
    with door.open() as ledger:
        assert ledger.pairs_to_score([group], "lexical").cached == 1


def test_ingest_waits_in_the_spool_and_is_told(stock: Any, door: Door, item: Callable[..., Item]) -> None:
    stock.fill("a")
    stock.record(item("b"))
    with held(stock, "reader") as pid:
        report = door.ingest()
        assert report.rows == 0
        assert f"process {pid}" in report.waiting[0]
    assert door.ingest().rows == 1


def test_a_plan_is_made_beside_a_reader_and_says_what_it_left_out(
    stock: Any, item: Callable[..., Item]
) -> None:
    config = configuration.parse({})
    config = config.model_copy(
        update={"store": config.store.model_copy(update={"busy_timeout": timedelta(seconds=0.1)})}
    )
    stock.fill("a", "bb")
    stock.record(item("not yet in the ledger", query="another"))
    with held(stock, "reader") as pid:
        forecast = plan(stock.home, config, SweepOptions(now=True))
        assert (forecast.judge["groups"], forecast.judge["items"]) == (1, 2)
        assert any(f"process {pid}" in note for note in forecast.notes)
    with held(stock, "writer") as pid, pytest.raises(LedgerBusy, match=f"process {pid}"):
        plan(stock.home, config, SweepOptions(now=True))
    assert plan(stock.home, config, SweepOptions(now=True)).judge["groups"] == 2


def test_reopening_has_to_wait(stock: Any, door: Door) -> None:
    stock.fill("a")
    with held(stock, "reader"), door.open() as ledger, pytest.raises(LedgerBusy):
        ledger.reopen(Selection(), "rejudge")


def test_a_full_outbox_refuses_by_name(stock: Any) -> None:
    stock.fill("a")
    door = Door(stock.home, StoreConfig(busy_timeout=timedelta(0), outbox_bytes=10))
    with held(stock, "reader"), door.open() as ledger, pytest.raises(StoreError, match="no room"):
        ledger.start_sweep(new_id(), config={}, started=datetime.now(UTC))
    assert door.parked == 0


def test_a_damaged_file_is_set_aside_and_the_rest_is_applied(stock: Any, door: Door) -> None:
    stock.fill("a", "bb")
    with held(stock, "reader"), door.open() as ledger:
        sweep = stock.judge(ledger)
        ledger.write_scores(sweep, "other", [Score(new_id(), new_id(), 1.0)])
    scores = sorted(stock.home.outbox.iterdir())[1]
    scores.write_bytes(scores.read_bytes()[:-5] + b"xxxxx")
    with door.open() as ledger:
        assert "damaged" in door.problems[0]
        assert [row.logit for row in ledger.verdicts()] == [2.0, 1.0]
        assert ledger._file.rows("SELECT score_seq, model_key FROM score") == [(3, "other")]  # not renumbered
    assert [path.name for path in stock.home.outbox.rglob("*.commit")] == [scores.name]


def test_half_a_file_that_a_crash_left_is_not_seen(stock: Any, door: Door) -> None:
    stock.home.outbox.mkdir()
    (stock.home.outbox / f".000000000001-{new_id()}.commit.new").write_bytes(b"afterpass commit 1 half")
    door.open().close()
    assert (door.parked, door.problems) == (0, [])
