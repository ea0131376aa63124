"""How full the language model is kept: ours against vLLM's own calls and transformers, same prompts, one run.

    python benchmarks/summarise.py --json                   # 48 prompts, five rounds, both workloads
    python benchmarks/summarise.py --prompts 24 --rounds 1  # a quick look

One engine serves all vLLM ways in turn (its prefix cache emptied between them), so that machine, model and
settings are the same: `ours` (submit and step, fed as it drains), `raw` (`LLM.generate` once with all),
`chunked` (`LLM.generate` by 32), `single` (one by one, on a part of the prompts). `transformers` is
`generate` with the best of some static batch sizes. Workloads: `even`, every reply as long as the others;
`long_tail`, one in ten eight times as long. Lengths are forced (the end-of-text token is ignored), greedy
decoding throughout.

Rates are output tokens that were asked for, a second. Ratios are of medians over the rounds, the ways taking
turns. The last line is one JSON object:
`{"even": {"vs_raw", "vs_chunked", "vs_single", "vs_transformers"}, "long_tail": {...}, "engine_share", ...}`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

CHUNK = 32
WORDS = (
    "the sweep reads what agents left behind and writes a verdict beside each item while the machine is free "
    "so that whoever comes next finds a few lines with their sources instead of a heap of raw results"
)


def workload(name: str, count: int, short: int, seed: int) -> list[tuple[str, int]]:
    """(text, output tokens) for each prompt; all share the start of their text."""
    chance = random.Random(f"{name}{seed}")
    made = []
    for number in range(count):
        body = " ".join(chance.choices(WORDS.split(), k=chance.randint(60, 240)))
        long = name == "long_tail" and number % 10 == 9
        made.append((f"Passage {number}: {body}\n\nSay what it says.", short * 8 if long else short))
    return made


def prompts_of(work: Sequence[tuple[str, int]]) -> list[Any]:
    """As our prompts."""
    from afterpass.core.types import Prompt

    system = "You read passages and write short, correct notes that answer a question. " * 8
    return [
        Prompt(
            id=str(number),
            messages=({"role": "system", "content": system}, {"role": "user", "content": text}),
            max_tokens=tokens,
        )
        for number, (text, tokens) in enumerate(work)
    ]


class Ways:
    """The vLLM ways over one engine."""

    def __init__(self, model: str, dtype: str, in_flight: int, eager: bool) -> None:
        from afterpass.core.config import SummarizerConfig
        from afterpass.summarize import models, vllm_engine

        self.config = SummarizerConfig(
            model=model,
            dtype=dtype,
            max_model_len=2048,
            memory="2GiB",
            max_in_flight=in_flight,
            enforce_eager=eager,
            engine={"sampling": {"ignore_eos": True}},
        )
        vllm_engine._environment()
        from vllm import LLM

        folder = str(models.folder(self.config))
        context = models.context_length(self.config)
        arguments, about = vllm_engine._arguments(self.config, folder, None)
        began = time.perf_counter()
        self.llm: Any = LLM(**arguments)
        self.start_s = time.perf_counter() - began
        self.engine: Any = self.llm.llm_engine
        self.ours = vllm_engine.VllmEngine(self.engine, self.config, context, about)
        self.inside = 0.0

    def reset(self) -> None:
        """Forget all prefixes."""
        self.engine.reset_prefix_cache()

    def run_ours(self, prompts: Sequence[Any]) -> None:
        """Submit and step, as a sweep's worker does."""
        todo = list(reversed(prompts))
        while todo or self.ours.pending:
            while todo and self.ours.room:
                self.ours.submit(todo.pop())
            began = time.perf_counter()
            self.ours.step()
            self.inside += time.perf_counter() - began

    def run_raw(self, prompts: Sequence[Any], chunk: int | None = None) -> None:
        """`LLM.generate` over all of them, or chunk by chunk."""
        size = chunk or len(prompts)
        for at in range(0, len(prompts), size):
            part = prompts[at : at + size]
            tokens = [{"prompt_token_ids": self.ours._tokens_of(prompt)} for prompt in part]
            self.llm.generate(tokens, [self.ours._sampling(prompt) for prompt in part], use_tqdm=False)


def transformers_rate(
    folder: str, dtype: str, prompts: Sequence[Any], sizes: Sequence[int]
) -> tuple[float, int]:
    """(tokens a second, batch size) of `generate`, with the best of some static batch sizes."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    texts = [
        tokenizer.apply_chat_template(
            [dict(turn) for turn in prompt.messages], add_generation_prompt=True, tokenize=False
        )
        for prompt in prompts
    ]
    best = (0.0, 0)
    for size in sizes:
        began = time.perf_counter()
        for at in range(0, len(prompts), size):
            batch = tokenizer(
                texts[at : at + size], return_tensors="pt", padding=True, add_special_tokens=False
            )
            longest = max(prompt.max_tokens for prompt in prompts[at : at + size])
            with torch.inference_mode():
                model.generate(
                    **batch,
                    min_new_tokens=longest,
                    max_new_tokens=longest,
                    do_sample=False,
                    pad_token_id=tokenizer.pad_token_id,
                )
        best = max(best, (sum(p.max_tokens for p in prompts) / (time.perf_counter() - began), size))
    return best


def timed(ways: Ways, work: Callable[[], None]) -> float:
    """Seconds that some work takes with an empty prefix cache."""
    ways.reset()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(ways: Ways, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Rates of all ways over one workload."""
    prompts = prompts_of(workload(name, given.prompts, given.tokens, 0))
    part = prompts[:: max(1, len(prompts) // given.single)][: given.single]
    asked = sum(prompt.max_tokens for prompt in prompts)
    rates: dict[str, list[float]] = {"ours": [], "raw": [], "chunked": [], "single": []}
    inside = wall = 0.0
    for number in range(given.rounds):
        order: list[tuple[str, Callable[[], None], int]] = [
            ("ours", lambda: ways.run_ours(prompts), asked),
            ("raw", lambda: ways.run_raw(prompts), asked),
            ("chunked", lambda: ways.run_raw(prompts, CHUNK), asked),
            ("single", lambda: ways.run_raw(part, 1), sum(prompt.max_tokens for prompt in part)),
        ]
        for way, work, tokens in order[number % 4 :] + order[: number % 4]:
            ways.inside = 0.0
            seconds = timed(ways, work)
            rates[way].append(tokens / seconds)
            if way == "ours":
                inside, wall = inside + ways.inside, wall + seconds
            print(f"{name} {way}: {tokens / seconds:.1f} tokens/s", file=sys.stderr, flush=True)
    middle = {way: statistics.median(values) for way, values in rates.items()}
    return {
        "tokens_s": {way: round(value, 1) for way, value in middle.items()},
        "vs_raw": round(middle["ours"] / middle["raw"], 3),
        "vs_chunked": round(middle["ours"] / middle["chunked"], 3),
        "vs_single": round(middle["ours"] / middle["single"], 2),
        "rounds_vs_raw": [round(a / b, 3) for a, b in zip(rates["ours"], rates["raw"], strict=True)],
        "engine_share": round(inside / wall, 4),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="only the last line, as JSON")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=16, help="of an even reply")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--single", type=int, default=6, help="prompts that are asked one by one")
    parser.add_argument("--in-flight", type=int, default=24)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--no-transformers", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 32])
    given = parser.parse_args()
    os.environ.setdefault("TQDM_DISABLE", "1")
    ways = Ways(given.model, given.dtype, given.in_flight, not given.compiled)
    ways.run_ours(prompts_of(workload("even", 4, 4, 9)))  # first calls allocate
    found: dict[str, Any] = {"start_s": round(ways.start_s, 1), "about": dict(ways.ours.about())}
    for name in ("even", "long_tail"):
        found[name] = measure(ways, name, given)
    tokens = ways.ours.about()["tokens"]
    found["prefix_hit_rate"] = round(tokens["cached"] / max(1, tokens["prompt"]), 3)
    found["engine_share"] = min(found[name]["engine_share"] for name in ("even", "long_tail"))
    dtype, folder = ways.engine.model_config.dtype, ways.engine.model_config.model
    ways.ours.close()
    if not given.no_transformers:
        for name in ("even", "long_tail"):
            prompts = prompts_of(workload(name, given.prompts, given.tokens, 0))
            rate, size = transformers_rate(folder, str(dtype).removeprefix("torch."), prompts, given.batches)
            found[name]["tokens_s"]["transformers"] = round(rate, 1)
            found[name]["transformers_batch"] = size
            found[name]["vs_transformers"] = round(found[name]["tokens_s"]["ours"] / rate, 2)
    if not given.json:
        print(json.dumps(found, indent=2, default=str))
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
