"""What `record()` costs an agent: in its own thread, beside other processes, and in an asyncio loop.

    python benchmarks/record.py [--seconds 3] [--rate 200] [--json]

Each of 1, 4 and 8 processes records 2 KB items at a steady rate, as agents do. In turn with each of these
calls it makes another, the plainest thing that one could do instead (encode the same item and append it to an
open file, unsynced), so that both meet the same machine at the same time. The loop runs a hundred coroutines
that compute and sleep, in turn with and without recording; how late a clock of 1 ms fires tells what was
added. Last line with --json: `record_p50_us`, `record_p99_us` (one process), `plain_p50_us`,
`plain_p99_us`, `asyncio_added_p50_us`, `asyncio_added_p99_us`, `processes` (the same by count), `burst_us`
(the mean over 5,000 calls without a pause), `drain_rows_s` (what the thread then writes a second).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import shutil
import string
import tempfile
import time
from pathlib import Path
from typing import Any

from afterpass.hooks.recorder import Recorder

WORDS = ["".join(random.Random(n).choices(string.ascii_lowercase, k=3 + n % 9)) for n in range(500)]


def text(chance: random.Random, size: int = 2048) -> str:
    """Prose-like, with the newlines and quotes that tool outputs have."""
    words = chance.choices(WORDS, k=size // 6)
    return ('"' + " ".join(words[:9]) + '",\n' + " ".join(words))[:size].ljust(size, ".")


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def agent(home: str, seconds: float, rate: float, seed: int) -> tuple[list[float], list[float], int]:
    """One process; returns the microseconds of each record() and of each plain append, and what was lost."""
    chance = random.Random(seed)
    texts = [text(chance) for _ in range(64)]
    recorded: list[float] = []
    plain: list[float] = []
    with Recorder(home) as recorder, open(Path(home) / f"plain-{seed}", "wb", buffering=0) as file:
        recorder.record(texts[0], query="warm", run="r", wait=True)
        end = time.perf_counter() + seconds
        number = 0
        while (start := time.perf_counter()) < end:
            chosen, question = texts[number % 64], f"What is {number % 10}?"
            number += 1
            begun = time.perf_counter_ns()
            recorder.record(chosen, query=question, run="run-1", step=number, kind="tool", agent="a")
            between = time.perf_counter_ns()
            item = {"text": chosen, "query": question, "run": "run-1", "step": number, "kind": "tool"}
            file.write(json.dumps(item).encode() + b"\n")
            ended = time.perf_counter_ns()
            recorded.append((between - begun) / 1000)
            plain.append((ended - between) / 1000)
            # Exponential pauses: agents do not march in step.
            time.sleep(max(0.0, chance.expovariate(rate) - (time.perf_counter() - start)))
        recorder.flush()
        counts = recorder.counts
    return recorded, plain, counts.overflowed + counts.accepted - counts.written


def beside_others(root: Path, processes: int, seconds: float, rate: float) -> dict[str, Any]:
    home = str(root / f"home-{processes}")
    Path(home).mkdir()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        results = pool.starmap(agent, [(home, seconds, rate, seed) for seed in range(processes)])
    recorded = [value for times, _, _ in results for value in times]
    plain = [value for _, times, _ in results for value in times]
    return {
        "items": len(recorded),
        "lost": sum(lost for _, _, lost in results),
        "record_p50_us": round(percentile(recorded, 0.5), 1),
        "record_p99_us": round(percentile(recorded, 0.99), 1),
        "plain_p50_us": round(percentile(plain, 0.5), 1),
        "plain_p99_us": round(percentile(plain, 0.99), 1),
    }


def in_a_loop(root: Path, seconds: float) -> dict[str, Any]:
    chance = random.Random(7)
    texts = [text(chance) for _ in range(64)]
    late: dict[bool, list[float]] = {True: [], False: []}
    recording = False
    count = 0

    async def worker(number: int) -> None:
        nonlocal count
        while True:
            sum(n * n for n in range(500))  # some 20 us of its own
            if recording:
                recorder.record(texts[number % 64], query="q", run=f"r{number}", kind="tool")
                count += 1
            await asyncio.sleep(chance.uniform(0.1, 0.3))

    async def clock(end: float) -> None:
        while (before := time.perf_counter()) < end:
            await asyncio.sleep(0.001)
            late[recording].append((time.perf_counter() - before - 0.001) * 1e6)

    async def loop() -> None:
        nonlocal recording
        workers = [asyncio.create_task(worker(number)) for number in range(100)]
        await asyncio.sleep(0.3)
        for turn in range(max(4, round(seconds * 4))):  # half a second each, in turn
            recording = turn % 2 == 1
            await clock(time.perf_counter() + 0.5)
        for task in workers:
            task.cancel()

    with Recorder(root / "home-loop") as recorder:
        asyncio.run(loop())
    without, beside = late[False], late[True]
    return {
        "asyncio_records": count,
        "asyncio_p99_us": round(percentile(without, 0.99), 1),
        "asyncio_added_p50_us": round(percentile(beside, 0.5) - percentile(without, 0.5), 1),
        "asyncio_added_p99_us": round(percentile(beside, 0.99) - percentile(without, 0.99), 1),
    }


def burst(root: Path) -> dict[str, Any]:
    chance = random.Random(3)
    texts = [text(chance) for _ in range(64)]
    with Recorder(root / "home-burst") as recorder:
        recorder.record("warm", wait=True)
        start = time.perf_counter()
        for number in range(5000):
            recorder.record(texts[number % 64], query="q", run="r")
        called = time.perf_counter()
        recorder.flush()
        flushed = time.perf_counter()
        assert recorder.counts.overflowed == 0
    return {
        "burst_us": round((called - start) / 5000 * 1e6, 1),
        "drain_rows_s": round(5000 / (flushed - start)),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    arguments.add_argument("--rate", type=float, default=200.0, help="items a second of one process")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    root = Path(tempfile.mkdtemp(prefix="afterpass-record-"))
    try:
        result: dict[str, Any] = {"version": 1, "processes": {}}
        for processes in (1, 4, 8):
            found = beside_others(root, processes, given.seconds, given.rate)
            result["processes"][str(processes)] = found
            print(f"{processes} processes: {found}")
        result |= {name: value for name, value in result["processes"]["1"].items() if name.endswith("_us")}
        result |= in_a_loop(root, given.seconds)
        result |= burst(root)
    finally:
        shutil.rmtree(root)
    for name in ("record_p50_us", "record_p99_us", "asyncio_added_p99_us", "burst_us", "drain_rows_s"):
        print(f"{name:>22} {result[name]}")
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
