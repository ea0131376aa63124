"""What was erased is nowhere below the home, in any file."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.config import StoreConfig
from afterpass.core.errors import InputError, UnknownReference
from afterpass.core.keys import given_item_id, new_id, reference
from afterpass.core.types import Item, Point, Reply, Summary, SummaryStatus
from afterpass.store import quarantine
from afterpass.store.door import Door
from afterpass.store.erase import Forgotten, erase, preview
from afterpass.store.erase_filter import which
from afterpass.store.ledger_file import LedgerFile
from afterpass.store.outbox import Outbox
from afterpass.store.spool import SegmentWriter, item_record

QUIET = StoreConfig(busy_timeout=timedelta(seconds=5))


def secret(size: int = 3000) -> str:
    """A text that no compression hides from a search."""
    return secrets.token_urlsafe(size)


def holding(home: Any, text: str) -> list[str]:
    """The files below the home with a text's bytes, whole or a good part of it."""
    needles = [text.encode(), text[100:180].encode()]
    files = [path for path in home.root.rglob("*") if path.is_file()]
    return sorted(
        str(path.relative_to(home.root)) for path in files if any(n in path.read_bytes() for n in needles)
    )


def forget(stock: Any, **conditions: Any) -> Forgotten:
    return erase(stock.home, QUIET, which(**conditions), wait=0.2)


def texts(stock: Any) -> list[str]:
    with stock.open(read_only=True) as ledger:
        return [row.text or "" for row in ledger.verdicts()]


def summarise(ledger: Any, said: str, *cited: Any) -> None:
    sweep = new_id()
    ledger.write_replies(sweep, "lm", [(new_id(), 0, Reply(id="x", text=said))])
    groups = ledger.due_summaries(policies=["default"], sweep_id=sweep)
    points = tuple(Point(text=said, items=(item,), support=1.0) for item in cited)
    done = Summary(status=SummaryStatus.DONE, text=said, points=points)
    ledger.write_summaries(sweep, [(group, [done]) for group in groups])


def test_nothing_of_it_is_left_in_any_file(stock: Any, item: Callable[..., Item]) -> None:
    home, hidden, said = stock.home, secret(), secret()
    first = item(hidden, meta={"user": 42}, run="a")
    stock.record(first, item("x" * 4000, run="a"), item("short", run="a"))
    stock.ingest()
    door = Door(home, QUIET)
    with door.open() as ledger:
        stock.judge(ledger, keep=2)
    with door.open() as ledger:
        summarise(ledger, said, first.item_id)
    # The same id with another text is quarantined; a line that is damaged has the text in its bytes.
    conflict, torn = secret(), secret()
    stock.record(item(conflict, item_id=first.item_id, meta={"user": 42}))
    with SegmentWriter(home) as writer:
        writer.write(item_record(item("fine", run="b")))
        writer.append([b'00000000 {"text":"' + hidden.encode() + b'"}\n'], rows=0)
    stock.ingest()
    stock.record(item(torn, meta={"user": {"id": 42}}, run="c"))  # waits in the spool
    home.logs.mkdir()
    (home.logs / "summarizer.log").write_text(hidden)
    (home.outbox / "damaged").mkdir(parents=True)
    (home.outbox / "damaged" / "1.commit").write_text(said)
    (home.root / "notes.txt").write_text("mine")
    places = holding(home, hidden)
    assert "ledger.duckdb" in places
    assert "logs/summarizer.log" in places
    assert "ledger.duckdb" in holding(home, said)
    assert any("inbox" in place for place in holding(home, torn))

    seen = preview(home, QUIET, which(where=["meta.user=42"]))
    assert holding(home, hidden) == places  # a look changes nothing
    gone = forget(stock, where=["meta.user=42"])
    assert (seen.items, seen.texts, seen.summaries, seen.replies, seen.quarantined) == (1, 1, 1, 1, 2)
    assert (gone.items, gone.groups, gone.groups_gone, gone.quarantined, gone.unreached) == (1, 1, 0, 2, ())
    assert gone.other_files == ("notes.txt",)
    assert forget(stock, where=["meta.user.id=42"]).items == 1
    for text in (hidden, said, conflict, torn):
        assert holding(home, text) == []
    with pytest.raises(UnknownReference), stock.open(read_only=True) as ledger:
        ledger.explain(reference("i", first.item_id))

    with door.open() as ledger:  # the rest is decided again from its scores, and due for a summary
        (group, other) = stock.due(ledger)
        assert {group.name, other.name} == {"a", "b"}
        assert ledger.pairs_to_score([group if group.name == "a" else other], "lexical").pairs == []
        stock.judge(ledger, keep=1)
        assert [row.rank for row in ledger.verdicts(run="a")] == [1, 2]
        assert ledger.summaries(run="a").to_list() == []
        assert len(ledger.due_summaries(policies=["default"], sweep_id=new_id())) == 2


def test_a_text_that_others_have_stays_unless_all_copies_are_meant(stock: Any) -> None:
    shared = secret()
    (mine,) = stock.fill(shared, run="mine", meta={"user": "me"})
    stock.fill(shared, "other", run="theirs")
    with stock.open() as ledger:
        stock.judge(ledger, keep=2)
    gone = forget(stock, items=[reference("i", mine.item_id)])
    assert (gone.items, gone.texts, gone.texts_shared, gone.groups_gone) == (1, 0, 1, 1)
    assert sorted(texts(stock)) == sorted([shared, "other"])
    with stock.open(read_only=True) as ledger:
        (theirs,) = [row.item_ref for row in ledger.verdicts() if row.text == shared]
    stock.fill(shared, run="again")
    gone = erase(stock.home, QUIET, which(items=[theirs]), copies=True, wait=0)
    assert (gone.items, gone.texts, gone.texts_shared) == (2, 1, 0)
    assert texts(stock) == ["other"]
    assert holding(stock.home, shared) == []


def test_what_followed_an_erased_representative_stands_alone(stock: Any) -> None:
    same = secret()
    first, second = stock.fill(same, same, "other", run="a")[:2]
    with stock.open() as ledger:
        stock.judge(ledger)
        file = ledger._file
        file.transact(lambda: file.rows("UPDATE verdict SET duplicate_of = 1, rank = NULL WHERE seq = 2"))
        assert [row.duplicate_of for row in ledger.verdicts()].count(first.item_id) == 1
    forget(stock, items=[str(first.item_id)])
    with stock.open() as ledger:
        assert {row.item_id: row.duplicate_of for row in ledger.verdicts()}[second.item_id] is None
        stock.judge(ledger)
        assert [(row.rank, row.text) for row in ledger.verdicts()] == [(1, same), (2, "other")]


def test_what_was_not_made_from_it_stays(stock: Any) -> None:
    stock.fill("kept and quoted", "no", run="a")
    stock.fill("elsewhere", run="b", query="another")
    with stock.open() as ledger:
        stock.judge(ledger)
        summarise(ledger, "said")
    gone = forget(stock, run="b")
    assert (gone.items, gone.summaries, gone.groups_gone) == (1, 1, 1)
    with stock.open(read_only=True) as ledger:
        assert [row.text for row in ledger.summaries()] == ["said"]
        (dropped,) = ledger.verdicts(keep=False).to_list()
    gone = forget(stock, items=[dropped.item_ref])
    assert (gone.items, gone.summaries, gone.replies) == (1, 0, 0)  # what was dropped is in no summary
    with stock.open(read_only=True) as ledger:
        assert [row.text for row in ledger.summaries()] == ["said"]


def test_conditions_are_joined(stock: Any) -> None:
    stock.fill("one", run="a", agent="x", meta={"user": 42, "tags": ["t"], "ok": True, "a.b": "dot"})
    stock.fill("two", run="a", agent="y", meta={"user": "42"})
    stock.fill("three", run="b", agent="x", group="named")
    stock.fill("four", run="c", agent="x", namespace="other")

    def meant(**conditions: Any) -> int:
        return preview(stock.home, QUIET, which(**conditions)).items

    assert meant(where=["agent=x"]) == 3
    assert meant(where=["agent=x"], namespace="other") == 1
    assert meant(where=["agent=x", "meta.user=42"]) == 1
    assert meant(where=["meta.user=42"]) == 2
    assert (meant(where=["meta.ok=true"]), meant(where=['meta.tags=["t"]'])) == (1, 1)
    assert (meant(where=["meta.a.b=dot"]), meant(where=["meta.nothing=1"])) == (1, 0)
    assert (meant(run="a"), meant(group="named"), meant(group="b"), meant(run="a' OR '1'='1")) == (2, 1, 0, 0)
    for wrong in (["agent"], ["text=x"], ["meta.=x"], ["1=1;--"]):
        with pytest.raises(InputError):
            which(where=wrong)
    with pytest.raises(InputError):
        which()
    assert forget(stock, where=["agent=nobody"]).after is None  # nothing to do: the ledger is left alone


def test_the_spool_is_judged_by_the_same_conditions(item: Callable[..., Item]) -> None:
    one = item("x", run="a", group="g", meta={"user": {"id": 7}, "flat": 1.5})
    conditions: list[dict[str, Any]] = [
        {"items": [reference("i", one.item_id)]}, {"items": [str(one.item_id)]}, {"run": "a"}, {"group": "g"},
        {"group": reference("g", one.group_id)}, {"where": ["meta.user.id=7", "meta.flat=1.5"]},
        {"where": ["kind=result"], "namespace": "default"}, {"where": ['meta.user={"id":7}']},
    ]  # fmt: skip
    assert all(which(**each).matches(one) for each in conditions)
    wrong: list[dict[str, Any]] = [
        {"items": ["i_0123456789ab"]}, {"run": "b"}, {"group": "a"}, {"where": ["meta.user=7"]},
        {"where": ["kind=other"]}, {"run": "a", "namespace": "other"},
    ]  # fmt: skip
    assert not any(which(**each).matches(one) for each in wrong)


def test_what_an_agent_still_writes_is_waited_for_and_told(stock: Any, item: Callable[..., Item]) -> None:
    stock.fill("there", run="a")
    writer = SegmentWriter(stock.home)
    writer.write(item_record(item("writing", run="a")))
    gone = forget(stock, run="a")
    assert (gone.items, len(gone.unreached)) == (1, 1)
    assert "an agent writes to it" in gone.unreached[0]
    writer.seal()
    gone = forget(stock, run="a")
    assert (gone.items, gone.spool, gone.unreached) == (1, 1, ())


def test_what_waits_in_the_outbox_is_reached(stock: Any) -> None:
    said = secret()
    (one,) = stock.fill("a", run="a")
    with stock.open() as ledger:
        stock.judge(ledger)
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=new_id())
    from afterpass.store import ledger_commit

    done = Summary(
        status=SummaryStatus.DONE, text=said, points=(Point(text=said, items=(one.item_id,), support=1.0),)
    )
    Outbox(stock.home, most_bytes=2**20).put(ledger_commit.summaries(new_id(), [(group, [done])]))
    gone = forget(stock, run="a")
    assert (gone.items, gone.summaries) == (1, 1)
    assert holding(stock.home, said) == []


ERASE = """
import sys
from afterpass.core.config import StoreConfig
from afterpass.core.paths import Home
from afterpass.store.erase import erase
from afterpass.store.erase_filter import which
erase(Home.at(sys.argv[1]), StoreConfig(), which(run="a"), wait=0)
"""


@pytest.mark.parametrize("point", ["rewrite.filled", "rewrite.copied", "rewrite.renamed", "export.renamed"])
def test_killed_anywhere_and_called_again_it_is_whole(stock: Any, point: str) -> None:
    hidden = secret()
    stock.fill(hidden, run="a")
    stock.fill("stays", run="b")
    with Door(stock.home, QUIET).open() as ledger:
        stock.judge(ledger)
    done = subprocess.run(
        [sys.executable, "-c", ERASE, str(stock.home.root)],
        env={**os.environ, "AFTERPASS_FAILPOINT": f"{point}=kill"},
        check=False,
    )
    assert done.returncode == -9
    forget(stock, run="a")
    assert holding(stock.home, hidden) == []
    with Door(stock.home, QUIET).open() as ledger:
        assert [row.text for row in ledger.verdicts()] == ["stays"]


def test_quarantine_alone_is_reached_too(stock: Any) -> None:
    hidden = secret()
    one = given_item_id("default", "mine")
    stock.fill("first", item_id=one, run="a")
    stock.fill(hidden, item_id=one, run="b")
    with closing(LedgerFile(stock.home.ledger)) as file:
        assert len(quarantine.entries(file)) == 1
    gone = forget(stock, run="b")
    assert (gone.items, gone.quarantined) == (0, 1)
    assert holding(stock.home, hidden) == []
    assert Path(stock.home.ledger).exists()
