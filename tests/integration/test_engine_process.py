"""A model's process: fed, replaced when it dies or hangs, and gone with everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from afterpass.core.config import ScorerConfig
from afterpass.core.errors import EngineError
from afterpass.core.keys import content_hash
from afterpass.core.types import Pair, Score
from afterpass.sweep.engine_process import EngineProcess, Patience

ENGINES = Path(__file__).parent.parent / "engines"
CONFIG = ScorerConfig(model="fragile")


@pytest.fixture(autouse=True)
def _engines_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ENGINES))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


def pairs(texts: Iterator[str] | list[str]) -> list[Pair]:
    query = content_hash("q")
    return [Pair(query, content_hash(text), "q", text) for text in texts]


def engine(log: Path, loader: str = "load", **patience: float) -> EngineProcess[Pair, Score]:
    return EngineProcess(f"fragile_engine:{loader}", CONFIG, log=log, patience=Patience(**patience))


def drain(process: EngineProcess[Pair, Score], seconds: float = 60) -> dict[str, Score]:
    results: list[Score] = []
    end = time.monotonic() + seconds
    while process.outstanding:
        assert time.monotonic() < end, "the engine did not answer everything"
        results += process.poll(0.2)
    by_hash = {score.text_hash: score for score in results}
    assert len(by_hash) == len(results), "a result came twice"
    return {str(text_hash): score for text_hash, score in by_hash.items()}


def test_every_request_comes_back_once(log: Path) -> None:
    wanted = pairs([f"text {n}" for n in range(1000)])
    with engine(log) as process:
        process.submit(wanted)
        results = drain(process)
    assert set(results) == {str(pair.text_hash) for pair in wanted}
    assert all(score.error is None for score in results.values())


@pytest.mark.parametrize("poison", ["die: now", "raise: now"])
def test_a_poisoned_request_costs_itself_alone(log: Path, poison: str) -> None:
    wanted = pairs([f"text {n}" for n in range(200)] + [poison])
    with engine(log) as process:
        process.submit(wanted)
        results = drain(process)
    failed = [score for score in results.values() if score.error]
    assert [score.text_hash for score in failed] == [content_hash(poison)]
    assert "died twice" in str(failed[0].error)
    assert len(results) == 201


def test_a_hang_is_ended_by_the_watchdog(log: Path) -> None:
    wanted = pairs([f"text {n}" for n in range(8)] + ["hang: long"])
    with engine(log, step=1.0) as process:
        process.submit(wanted)
        results = drain(process)
    assert [s.text_hash for s in results.values() if s.error] == [content_hash("hang: long")]


def test_a_stopped_process_is_replaced(log: Path) -> None:
    with engine(log, step=1.0) as process:
        os.kill(process.about["pid"], signal.SIGSTOP)
        process.submit(pairs([f"text {n}" for n in range(100)]))
        results = drain(process)
    assert len(results) == 100
    assert process.deaths == 1


def test_a_killed_process_is_replaced_and_nothing_is_lost(log: Path) -> None:
    wanted = pairs([f"text {n}" for n in range(500)])
    with engine(log) as process:
        process.submit(wanted)
        os.kill(process.about["pid"], signal.SIGKILL)
        results = drain(process)
    assert len(results) == 500
    assert not [score for score in results.values() if score.error]


def test_an_engine_that_never_loads_is_an_error(log: Path) -> None:
    with pytest.raises(EngineError, match="did not load within"):
        engine(log, "load_never", load=1.0).start()


def test_an_engine_that_dies_loading_is_an_error(log: Path) -> None:
    with pytest.raises(EngineError, match="died while it was loading"):
        engine(log, "load_dying").start()


def descendants_gone(pids: list[int], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        living = [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]
        if not living:
            return True
        time.sleep(0.05)
    return False


def test_close_takes_grandchildren_along(log: Path) -> None:
    process = engine(log, "load_with_family")
    process.start()
    guard = psutil.Process(process.about["pid"]).parent()
    assert guard is not None
    family = [guard.pid, *(child.pid for child in guard.children(recursive=True))]
    assert len(family) == 3  # guard, model, grandchild
    process.close()
    assert descendants_gone(family)


def test_a_killed_guard_is_replaced_and_what_it_watched_is_gone(log: Path) -> None:
    with engine(log, "load_with_family") as process:
        guard = psutil.Process(process.about["pid"]).parent()
        assert guard is not None
        family = [guard.pid, *(child.pid for child in guard.children(recursive=True))]
        os.kill(guard.pid, signal.SIGKILL)
        process.submit(pairs([f"text {n}" for n in range(100)]))
        assert len(drain(process)) == 100
        assert descendants_gone(family)


PARENT = """
import sys, time
from pathlib import Path
from afterpass.core.config import ScorerConfig
from afterpass.sweep.engine_process import EngineProcess
config = ScorerConfig(model="fragile")
process = EngineProcess("fragile_engine:load_with_family", config, log=Path(sys.argv[1]))
process.start()
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("victim", ["sweep", "guard", "model"])
def test_kill_nine_leaves_nobody_behind(log: Path, victim: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(log)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        family = psutil.Process(parent.pid).children(recursive=True)
        pids = [child.pid for child in family]
        assert len(pids) == 3
        killed = {"sweep": parent.pid, "guard": pids[0], "model": pids[1]}[victim]
        os.kill(killed, signal.SIGKILL)
        if victim == "guard":  # its children die with it; the sweep notices and clears the rest
            assert descendants_gone(pids[:2])
            os.kill(parent.pid, signal.SIGKILL)
        else:
            assert descendants_gone(pids)
    finally:
        parent.kill()
        parent.wait()
        for pid in pids:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
