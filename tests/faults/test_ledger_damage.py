"""Flipped bytes and missing files of the store: said by name, or made again; never a wrong answer."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.config import StoreConfig
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.door import Door
from afterpass.store.export import read_manifest
from afterpass.store.export_read import ExportReader
from afterpass.store.ledger import Ledger

sys.path.insert(0, str(Path(__file__).parent))
from ledger_play import sweep_now

READ = """
import json, sys
from afterpass.core.errors import AfterpassError
from afterpass.store.ledger import Ledger
for path in sys.argv[1:]:
    try:
        with Ledger.open(path, timeout=1) as ledger:
            said = [(str(row.item_id), row.decision, row.rank, row.text) for row in ledger.verdicts()]
            print(json.dumps(said + [row.text for row in ledger.summaries()]))
    except AfterpassError as error:
        print(json.dumps(str(error)))
"""


def record(home: Home, words: str, items: int = 20) -> None:
    with Recorder(home) as recorder:
        for number in range(items):
            recorder.record(f"{words} {number}. It is so.", query=f"What of {words}?", group=words, run="r")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which three sweeps were made."""
    home = Home(tmp_path_factory.mktemp("judged"))
    for words in ("rivers", "hills", "woods"):
        record(home, words)
        assert sweep_now(home).outcome == "done"
    return home.root


@pytest.fixture
def judged(home: Home, first: Path) -> Home:
    """A copy of it."""
    shutil.copytree(first, home.root, dirs_exist_ok=True)
    return home


def readings(*paths: Path) -> list[Any]:
    """What each ledger says, read in another process: a crash there would be told by its exit."""
    done = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_flipped_byte_in_the_ledger_is_named_or_changes_nothing(judged: Home, tmp_path: Path) -> None:
    content = judged.ledger.read_bytes()
    (told,) = readings(judged.ledger)
    chance = random.Random(11)
    paths = []
    for number in range(24):
        damaged = bytearray(content)
        # The file's start holds its headers; a byte of them is a rare hit at random.
        damaged[chance.randrange(3 * 4096 if number % 4 == 0 else len(content))] ^= 1 << chance.randrange(8)
        paths.append(tmp_path / f"{number}.duckdb")
        paths[-1].write_bytes(damaged)
    found = readings(*paths)
    assert len(found) == len(paths)
    named = [said for said in found if isinstance(said, str)]
    assert all(said == told for said in found if not isinstance(said, str))
    assert named
    assert all(".duckdb" in said for said in named)


def test_a_ledger_that_is_cut_short_is_named(judged: Home) -> None:
    content = judged.ledger.read_bytes()
    judged.ledger.write_bytes(content[: len(content) // 2])
    (said,) = readings(judged.ledger)
    assert str(judged.ledger) in said


@pytest.mark.parametrize("what", ["manifest", "files", "damaged files", "all"])
def test_an_export_that_was_damaged_is_made_again(
    judged: Home, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afterpass.store.export.MOST_FILES", 3)  # they are read, to be merged
    for path in list(judged.exports.iterdir()):
        if what == "all" or (what == "manifest") == (path.name == "manifest.json"):
            if what == "damaged files":
                path.write_bytes(path.read_bytes()[:-20] + bytes(20))
            else:
                path.unlink()
    record(judged, "late", items=2)
    account = sweep_now(judged)
    assert (account.outcome, account.problems) == ("done", [])
    with Ledger.open(judged.ledger, read_only=True) as ledger:
        told = ledger.verdicts(text=False).to_list()
    found = ExportReader(judged, read_manifest(judged)).verdicts(text=False).to_list()
    assert [(row.item_id, row.rank) for row in found] == [(row.item_id, row.rank) for row in told]


def test_a_spool_that_is_gone_costs_what_was_in_it_and_no_more(judged: Home) -> None:
    record(judged, "gone")
    for path in judged.inbox.iterdir():
        path.unlink()
    judged.inbox.rmdir()
    assert sweep_now(judged).outcome == "nothing_due"
    record(judged, "here again")
    assert sweep_now(judged).items["seen"] == 20


def test_a_ledger_that_is_gone_is_begun_anew_and_the_export_follows(judged: Home) -> None:
    judged.ledger.unlink()
    record(judged, "after", items=3)
    assert sweep_now(judged).items["seen"] == 3
    assert len(ExportReader(judged, read_manifest(judged)).verdicts().to_list()) == 3


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_clock_that_steps_between_sweeps_changes_nothing(
    judged: Home, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    ahead = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: ahead() + step * 10**9)
    record(judged, "rivers", items=25)  # five more of a known group
    account = sweep_now(judged)
    assert (account.outcome, account.items["seen"], account.items["cached"]) == ("done", 45, 20)
    with Door(judged, StoreConfig()).open() as ledger:
        rows = ledger.verdicts(group="rivers").to_list()
        assert [row.number for row in ledger.history(2)] == [4, 3]
    assert len({row.item_id for row in rows}) == len(rows) == 45
    assert {row.sweep_id for row in rows} == {account.sweep_id}
