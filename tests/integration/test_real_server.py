"""Summaries by a real `vllm serve` of the embedded language model on loopback (`make test-server`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from afterpass import summarize
from afterpass.core import config as configuration
from afterpass.core.config import Config, SummarizePolicy, SummarizerConfig
from afterpass.core.paths import Home
from afterpass.core.types import Prompt, Reply
from afterpass.hooks.recorder import Recorder
from afterpass.store.ledger import Ledger
from afterpass.summarize import embedded
from afterpass.summarize.conform import problem
from afterpass.summarize.schema import points_schema
from afterpass.sweep import SweepOptions, sweep

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

VLLM = Path(__file__).parent.parent / "engines" / "vllm_cli.py"
NOW = SweepOptions(now=True)
CONCURRENCY = 3
START_S = 300


@dataclass
class Server:
    """A running server and how to end it with all that it started."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def family(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def running(self) -> float:
        """Requests in the engine now, by its own count."""
        text = httpx.get(self.url.removesuffix("/v1") + "/metrics", trust_env=False).text
        return sum(
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
        )

    def end(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            family = self.family()
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(family, timeout=10)
        self.process.wait()


def start(port: int, log: Path) -> Server:
    environment = {
        **os.environ,
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    }
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "small"]
    arguments += ["--dtype", "float32", "--max-model-len", "2048", "--enforce-eager"]
    arguments += ["--max-num-seqs", "16", "--kv-cache-memory-bytes", str(2**29)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(VLLM), "serve", str(embedded.prepare()), *arguments],
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    server = Server(process, f"http://127.0.0.1:{port}/v1", log)
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/models", trust_env=False).status_code == 200:
                return server
        time.sleep(0.5)
    server.end()
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def server(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start(port, tmp_path_factory.mktemp("server") / "vllm.log")
    try:
        yield running
    finally:
        running.end()


def section(port: int) -> dict[str, object]:
    return {
        "model": "small",
        "backend": "openai",
        "url": f"http://127.0.0.1:{port}/v1",
        "max_model_len": 2048,
        "concurrency": CONCURRENCY,
        "timeout": "60s",
        "engine": {"tokenizer": str(embedded.prepare())},
    }


def settings(port: int) -> Config:
    return configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": "lexical"}}},
            "summarize": {"models": {"embedded": section(port)}},
            "policy": {"default": {"summarize": {"min_support": "none", "max_points": 2, "max_tokens": 128}}},
        }
    )


def record(home: Home, groups: int) -> None:
    recorder = Recorder(home)
    for group in range(groups):
        for item in range(2):
            recorder.record(
                f"River {group} has {item + 2} bridges. It flows to the sea.",
                query=f"How many bridges has river {group}?",
                group=f"river {group}",
            )
    recorder.shutdown()


def test_replies_follow_the_schema_and_never_more_run_than_allowed(server: Server, port: int) -> None:
    policy = SummarizePolicy(max_points=2)
    schema = points_schema(["1", "2"], policy, 1, 96)
    engine = summarize.load(SummarizerConfig.model_validate(section(port)))
    prompts = [
        Prompt(
            id=str(number),
            messages=({"role": "user", "content": f"[1] River {number} is long. [2] It is deep. Notes?"},),
            schema=schema,
            max_tokens=96,
        )
        for number in range(12)
    ]
    most = 0.0
    done: list[Reply] = []
    todo = list(prompts)
    while todo or engine.pending:
        while todo and engine.room:
            engine.submit(todo.pop())
        done += engine.step()
        most = max(most, server.running())
    engine.close()
    assert {reply.id for reply in done} == {prompt.id for prompt in prompts}
    assert 1 <= most <= CONCURRENCY
    for reply in done:
        assert reply.error is None
        assert reply.output_tokens > 0
        if reply.finish_reason == "stop":
            assert problem(json.loads(reply.text), schema) is None
    assert sum(reply.finish_reason == "stop" for reply in done) >= 10


def test_a_sweep_whose_server_is_killed_half_way_and_the_next(
    server: Server, port: int, home: Home, tmp_path: Path
) -> None:
    record(home, 16)
    family = server.family()

    def strike() -> None:
        while server.running() < CONCURRENCY:  # until it is at work
            time.sleep(0.02)
        time.sleep(1.0)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    account = sweep(home, settings(port), NOW)
    thread.join()
    psutil.wait_procs(family, timeout=10)
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert account.groups["judged"] == 16
    assert account.items["seen"] == account.items["kept"] + account.items["dropped"] == 32
    assert account.groups["errors"] > 0
    assert account.exit_code == 3
    with Ledger.open(home.ledger, read_only=True) as ledger:
        reasons = {row.reason for row in ledger.summaries(status="error")}
    assert all("attempts" in reason for reason in reasons), reasons

    # Nobody answers: extracts for what is due, and the engine's exit code.
    record_more = Recorder(home)
    record_more.record("River 99 has 9 bridges.", query="How many bridges has river 99?", group="river 99")
    record_more.shutdown()
    alone = sweep(home, settings(port), NOW)
    assert (alone.exit_code, alone.groups["extracts"]) == (69, 1)

    again = start(port, tmp_path / "vllm.log")
    try:
        last = sweep(home, settings(port), SweepOptions(now=True, reopen="retry_errors"))
        family = again.family()
    finally:
        again.end()
    assert last.exit_code == 0
    assert last.groups["summarised"] == account.groups["errors"] + 1
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
