"""Whole sweeps with engines that are killed, hang, run out of memory or are fed poison.

The engines here need no model; `make test-engine` does the same to vLLM. Each time the rest commits, the
account adds up, the next sweep finishes, and nothing that was started is left running.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from afterpass.core import config as configuration
from afterpass.core.config import Config
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.ledger import Ledger
from afterpass.sweep import Account, SweepOptions, judge, sweep, write
from afterpass.sweep.engine_process import EngineProcess, Patience
from afterpass.sweep.progress import Silent

ENGINES = Path(__file__).parent.parent / "engines"
NOW = SweepOptions(now=True)
AGAIN = SweepOptions(now=True, reopen="retry_errors")
GROUPS = 200


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    end = time.monotonic() + 5
    while left := [p for p in psutil.Process().children(recursive=True) if p.pid not in before]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Both engines are the fragile ones, and hung ones are not waited for long."""
    monkeypatch.setenv("PYTHONPATH", str(ENGINES))

    def engine(kind: str, config: Any, **given: Any) -> EngineProcess[Any, Any]:
        loader = {"scorer": "fragile_engine:load", "summarizer": "fragile_writer:load"}[kind]
        return EngineProcess(loader, config, patience=Patience(load=60, step=1.5), **given)

    monkeypatch.setattr(judge, "EngineProcess", engine)
    monkeypatch.setattr(write, "EngineProcess", engine)
    return monkeypatch


def settings() -> Config:
    return configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": "lexical"}}},
            "summarize": {"models": {"embedded": {"model": "extractive"}}},
            "policy": {"default": {"summarize": {"min_support": "none"}}},
        }
    )


def record(home: Home, *questions: str, item: str = "The river flows to the sea, and it is long.") -> None:
    """GROUPS groups of one item each; the given questions are among them."""
    recorder = Recorder(home)
    for number in range(GROUPS):
        question = questions[number - 77] if 77 <= number < 77 + len(questions) else f"Which river {number}?"
        recorder.record(f"{item} {number}", query=question, group=f"group {number}")
    recorder.shutdown()


def adds_up(account: Account) -> bool:
    items, groups = account.items, account.groups
    counted = groups["summarised"] + groups["skipped"] + groups["errors"]
    return items["seen"] == items["kept"] + items["dropped"] + items["errors"] and groups["judged"] == counted


@pytest.mark.parametrize("way", ["die", "raise", "hang", "devour"])
def test_one_poisoned_prompt_among_two_hundred(home: Home, fragile: pytest.MonkeyPatch, way: str) -> None:
    record(home, f"{way} whenever you read this")
    account = sweep(home, settings(), NOW)
    assert account.exit_code == 3
    assert (account.groups["summarised"], account.groups["errors"]) == (GROUPS - 1, 1)
    assert adds_up(account)
    with Ledger.open(home.ledger, read_only=True) as ledger:
        (failed,) = ledger.summaries(status="error").to_list()
    assert failed.group == "group 77"
    assert "died twice" in failed.reason
    fragile.undo()
    assert sweep(home, settings(), NOW).outcome == "nothing_due"
    healthy = sweep(home, settings(), AGAIN)
    assert (healthy.exit_code, healthy.groups["summarised"]) == (0, 1)


@pytest.mark.parametrize("way", ["die", "raise", "hang", "devour"])
def test_what_happens_once_costs_nothing(
    home: Home, fragile: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    assert fragile
    record(home, f"{way} once {tmp_path / 'mark'}")
    account = sweep(home, settings(), NOW)
    assert (tmp_path / "mark").exists()
    assert account.exit_code == 0
    assert account.groups["summarised"] == GROUPS
    assert adds_up(account)


def test_one_poisoned_text_among_two_hundred(home: Home, fragile: pytest.MonkeyPatch) -> None:
    recorder = Recorder(home)
    for number in range(GROUPS):
        text = "die: at this" if number == 77 else f"The river {number} flows to the sea, and it is long."
        recorder.record(text, query="Which river is long?", group="rivers")
    recorder.shutdown()
    account = sweep(home, settings(), NOW)
    assert account.exit_code == 3
    assert (account.items["seen"], account.items["errors"]) == (GROUPS, 1)
    assert account.groups["summarised"] == 1
    assert adds_up(account)
    fragile.undo()
    healthy = sweep(home, settings(), AGAIN)
    assert (healthy.exit_code, healthy.items["errors"]) == (0, 0)


class Striking(Silent):
    """Strikes once, at the guard or the model of the engine that runs, when the first summaries are there."""

    def __init__(self, victim: str, blow: signal.Signals) -> None:
        self._victim, self._blow = victim, blow
        self._phase = ""
        self.hit: list[psutil.Process] = []

    def phase(self, name: str, total: int | None, unit: str) -> None:
        super().phase(name, total, unit)
        self._phase = name

    def advance(self, done: int, **rates: float) -> None:
        super().advance(done, **rates)
        if self._phase != "summarising" or self.hit:
            return
        guards = [p for p in psutil.Process().children() if "afterpass.sweep.worker" in " ".join(p.cmdline())]
        self.hit = guards if self._victim == "guard" else [c for guard in guards for c in guard.children()]
        for process in self.hit:
            process.send_signal(self._blow)


@pytest.mark.parametrize(
    ("victim", "blow"),
    [("model", signal.SIGKILL), ("model", signal.SIGSTOP), ("guard", signal.SIGKILL)],
)
def test_a_blow_from_outside_half_way(
    home: Home, fragile: pytest.MonkeyPatch, victim: str, blow: signal.Signals
) -> None:
    assert fragile
    record(home)
    striking = Striking(victim, blow)
    account = sweep(home, settings(), NOW, progress=striking)
    assert len(striking.hit) == 1
    assert account.exit_code == 0
    assert account.groups["summarised"] == GROUPS
    assert adds_up(account)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in striking.hit)
