"""What grows old goes, and its space comes back; the ledger is whole at every moment of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from afterpass.core.errors import LedgerBusy, StoreError
from afterpass.core.keys import new_id, reference
from afterpass.core.types import Item, Reply, Summary, SummaryStatus
from afterpass.store import prune, rewrite
from afterpass.store.ledger import Ledger
from afterpass.store.ledger_file import LedgerFile

SOON = timedelta(days=1)


def old(stock: Any, *texts: str, **values: Any) -> list[Item]:
    """Items that came in the year before last."""
    made = stock.fill(*texts, **values)
    with closing(LedgerFile(stock.home.ledger)) as file:
        groups = {item.group_id for item in made}
        for group in groups:
            file.transact(
                lambda group=group: file.rows(
                    "UPDATE group_state SET due_at = due_at - INTERVAL 2 YEAR WHERE group_id = $g",
                    {"g": group},
                )
            )
    return made


def summarise(stock: Any, text: str = "said") -> None:
    with stock.open() as ledger:
        groups = ledger.due_summaries(policies=["default"], sweep_id=new_id())
        done = [(group, [Summary(status=SummaryStatus.DONE, text=text)]) for group in groups]
        ledger.write_summaries(new_id(), done)


def choose(stock: Any, **options: Any) -> prune.Going:
    options.setdefault("before", datetime.now(UTC) - SOON)
    options.setdefault("summarised", [])
    with closing(LedgerFile(stock.home.ledger, read_only=True)) as file:
        return prune.choose(file, **options)


def do(stock: Any, **options: Any) -> rewrite.Rewritten:
    options.setdefault("before", datetime.now(UTC) - SOON)
    options.setdefault("summarised", [])
    file = LedgerFile(stock.home.ledger)
    prune.choose(file, **options)
    return prune.prune(file)


def count(stock: Any, *tables: str) -> list[int]:
    with closing(LedgerFile(stock.home.ledger, read_only=True)) as file:
        return [int(file.rows(f"SELECT count(*) FROM {name}")[0][0]) for name in tables]


EVERYTHING = (
    "item", "text", "item_group", "group_state", "score", "verdict", "summary", "reply", "sweep", "segment",
    "quarantine", "counter", "applied", "schema_version",
)  # fmt: skip


def test_old_groups_go_and_what_others_share_stays(stock: Any) -> None:
    old(stock, "only here", "shared", run="old")
    stock.fill("shared", "young", run="new", query="another question")
    with stock.open() as ledger:
        sweep = stock.judge(ledger)
        ledger.write_replies(sweep, "lm", [(new_id(), 0, Reply(id="x", text="y"))])
    before = count(stock, *EVERYTHING)
    going = choose(stock)
    assert (going.groups, going.items, going.texts, going.text_bytes) == (1, 2, 1, len("only here"))
    assert (going.scores, going.verdicts, going.summaries, going.sweeps) == (2, 2, 0, 0)
    year = (datetime.now(UTC) - timedelta(days=2 * 365.25)).year
    (month,) = going.months
    assert (month.groups, month.items, month.texts, month.text_bytes) == (1, 2, 1, 9)
    assert int(month.month[:4]) in (year - 1, year, year + 1)
    assert count(stock, *EVERYTHING) == before  # choosing changes nothing
    do(stock)
    with stock.open(read_only=True) as ledger:
        assert sorted(row.text for row in ledger.verdicts()) == ["shared", "young"]
        assert [row.sweep_id for row in ledger.history()] == [sweep]
    assert count(stock, "item", "text", "item_group", "group_state", "score", "verdict") == [2, 2, 1, 1, 2, 2]
    assert choose(stock).nothing
    assert stock.fill("back again", run="old")  # and the ledger goes on
    assert count(stock, "item") == [3]


def test_what_waits_is_never_touched_and_is_told(stock: Any) -> None:
    old(stock, "judged once", run="a")
    with stock.open() as ledger:
        stock.judge(ledger)
    old(stock, "judged once, and one more", run="a")
    old(stock, "never judged", run="b")
    old(stock, "no question", run="c", query=None)
    going = choose(stock)
    assert going.nothing
    assert going.held_back == {"not_judged": 2, "no_query": 1}
    with stock.open() as ledger:
        stock.judge(ledger)
    assert choose(stock, summarised=["default"]).held_back == {"no_summary": 2, "no_query": 1}
    summarise(stock)
    assert choose(stock, summarised=["default"]).groups == 2
    do(stock, summarised=["default"])
    assert count(stock, "item", "summary", "text") == [1, 0, 1]


def test_of_what_stays_the_superseded_goes(stock: Any) -> None:
    stock.fill("a", "bb")
    for _ in range(3):
        with stock.open() as ledger:
            ledger.reopen(stock_selection(), "redecide")
            last = stock.judge(ledger)
        summarise(stock)
    going = choose(stock, before=datetime.now(UTC) + SOON, summarised=["default"], keep_verdicts=True)
    assert (going.items, going.texts, going.verdicts) == (2, 2, 0)
    with closing(LedgerFile(stock.home.ledger)) as file:  # as if the group had gone on arriving
        file.rows("UPDATE group_state SET due_at = due_at + INTERVAL 1 YEAR")
    going = choose(stock, before=datetime.now(UTC) + SOON, summarised=["default"])
    assert (going.items, going.verdicts, going.summaries, going.sweeps) == (
        0,
        4,
        2,
        1,
    )  # the first sweep stays for its scores
    do(stock, before=datetime.now(UTC) + SOON, summarised=["default"])
    with stock.open(read_only=True) as ledger:
        assert [row.text for row in ledger.summaries()] == ["said"]
        assert {row.sweep_id for row in ledger.verdicts()} == {last}
        assert len(ledger.verdicts().to_list()) == 2


def stock_selection() -> Any:
    from afterpass.core.types import Selection

    return Selection()


def test_verdicts_without_their_texts_are_read_and_judged_again(stock: Any) -> None:
    items = old(stock, "a", "bb", "ccc", run="old")
    with stock.open() as ledger:
        stock.judge(ledger)
    summarise(stock)
    do(stock, keep_verdicts=True)
    assert count(stock, "item", "text", "verdict", "summary") == [3, 0, 3, 1]
    with stock.open(read_only=True) as ledger:
        rows = ledger.verdicts().to_list()
        assert [(row.decision, row.text, row.excerpt, row.flags) for row in rows] == [
            ("keep", None, None, ("text_pruned",)),
            ("drop", None, None, ("text_pruned",)),
            ("drop", None, None, ("text_pruned",)),
        ]
        story = ledger.explain(reference("i", items[0].item_id))
        assert (story["text"], story["text_pruned"], story["scores"][0]["excerpt"]) == (None, True, None)
        assert [row.text for row in ledger.summaries()] == ["said"]
    assert choose(stock, keep_verdicts=True).nothing
    stock.fill("dddd", run="old")  # a late item reopens the group: the scores there are still count
    with stock.open() as ledger:
        stock.judge(ledger, keep=2)
        assert [(row.rank, row.text) for row in ledger.verdicts(keep=True)] == [(1, "dddd"), (2, None)]
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=new_id())
        assert [kept.text for kept in ledger.kept([group])[group.key]] == ["dddd"]
    stock.fill("ccc", run="again")  # and a text that comes again is there again
    with stock.open(read_only=True) as ledger:
        assert [row.text for row in ledger.verdicts(keep=True)] == ["dddd", "ccc"]


def test_space_comes_back(stock: Any) -> None:
    texts = [os.urandom(4000).hex() for _ in range(500)]
    old(stock, *texts, run="old")
    stock.fill("stays", run="new")
    with stock.open() as ledger:
        stock.judge(ledger)
    done = do(stock)
    assert done.before - done.after > 500 * 4000
    assert stock.home.ledger.stat().st_size == done.after
    assert done.rows["item"] == 1
    assert sorted(path.name for path in stock.home.root.iterdir()) == ["ledger.duckdb", "spool"]


def test_a_copy_has_every_table_and_every_row(stock: Any, item: Callable[..., Item]) -> None:
    stock.fill("a", "bb", meta={"k": ["v", None]}, deadline=datetime.now(UTC), flags=("nul",))
    stock.record(item("x", item_id=new_id()), close="run-1", source="a file")
    stock.ingest()
    with stock.open() as ledger:
        sweep = stock.judge(ledger)
        ledger.write_replies(sweep, "lm", [(new_id(), 0, Reply(id="x", text="y"))])
    summarise(stock)

    def content() -> dict[str, Any]:
        with closing(LedgerFile(stock.home.ledger, read_only=True)) as file:
            tables = {name for (name,) in file.rows("SELECT table_name FROM duckdb_tables()")}
            assert tables == set(EVERYTHING)
            return {name: file.rows(f"FROM {name}") for name in EVERYTHING}

    before = content()
    file = LedgerFile(stock.home.ledger)
    rewrite.nothing_gone(file)
    rewrite.replace_ledger(file)
    assert content() == before  # in the same order, too


def test_a_full_disk_is_refused_before_anything_is_done(stock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old(stock, "a")
    with stock.open() as ledger:
        stock.judge(ledger)

    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000))
    with pytest.raises(StoreError, match="MiB free"):
        do(stock)
    assert count(stock, "item") == [1]
    assert sorted(path.name for path in stock.home.root.iterdir()) == ["ledger.duckdb", "spool"]


PRUNE = """
import sys
from datetime import UTC, datetime, timedelta
from afterpass.store import prune
from afterpass.store.ledger_file import LedgerFile
file = LedgerFile(sys.argv[1])
prune.choose(file, before=datetime.now(UTC) - timedelta(days=1), summarised=[])
prune.prune(file)
"""


@pytest.mark.parametrize(
    ("point", "done"),
    [("rewrite.filled", False), ("rewrite.copied", False), ("rewrite.renamed", True)],
)
@pytest.mark.parametrize("action", ["kill", "ENOSPC"])
def test_a_kill_or_a_full_disk_leaves_the_old_ledger_or_the_new_one(
    stock: Any, point: str, done: bool, action: str
) -> None:
    old(stock, "goes", run="old")
    stock.fill("stays", run="new")
    with stock.open() as ledger:
        stock.judge(ledger)
    ended = subprocess.run(
        [sys.executable, "-c", PRUNE, str(stock.home.ledger)],
        env={**os.environ, "AFTERPASS_FAILPOINT": f"{point}={action}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == (-9 if action == "kill" else 1)
    assert action == "kill" or "StoreError" in ended.stderr
    with Ledger.open(stock.home.ledger) as ledger:
        assert [row.text for row in ledger.verdicts()] == (["stays"] if done else ["goes", "stays"])
    assert stock.fill("and it goes on", run="new")
    with stock.open() as ledger:
        stock.judge(ledger)
    do(stock)
    assert count(stock, "item", "text") == [2, 2]
    assert sorted(path.name for path in stock.home.root.iterdir()) == ["ledger.duckdb", "spool"]


def test_beside_a_reader_it_is_refused(stock: Any) -> None:
    old(stock, "a")
    with stock.open(read_only=True), pytest.raises(LedgerBusy):
        LedgerFile(stock.home.ledger, timeout=0.1)
