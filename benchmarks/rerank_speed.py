"""How fast the shipped reranker scores, beside plain `CrossEncoder.predict` with the same weights.

    AFTERPASS_TRACES=DIR python benchmarks/rerank_speed.py --json    # mixed lengths from real agent traces
    python benchmarks/rerank_speed.py --json                         # without: from docstrings

Both take the same pairs in turn, in one process, for `--rounds` rounds; medians count. `predict` runs with
its defaults in float32 (it sorts by length itself); ours runs as a sweep runs it, on the backend that was
found fastest here. Texts are cut to one chunk beforehand, so that both read the same. `tau` is Kendall's
between the two orders, `max_diff` the largest difference of a logit.

- `short`: passages of some 40 tokens; `mixed`: tool outputs as they come, up to 256 tokens with the query.
- `with_cache`: groups of the traces are judged twice, half-grown and whole. `predict` scores what it is
  given, ours each pair once: the ratio of the times for the same verdicts. `without_duplicates`: how many
  pairs are left where only equal ones within a sweep are joined.
- `peak_share`: operations that the unpadded tokens of `mixed` need, over our time, against the fastest
  float32 matrix product (torch, all cores) of the same run.
- `rerankers`: the same on a BERT classifier of the same size with random weights, beside the package
  `rerankers` where it is installed (null where not); `--vllm`: beside vLLM's pooling `score`.

Last line: one JSON object,
`{"mixed": {"ratio", "tau", "max_diff"}, "short": ..., "with_cache": {"ratio"}, "peak_share", ...}`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rerank_quality import docstrings
from scipy.stats import kendalltau
from tokenizers import Tokenizer

from afterpass import rerank
from afterpass.core import keys
from afterpass.core.clean import clean
from afterpass.core.config import ScorerConfig
from afterpass.core.machine import usable_cores
from afterpass.core.paths import cache_folder
from afterpass.core.types import Item, Pair
from afterpass.rerank import embedded
from afterpass.store.formats import Options, read

TEXTS = ("sierra-research__tau-bench/**/*.json", "SWE-agent__SWE-agent/**/*.traj")
LENGTH, QUERY_LENGTH, SLACK = 256, 58, 4
LAYERS, WIDTH, INNER = 6, 384, 1536

Asked = tuple[str, str]


class Cutter:
    """Cuts a pair to what one chunk holds, for both sides alike."""

    def __init__(self) -> None:
        self._tokens = Tokenizer.from_file(str(embedded.prepare(cache_folder()) / "tokenizer.json"))
        self._tokens.no_truncation()
        self._tokens.no_padding()

    def __call__(self, query: str, text: str, most: int = LENGTH) -> Asked:
        """Cleaned as a sweep does it, and cut at a token's end."""
        query, size = self._cut(clean(query).text, QUERY_LENGTH)
        return query, self._cut(clean(text).text[:20_000], most - size - 4 - SLACK)[0]

    def length(self, pair: Asked) -> int:
        """Tokens of the pair in the model."""
        return sum(len(one) for one in self._tokens.encode_batch(list(pair), add_special_tokens=False)) + 4

    def _cut(self, text: str, most: int) -> tuple[str, int]:
        found = self._tokens.encode(text, add_special_tokens=False)
        if len(found) <= most:
            return text, len(found)
        return text[: found.offsets[most - 1][1]], most


def recorded(folder: Path | None) -> list[tuple[str, str, str]]:
    """(group, query, text) of every item, in the order of recording."""
    found = []
    if folder is None:
        corpus = docstrings(most=120, depth=10)
        found = [(one.qid, one.query, corpus.texts[i]) for one in corpus.lists for i in one.texts]
    else:
        for path in sorted(path for pattern in TEXTS for path in folder.glob(pattern)):
            for item in read(path, Options()):
                if isinstance(item, Item) and item.query and item.text.strip():
                    found.append((str(item.group_id), item.query, item.text))
    return found


class Ours:
    """The shipped path: a scorer as a sweep loads it."""

    def __init__(self, config: ScorerConfig) -> None:
        self.scorer = rerank.load(config)

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        """Logits in the order of the pairs."""
        pairs = [Pair(keys.content_hash(q), keys.content_hash(t), q, t) for q, t in asked]
        todo, found = pairs[::-1], {}
        while todo or self.scorer.pending:
            while todo and self.scorer.room:
                self.scorer.submit(todo.pop())
            for score in self.scorer.step():
                if score.chunks != 1 or score.logit is None:
                    raise SystemExit(f"a pair was not read in one chunk: {score}")
                found[score.query_hash, score.text_hash] = score.logit
        return [found[pair.query_hash, pair.text_hash] for pair in pairs]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def side_by_side(
    ours: Callable[[Sequence[Asked]], Any],
    plain: Callable[[Sequence[Asked]], Any],
    asked: Sequence[Asked],
    rounds: int,
    say: Callable[..., None],
    plain_asked: Sequence[Asked] | None = None,
) -> dict[str, Any]:
    """Both in turn: medians of their seconds, and how far logits agree where both had the same pairs."""
    theirs, mine = [], []
    same = plain_asked is None
    want = asked if plain_asked is None else plain_asked
    ours(asked[:32])
    plain(want[:32])
    for number in range(rounds):
        seconds, expected = timed(lambda: plain(want))
        theirs.append(seconds)
        seconds, found = timed(lambda: ours(asked))
        mine.append(seconds)
        say(f"  round {number + 1}: plain {theirs[-1]:.2f} s, ours {mine[-1]:.2f} s")
    result: dict[str, Any] = {
        "ratio": round(statistics.median(theirs) / statistics.median(mine), 3),
        "pairs": len(asked),
        "pairs_per_s": round(len(asked) / statistics.median(mine), 1),
        "plain_pairs_per_s": round(len(want) / statistics.median(theirs), 1),
        "seconds": round(statistics.median(mine), 3),
    }
    if same:
        test: Any = kendalltau([round(float(x), 3) for x in expected], [round(float(x), 3) for x in found])
        result["tau"] = round(float(test.statistic), 5)
        result["max_diff"] = round(
            max(abs(float(a) - float(b)) for a, b in zip(expected, found, strict=True)), 6
        )
    return result


def operations(lengths: Iterable[int]) -> float:
    """Multiplications and additions that pairs of these lengths need."""
    linear = LAYERS * 2 * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    # Attention: scores and mixing in each layer; the head's token similarities once.
    return sum(length * linear + (LAYERS * 4 + 2) * length**2 * WIDTH for length in lengths)


def peak() -> float:
    """Operations a second of the best float32 matrix product seen, shapes of the model's and square."""
    best = 0.0
    for rows, inner, columns in ((4096, WIDTH, INNER), (4096, INNER, WIDTH), (2048, 2048, 2048)):
        one, other = torch.randn(rows, inner), torch.randn(inner, columns)
        for _ in range(10):
            seconds, _ = timed(lambda one=one, other=other: one @ other)
            best = max(best, 2 * rows * inner * columns / seconds)
    return best


def growing(items: Sequence[tuple[str, str, str]]) -> tuple[list[Asked], list[Asked], list[Asked]]:
    """Groups judged half-grown and whole: what is asked for, the same without equal pairs in one sweep, and
    without any pair that was scored before."""
    groups: dict[str, list[Asked]] = {}
    for group, query, text in items:
        groups.setdefault(group, []).append((query, text))
    first = [pair for pairs in groups.values() for pair in pairs[: (len(pairs) + 1) // 2]]
    second = [pair for pairs in groups.values() for pair in pairs]
    unique = [*dict.fromkeys(first), *dict.fromkeys(second)]
    return first + second, unique, list(dict.fromkeys(second))


def classifier(folder: Path) -> Path:
    """A BERT classifier of the embedded model's size with random weights."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
        intermediate_size=INNER,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    vocabulary = str(embedded.prepare(cache_folder()) / "tokenizer.json")
    BertTokenizerFast(tokenizer_file=vocabulary, model_max_length=512).save_pretrained(folder)
    return folder


def with_rerankers(folder: Path) -> Callable[[Sequence[Asked]], None]:
    """The package's own way: a query and its documents at a time."""
    from rerankers import Reranker  # type: ignore[import-not-found]

    ranker = Reranker(str(folder), model_type="cross-encoder", device="cpu", dtype="fp32", verbose=0)

    def run(asked: Sequence[Asked]) -> None:
        for query, pairs in groupby(asked, key=lambda pair: pair[0]):
            ranker.rank(query=query, docs=[text for _, text in pairs])

    return run


def with_vllm(folder: Path) -> Callable[[Sequence[Asked]], None]:
    """vLLM's pooling `score` over all pairs at once, in a process of its own: it does not start beside what
    is loaded here."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_start_vllm, initargs=(str(folder),))
    return lambda asked: pool.submit(_score_by_vllm, list(asked)).result()


def _start_vllm(folder: str) -> None:
    global _engine
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    # Its share of the memory is reserved at once, whatever the size of the model.
    _engine = LLM(folder, runner="pooling", dtype="float32", max_model_len=512, gpu_memory_utilization=0.3)


def _score_by_vllm(asked: Sequence[Asked]) -> None:
    _engine.score([query for query, _ in asked], [text for _, text in asked], use_tqdm=False)


_engine: Any = None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=240, help="of each kind")
    parser.add_argument("--traces", type=Path, default=os.environ.get("AFTERPASS_TRACES"))
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--vllm", action="store_true", help="also against vLLM's pooling score")
    parser.add_argument("--json", action="store_true", help="only the JSON line on standard output")
    given = parser.parse_args()

    def say(*words: object) -> None:
        print(*words, file=sys.stderr if given.json else sys.stdout, flush=True)

    torch.set_num_threads(usable_cores())
    rng, cutter = random.Random(0), Cutter()
    items = recorded(Path(given.traces) if given.traces else None)
    corpus = docstrings(most=120, depth=30)
    short = [cutter(one.query, corpus.texts[i], 56) for one in corpus.lists for i in one.texts]
    mixed = list(dict.fromkeys(cutter(query, text) for _, query, text in rng.sample(items, len(items))))
    short, mixed = rng.sample(short, min(given.pairs, len(short))), mixed[: given.pairs]
    lengths = [cutter.length(pair) for pair in mixed]
    options: dict[str, Any] = {
        "backend": given.backend, "dtype": given.dtype, "batch_tokens": given.batch_tokens,
    }  # fmt: skip
    ours = Ours(ScorerConfig(model="embedded", **options))
    model = embedded.build(cache_folder(), query_length=64, max_length=LENGTH)

    def plain(asked: Sequence[Asked]) -> Any:
        return model.predict(list(asked), show_progress_bar=False)

    highest = [peak()]
    result: dict[str, Any] = {}
    for name, asked in (("mixed", mixed), ("short", short)):
        say(f"{name}: {len(asked)} pairs, {sum(map(cutter.length, asked)) / len(asked):.0f} tokens each")
        result[name] = side_by_side(ours, plain, asked, given.rounds, say)
        highest.append(peak())
    share = operations(lengths) / result["mixed"]["seconds"] / max(highest)
    result["peak_share"] = round(share, 3)
    result["peak_gflops"] = round(max(highest) / 1e9, 1)
    result["plain_peak_share"] = round(share / result["mixed"]["ratio"], 3)

    chosen: list[tuple[str, str, str]] = []
    for group in rng.sample(sorted({group for group, _, _ in items}), len({g for g, _, _ in items})):
        chosen += [(g, *cutter(query, text)) for g, query, text in items if g == group]
        if len(chosen) >= given.pairs * 2 // 3:
            break
    asked, unique, fresh = growing(chosen)
    say(f"growing groups: {len(asked)} asked, {len(unique)} unequal in a sweep, {len(fresh)} never scored")
    cached = side_by_side(ours, plain, fresh, max(1, given.rounds // 2), say, plain_asked=asked)
    all_items = [(query, text) for _, query, text in items]
    result["with_cache"] = {
        "ratio": cached["ratio"],
        "asked": len(asked),
        "without_duplicates": len(unique),
        "scored": len(fresh),
        "recorded": len(all_items),
        "unique": len(set(all_items)),
    }
    result["engine"] = {k: v for k, v in ours.scorer.about().items() if k != "chosen"}
    ours.scorer.close()
    result["rerankers"] = result["vllm"] = None
    others: dict[str, Callable[[Path], Callable[[Sequence[Asked]], None]]] = {}
    if find_spec("rerankers"):
        others["rerankers"] = with_rerankers
    if given.vllm:
        others["vllm"] = with_vllm
    if others:
        with tempfile.TemporaryDirectory() as scratch:
            folder = classifier(Path(scratch) / "bert")
            bert = Ours(ScorerConfig(model=str(folder), **options))
            by_query = sorted(mixed)
            for name, start in others.items():
                say(f"against {name}")
                rounds = max(1, given.rounds // 2)
                found = side_by_side(bert, start(folder), by_query, rounds, say, plain_asked=by_query)
                result[name] = {"ratio": found["ratio"], "pairs_per_s": found["pairs_per_s"]}
            bert.scorer.close()
    say(json.dumps(result, indent=1))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
