"""What compiling the language model costs at the start and brings while it writes.

    python benchmarks/startup.py --json

Three starts of the engine, each in a process of its own, turn by turn for `--rounds` rounds: `eager`;
`compiled` with an empty compile cache; `again`, compiled with the cache that this left. After each start the
same prompts are answered. `start_s`: from the process's first line to
the first reply's end, so that what is compiled late counts too. `tokens_s`: output tokens a second after it.
`reused`: how many of the compiled start's extra seconds the cache saves. `pays_from`: prompts of the shape of
a group's summary (`--tokens` of reply) from which a compiled start with a warm cache is done earlier than an
eager one; null where it never is. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

WAYS = ("eager", "compiled", "again")


def one(eager: bool, model: str, count: int, tokens: int) -> dict[str, float]:
    """Start here, answer, and say how long each took."""
    began = time.perf_counter()
    from summarise import prompts_of, workload

    from afterpass.core.config import SummarizerConfig
    from afterpass.summarize.vllm_engine import VllmEngine

    config = SummarizerConfig(
        model=model,
        max_model_len=2048,
        memory="1GiB",
        max_in_flight=64,
        enforce_eager=eager,
        engine={"sampling": {"ignore_eos": True}},
    )
    engine = VllmEngine.start(config, prompts=count)

    def answer(prompts: list[Any]) -> float:
        at = time.perf_counter()
        todo = list(reversed(prompts))
        while todo or engine.pending:
            while todo and engine.room:
                engine.submit(todo.pop())
            assert not [reply for reply in engine.step() if reply.error]
        return time.perf_counter() - at

    answer(prompts_of(workload("even", 1, 4, 9)))
    started = time.perf_counter() - began
    prompts = prompts_of(workload("even", count, tokens, 0))
    seconds = answer(prompts)
    engine.close()
    return {"start_s": started, "seconds": seconds, "tokens_s": count * tokens / seconds}


def child(eager: bool, cache: Path, given: argparse.Namespace) -> dict[str, float]:
    """`one` in a process of its own, with a compile cache of its own."""
    arguments = ["--one", "eager" if eager else "compiled", "--model", given.model]
    arguments += ["--prompts", str(given.prompts), "--tokens", str(given.tokens)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "VLLM_CACHE_ROOT": str(cache / "vllm"),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="only the last line, as JSON")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--prompts", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", choices=("eager", "compiled"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one == "eager", given.model, given.prompts, given.tokens)))
        return
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for way in WAYS:
                runs[way].append(child(way == "eager", Path(cache), given))
                print(way, runs[way][-1], file=sys.stderr, flush=True)
    found: dict[str, Any] = {
        way: {
            name: round(statistics.median(run[name] for run in made), 2) for name in ("start_s", "tokens_s")
        }
        for way, made in runs.items()
    }
    each = {
        way: statistics.median(run["seconds"] for run in made) / given.prompts for way, made in runs.items()
    }
    saved = each["eager"] - each["again"]
    later = found["again"]["start_s"] - found["eager"]["start_s"]
    extra = found["compiled"]["start_s"] - found["eager"]["start_s"]
    found["reused"] = (
        round((found["compiled"]["start_s"] - found["again"]["start_s"]) / extra, 2) if extra else 0
    )
    found["speedup"] = round(each["eager"] / each["again"], 3)
    found["pays_from"] = max(0, round(later / saved)) if saved > 0 else None
    found["prompts"], found["tokens"] = given.prompts, given.tokens
    if not given.json:
        print(json.dumps(found, indent=2))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
