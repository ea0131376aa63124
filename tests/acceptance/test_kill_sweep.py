"""kill -9 of a sweep at moments spread over all its phases: nothing committed is lost or done twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder

SMALL = """
[rerank.models.embedded]
model = "lexical"
[summarize.models.embedded]
model = "extractive"
"""
COMMAND = str(Path(sys.executable).with_name("afterpass"))


def record(home: Home, groups: range, items: int) -> None:
    recorder = Recorder(home)
    for group in groups:
        for item in range(items):
            # Every fourth text comes twice in its group, so that duplicates are in play.
            number = item - (item % 4 == 3)
            text = f"Observation {number} of group {group}: the answer is {group * number}. It holds."
            recorder.record(text, query=f"What is the answer of group {group}?", group=f"group {group}")
    recorder.shutdown()


def sweep_until_killed(home: Home, after: float) -> bool:
    """Start a sweep and kill it; True when it was still alive. All that it started must be gone in 5 s."""
    process = subprocess.Popen(
        [COMMAND, "sweep", "--home", str(home.root), "--now", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(after)
    alive = process.poll() is None
    family = [p.pid for p in psutil.Process(process.pid).children(recursive=True)] if alive else []
    process.kill()
    _, errors = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), errors.decode()
    end = time.monotonic() + 5
    while living := [pid for pid in family if _lives(pid)]:
        assert time.monotonic() < end, f"still alive after 5 s: {living}"
        time.sleep(0.05)
    return alive


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def sweep_once(home: Home) -> dict[str, Any]:
    done = subprocess.run(
        [COMMAND, "sweep", "--home", str(home.root), "--now", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def finish(home: Home, tries: int = 3) -> None:
    """Sweep until nothing is due."""
    for _ in range(tries):
        if sweep_once(home)["outcome"] == "nothing_due":
            return
    pytest.fail(f"something is still due after {tries} sweeps")


def check_books(home: Home, items: int, groups: int, pairs: int) -> int:
    """One current verdict an item, none committed twice, one summary a group. Returns pairs scored again."""
    with duckdb.connect(str(home.ledger), read_only=True) as ledger:

        def one(sql: str) -> int:
            row = ledger.execute(sql).fetchone()
            assert row is not None
            return int(row[0])

        assert one("SELECT count(*) FROM item") == items
        assert one("SELECT count(*) FROM current_verdict") == items
        assert one("SELECT count(DISTINCT seq) FROM current_verdict") == items
        # Nothing arrived in between, so whatever was judged once is never judged again.
        assert one("SELECT count(*) FROM verdict") == items
        assert one("SELECT count(*) FROM current_summary WHERE status = 'done'") == groups
        scored = one("SELECT count(*) FROM score WHERE query_hash IN (SELECT query_hash FROM item_group)")
        return scored - pairs


def kill_and_resume(home: Home, config: str, kills: int, groups: int, items: int) -> None:
    """Kill sweeps at moments spread over a whole one's length, resume to the end, and check the books.

    Before each kill `groups` new groups arrive, so that there is work of every phase to be killed in.
    """
    measured = Home(home.root.parent / "measured")
    measured.root.mkdir()
    for each in (home, measured):
        each.config.write_text(config)
    record(measured, range(groups), items)
    began = time.monotonic()
    sweep_once(measured)
    whole = time.monotonic() - began

    alive = []
    for kill in range(kills):
        record(home, range(kill * groups, (kill + 1) * groups), items)
        alive.append(sweep_until_killed(home, after=whole * (kill + 1) / (kills + 1)))

    assert sum(alive) > kills / 3, "most sweeps had ended before their kill: hardly anything was tried"
    finish(home)
    unique = kills * groups * (items - items // 4)
    again = check_books(home, items=kills * groups * items, groups=kills * groups, pairs=unique)
    print(f"a whole sweep took {whole:.1f} s; killed alive: {sum(alive)}/{kills}; scored again: {again}")
    assert again >= 0


@pytest.mark.timeout(600)
def test_twenty_kills_over_all_phases(home: Home) -> None:
    kill_and_resume(home, SMALL, kills=20, groups=4, items=12)


@pytest.mark.kill
@pytest.mark.timeout(3000)
def test_five_kills_of_the_real_engines(home: Home) -> None:
    kill_and_resume(home, "", kills=5, groups=6, items=8)


def test_sigterm_drains_and_the_rest_waits(home: Home, afterpass_command: Callable[..., list[str]]) -> None:
    home.config.write_text(SMALL)
    record(home, range(400), 20)
    process = subprocess.Popen(
        afterpass_command("sweep", "--now", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    time.sleep(2.0)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    account = json.loads(out.splitlines()[-1])
    assert account["outcome"] in ("stopped", "done")
    assert account["items"]["seen"] == sum(account["items"][k] for k in ("kept", "dropped", "errors"))
    finish(home)
    check_books(home, items=8000, groups=400, pairs=400 * 15)
