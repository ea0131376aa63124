"""Real vLLM: killed, hung, out of memory, fed poison (`make test-engine`).

Each death costs a start of the engine, some 30 s on two cores; the same games with engines that need no model
are in test_fragile_engines.py.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from afterpass.core import config as configuration
from afterpass.core.config import SummarizerConfig
from afterpass.core.errors import OutOfMemory
from afterpass.core.paths import Home
from afterpass.core.types import Prompt, Reply
from afterpass.hooks.recorder import Recorder
from afterpass.store.ledger import Ledger
from afterpass.sweep import SweepOptions, sweep, verify, write
from afterpass.sweep.compare import State
from afterpass.sweep.engine_process import EngineProcess, Patience

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ENGINES = Path(__file__).parent.parent / "engines"
POISON = "this-prompt-is-poison"
CONFIG = SummarizerConfig(model="embedded", max_model_len=512, memory="512MiB", max_in_flight=64)
PATIENCE = Patience(load=300, step=45)


@pytest.fixture(autouse=True)
def _nothing_is_left_running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(ENGINES))
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    end = time.monotonic() + 5
    while left := [p for p in psutil.Process().children(recursive=True) if p.pid not in before]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)


def prompts(count: int, tag: str) -> list[Prompt]:
    return [
        Prompt(
            id=f"{tag}{number}",
            messages=({"role": "user", "content": f"Say the number {number}."},),
            max_tokens=8,
        )
        for number in range(count)
    ]


def family_of(process: EngineProcess[Prompt, Reply]) -> list[psutil.Process]:
    """The guard, the model and what it started."""
    guard = psutil.Process(process.about["pid"]).parent()
    assert guard is not None
    return [guard, *guard.children(recursive=True)]


def drain(process: EngineProcess[Prompt, Reply], wanted: int) -> list[Reply]:
    replies: list[Reply] = []
    while process.outstanding:
        replies += process.poll(0.5)
    assert len({reply.id for reply in replies}) == len(replies) == wanted
    return replies


def gone(family: list[psutil.Process]) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family):
            return True
        time.sleep(0.05)
    return False


def test_killed_stopped_and_starved(tmp_path: Path) -> None:
    """One after another, each while it works: nothing is lost, and what it was is gone."""

    def kill_model(model: psutil.Process) -> None:
        model.kill()

    def kill_guard(model: psutil.Process) -> None:
        guard = model.parent()
        assert guard is not None
        guard.kill()

    def stop(model: psutil.Process) -> None:
        model.suspend()

    def starve(model: psutil.Process) -> None:
        # Its own limit, what it has already: the next piece that it asks for is refused.
        limit = model.memory_info().vms
        resource.prlimit(model.pid, resource.RLIMIT_AS, (limit, limit))

    process: EngineProcess[Prompt, Reply] = EngineProcess(
        "vllm_with_traps:load", CONFIG, log=tmp_path / "engine.log", patience=PATIENCE
    )
    with process:
        for number, blow in enumerate((kill_model, kill_guard, stop)):
            family = family_of(process)
            process.submit(prompts(80, blow.__name__))
            first = process.poll(30)
            blow(psutil.Process(process.about["pid"]))
            replies = [*first, *drain(process, 80 - len(first))]
            assert not [reply for reply in replies if reply.error]
            assert process.deaths == number + 1
            assert gone(family)
        deaths = process.deaths
        starve(psutil.Process(process.about["pid"]))
        hungry = [
            Prompt(
                id=f"hungry{number}",
                messages=({"role": "user", "content": f"{number} " + "word " * 400},),
                max_tokens=8,
            )
            for number in range(16)
        ]
        process.submit(hungry)
        replies = drain(process, 16)
        assert not [reply for reply in replies if reply.error]
        assert process.deaths == deaths + 1, "it died of hunger"
        family = family_of(process)
    assert gone(family)


def test_its_core_in_a_process_of_its_own_is_killed(tmp_path: Path) -> None:
    process: EngineProcess[Prompt, Reply] = EngineProcess(
        "vllm_with_traps:load_with_core", CONFIG, log=tmp_path / "engine.log", patience=PATIENCE
    )
    with process:
        family = family_of(process)
        model = psutil.Process(process.about["pid"])
        core = max(model.children(recursive=True), key=lambda child: child.memory_info().rss)
        process.submit(prompts(80, "core"))
        first = process.poll(30)
        core.kill()
        replies = [*first, *drain(process, 80 - len(first))]
        assert not [reply for reply in replies if reply.error]
        assert process.deaths == 1
        assert gone(family)
        family = family_of(process)
        os.kill(process.about["pid"], signal.SIGKILL)  # its core must not live on
        process.submit([])
        assert gone(family[1:])
    assert gone(family)


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"memory": "900GiB"})
    process: EngineProcess[Prompt, Reply] = EngineProcess("summarizer", config, log=tmp_path / "engine.log")
    with pytest.raises(OutOfMemory, match=r"needs .* GiB") as raised:
        process.start()
    assert "memory" in raised.value.hint


def test_one_poisoned_group_among_two_hundred(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": "lexical"}}},
            "summarize": {"models": {"embedded": CONFIG.model_dump(mode="json", exclude_none=True)}},
            "policy": {
                "default": {
                    # As short as it gets: this is about the engine, not about what it says.
                    "summarize": {
                        "example": False,
                        "min_support": "none",
                        "max_points": 1,
                        "max_tokens": 64,
                        "system": "Answer shortly.",
                        "item": "[{{ id }} {{ mark }}] {{ text }}",
                        "map": "{{ query }}\n{{ passages | join('\n') }}",
                    }
                }
            },
        }
    )

    def engine(kind: str, config: Any, **given: Any) -> EngineProcess[Any, Any]:
        assert kind == "summarizer"
        return EngineProcess("vllm_with_traps:load", config, patience=PATIENCE, **given)

    monkeypatch.setattr(write, "EngineProcess", engine)
    recorder = Recorder(home)
    for number in range(200):
        question = f"Which river is {POISON if number == 77 else number}?"
        recorder.record(f"River {number} flows to the sea.", query=question, group=f"group {number}")
    recorder.shutdown()
    account = sweep(home, settings, SweepOptions(now=True))
    print(account.as_json(), (tmp_path / "home" / "logs" / "summarizer.log").stat().st_size)
    assert account.exit_code == 3
    assert account.groups["judged"] == 200
    assert account.groups["summarised"] + account.groups["errors"] == 200
    with Ledger.open(home.ledger, read_only=True) as ledger:
        poisoned = [row for row in ledger.summaries(status="error") if "died twice" in row.reason]
    assert [row.group for row in poisoned] == ["group 77"]
    assert sweep(home, settings, SweepOptions(now=True)).outcome == "nothing_due"
    again = verify(home, settings, sample=12)
    assert again.scores.state is State.SAME
    assert (again.replies.prompts, again.replies.errors, again.replies.unknown) == (12, 0, 0)
