"""How well the shipped reranker ranks, beside BM25, the bi-encoder and the fusion of both.

    python benchmarks/rerank_quality.py --json --data DIR     # the development sets, halves never trained on
    python benchmarks/rerank_quality.py --json                # no data: a corpus made from docstrings

nDCG@10, MAP and MRR with 95 % bootstrap intervals over queries, and the paired difference of ours to the
better of BM25 and the bi-encoder. Of each text the first 230 tokens are read, by ours and by the bi-encoder;
BM25 has the whole. With `--chunks` ours reads on, in overlapping chunks of which the best counts, as a sweep
does. Layers in which no attention crosses run once for each text, which gives the same scores as whole passes
up to rounding. The last line of the output is one JSON object:
`{"mean": {"ours", "fusion", "bi", "bm25"}, "sets": {NAME: ...}, ...}`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from afterpass.core.paths import cache_folder
from afterpass.rerank import embedded
from afterpass.rerank.embedded.model import LAYERS, TwoSidedModel, load
from afterpass.rerank.embedded.packing import QUERY, TEXT
from afterpass.rerank.training import data, metrics
from afterpass.rerank.training.encode import Encoder, first_open_layer, scores, token_ids, tokenizer

QUERY_TOKENS, TEXT_TOKENS, OVERLAP = 62, 230, 64
METHODS = ("ours", "fusion", "bi", "bm25")
MODULES = """argparse array ast asyncio base64 bisect calendar collections configparser contextlib copy csv
datetime decimal difflib dis email.message fractions functools gzip hashlib heapq html http.client inspect io
itertools json logging math mimetypes multiprocessing.pool operator os pathlib pickle platform pprint queue
random re sched secrets shelve shlex shutil signal socket sqlite3 statistics string struct subprocess sys
tarfile tempfile textwrap threading time timeit tokenize traceback types typing unittest.mock urllib.parse
urllib.request uuid warnings weakref xml.etree.ElementTree zipfile zlib"""


def docstrings(most: int = 120, depth: int = 30) -> data.Dataset:
    """Queries: first sentences of the standard library's docstrings. Texts: the name and what follows."""
    import bm25s

    found: dict[str, str] = {}
    for module in MODULES.split():
        loaded = importlib.import_module(module)
        owners = [loaded, *(value for _, value in inspect.getmembers(loaded, inspect.isclass))]
        for owner in owners:
            for name, value in vars(owner).items():
                text = inspect.getdoc(value) if callable(value) and not name.startswith("_") else None
                first, _, rest = (text or "").partition("\n\n")
                if 20 < len(first) < 200 and len(rest) > 60:
                    found.setdefault(" ".join(first.split()), f"{name}\n{rest[:2000]}")
    queries, texts = list(found), list(dict.fromkeys(found.values()))
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    chosen = np.random.default_rng(0).permutation(len(queries))[:most]
    asked = bm25s.tokenize([queries[i] for i in chosen], stopwords="en", show_progress=False)
    best, best_scores = index.retrieve(asked, k=min(depth, len(texts)), show_progress=False)
    lists = []
    for row, number in enumerate(chosen):
        right = texts.index(found[queries[number]])
        members = tuple(int(i) for i in best[row])
        gains = tuple(float(i == right) for i in members)
        bm25 = tuple(float(s) for s in best_scores[row])
        lists.append(data.RankingList(str(number), queries[number], members, gains, bm25, (1.0,)))
    return data.Dataset("docstrings", texts, lists)


class Rankers:
    """Ours and the bi-encoder over one pass of the layers that they share."""

    def __init__(self, adapter: Path | None, *, chunks: bool = False) -> None:
        self.chunks = chunks
        folder = embedded.prepare(cache_folder())
        self.tokens = tokenizer(folder)
        self.base = load(folder, None)
        self.ours = load(folder, adapter)
        self.join = min(first_open_layer(self.ours), _first_changed(self.base, self.ours))
        self.encoder = Encoder(self.base, (self.join, LAYERS) if self.join < LAYERS else (LAYERS,))

    def __call__(self, dataset: data.Dataset) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Logits of ours and cosines of the bi-encoder, for each list."""
        used = sorted({index for one in dataset.lists for index in one.texts})
        whole = token_ids(self.tokens, [dataset.texts[i] for i in used], 4096)
        place: dict[int, list[int]] = {}
        cut: list[list[int]] = []
        for index, ids in zip(used, whole, strict=True):
            last = max(0, len(ids) - OVERLAP - 1) if self.chunks else 0
            starts = range(0, last + 1, TEXT_TOKENS - OVERLAP)
            place[index] = list(range(len(cut), len(cut) + len(starts)))
            cut += [ids[start : start + TEXT_TOKENS] for start in starts]
        texts = self.encoder(cut, TEXT)
        asked = token_ids(self.tokens, [one.query for one in dataset.lists], QUERY_TOKENS)
        queries = self.encoder(asked, QUERY)
        pairs = [(row, place[i]) for row, one in enumerate(dataset.lists) for i in one.texts]
        flat = [(query, chunk) for query, chunks in pairs for chunk in chunks]
        logits, _, _ = scores(self.ours, queries[0], texts[0], flat, join=self.join)
        firsts = np.cumsum([0, *(len(chunks) for _, chunks in pairs[:-1])])
        best = np.maximum.reduceat(logits.numpy(), firsts)
        query_means, text_means = queries[-1].means(), texts[-1].means()
        cosines = np.array([float(query_means[q] @ text_means[chunks[0]]) for q, chunks in pairs])
        ends = np.cumsum([len(one.texts) for one in dataset.lists])[:-1]
        return np.split(best, ends), np.split(cosines, ends)


def _first_changed(base: TwoSidedModel, ours: TwoSidedModel) -> int:
    for index in range(LAYERS):
        pairs = zip(base.layers[index].parameters(), ours.layers[index].parameters(), strict=True)
        if not all(torch.equal(one, other) for one, other in pairs):
            return index
    return LAYERS


def measure(dataset: data.Dataset, rankers: Rankers) -> dict[str, Any]:
    """All metrics of one set; `values` keeps each method's nDCG@10 by query for the means over sets."""
    logits, cosines = rankers(dataset)
    values: dict[str, dict[str, list[float]]] = {m: {"ndcg": [], "map": [], "mrr": []} for m in METHODS}
    for one, ours, bi in zip(dataset.lists, logits, cosines, strict=True):
        by_method = {"ours": ours, "bi": bi, "bm25": one.bm25, "fusion": metrics.fusion(bi, one.bm25)}
        relevant = sum(grade > 0 for grade in one.ideal)
        for method in METHODS:
            found = by_method[method]
            values[method]["ndcg"].append(metrics.ndcg(found, one.gains, one.ideal))
            values[method]["map"].append(metrics.average_precision(found, one.gains, relevant))
            values[method]["mrr"].append(metrics.reciprocal_rank(found, one.gains))
    better = max(("bi", "bm25"), key=lambda method: float(np.mean(values[method]["ndcg"])))

    def against(method: str) -> dict[str, Any]:
        difference = np.subtract(values["ours"]["ndcg"], values[method]["ndcg"])
        return {"mean": round(float(difference.mean()), 4), "interval": _rounded(difference)}

    report: dict[str, Any] = {
        "queries": len(dataset.lists),
        "candidates": round(float(np.mean([len(one.texts) for one in dataset.lists])), 1),
    }
    for method in METHODS:
        report[method] = {
            name: {"mean": round(float(np.mean(found)), 4), "interval": _rounded(found)}
            for name, found in values[method].items()
        }
    report["better_of_bi_and_bm25"] = better
    report["ours_minus_better"] = against(better)
    report["ours_minus_fusion"] = against("fusion")
    report["values"] = {method: values[method]["ndcg"] for method in METHODS}
    return report


def _rounded(values: Any) -> list[float]:
    return [round(bound, 4) for bound in metrics.interval(list(values))]


def _mean_interval(sets: dict[str, dict[str, Any]], one: str, other: str) -> list[float]:
    """95 % interval of the difference of the means over sets: queries are drawn within each set."""
    rng = np.random.default_rng(0)
    drawn = []
    for report in sets.values():
        difference = np.subtract(report["values"][one], report["values"][other])
        rows = rng.integers(0, len(difference), (2000, len(difference)))
        drawn.append(difference[rows].mean(1))
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    return [round(float(low), 4), round(float(high), 4)]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("AFTERPASS_CE_DATA"))
    parser.add_argument("--half", choices=("test", "stop", "all"), default="test")
    parser.add_argument("--limit", type=int, help="queries of each set at most")
    parser.add_argument("--sets", nargs="*", help="only these")
    parser.add_argument(
        "--adapter", type=Path, default=embedded.ADAPTER, help="another adapter than the shipped"
    )
    parser.add_argument("--chunks", action="store_true", help="ours reads the whole of long texts")
    parser.add_argument("--json", action="store_true", help="only the JSON line on standard output")
    arguments = parser.parse_args()
    say = sys.stderr if arguments.json else sys.stdout
    if arguments.data is None:
        datasets = [docstrings()]
    else:
        datasets = data.development(Path(arguments.data), arguments.half)
    rankers = Rankers(arguments.adapter, chunks=arguments.chunks)
    sets: dict[str, dict[str, Any]] = {}
    for dataset in datasets:
        if arguments.sets and dataset.name not in arguments.sets:
            continue
        if arguments.limit:
            dataset.lists = dataset.lists[: arguments.limit]
        started = time.perf_counter()
        report = sets[dataset.name] = measure(dataset, rankers)
        shown = "  ".join(f"{m} {report[m]['ndcg']['mean']:.3f}" for m in METHODS)
        behind, better = report["ours_minus_better"], report["better_of_bi_and_bm25"]
        print(
            f"{dataset.name:20} {report['queries']:4} queries  nDCG@10  {shown}  ours - {better} "
            f"{behind['mean']:+.3f} [{behind['interval'][0]:+.3f}, {behind['interval'][1]:+.3f}]  "
            f"{time.perf_counter() - started:.0f} s",
            file=say,
            flush=True,
        )
    mean = {m: round(float(np.mean([r[m]["ndcg"]["mean"] for r in sets.values()])), 4) for m in METHODS}
    differences = {
        f"ours_minus_{other}": {
            "mean": round(mean["ours"] - mean[other], 4),
            "interval": _mean_interval(sets, "ours", other),
        }
        for other in METHODS[1:]
    }
    for report in sets.values():
        del report["values"]
    print("mean  " + "  ".join(f"{m} {mean[m]:.4f}" for m in METHODS), differences, file=say, flush=True)
    result = {"mean": mean, "sets": sets, "differences": differences, "revision": embedded.revision()}
    print(json.dumps(result | {"half": arguments.half if arguments.data else None}))


if __name__ == "__main__":
    main()
