"""Whether the promise about dropped items holds, on real data and over many draws of the labels.

    python benchmarks/guarantee.py --json --data DIR     # the development sets
    python benchmarks/guarantee.py --json                # no data: a corpus made from docstrings

The shipped reranker scores each group's candidates once, as a sweep does; the scores lie in a scratch file
for the next run. Then 1,000 times: draw groups at random, take their labels, make the promise (at most
`--max-miss` of a group's relevant items dropped, confidence `--confidence`), and see on the groups that were
not drawn what the decision drops. `held` is the share of trials in which it dropped at most that share of the
relevant items there; `held_all` counts over all groups, which is what the promise is about (the groups not
drawn differ from all of them by chance). Trials with too few labels for any promise count as neither;
`refused` says how many those are.

Shifted sources: the promise is made on one source and asked for on another (with `--data` each set against
each other one; without, on queries over the texts of other queries). `shift_refused` is the share of those
trials in which the drift check withdrew it; `shift_broken` the share in which it stood and was broken;
`false_alarm` the share of trials on the same source in which it was withdrawn.

Last line: one JSON object with `held`, `dropped` (share of all items, mean over trials), `shift_refused`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from rerank_quality import docstrings

from afterpass import rerank
from afterpass.core import keys
from afterpass.core.config import DecidePolicy, ScorerConfig
from afterpass.core.errors import InputError
from afterpass.core.types import Candidate, Pair
from afterpass.rerank import drift, guarantee
from afterpass.rerank.guarantee import LabelledGroup, Measured
from afterpass.rerank.training import data


def scored(dataset: data.Dataset, scratch: Path, *, mixed: bool = False) -> list[LabelledGroup]:
    """A set's lists as groups with the shipped model's logits; `mixed` asks each query of another's texts."""
    lists = dataset.lists
    if mixed:
        lists = [replace(one, query=lists[i - 1].query) for i, one in enumerate(lists)]
    wanted = [(one.query, dataset.texts[index]) for one in lists for index in one.texts]
    logits = iter(_logits(wanted, scratch))
    groups = []
    for one in lists:
        candidates = tuple(
            Candidate(seq, keys.content_hash(dataset.texts[index]), len(dataset.texts[index]), False, logit)
            for seq, (index, logit) in enumerate(zip(one.texts, logits, strict=False))
        )
        relevant = frozenset(seq for seq, gain in enumerate(one.gains) if gain > 0)
        groups.append(LabelledGroup(f"{dataset.name} {one.qid}", candidates, relevant))
    return groups


def _logits(wanted: list[tuple[str, str]], scratch: Path) -> list[float]:
    """Logits of pairs, from the scratch file where they were scored before."""
    config = ScorerConfig(model="embedded")
    name = hashlib.sha256(json.dumps([rerank.model_key(config), wanted]).encode()).hexdigest()[:16]
    kept = scratch / f"afterpass-guarantee-{name}.npy"
    if kept.exists():
        return list(map(float, np.load(kept)))
    scorer = rerank.load(config)
    pairs = [Pair(keys.content_hash(q), keys.content_hash(t), q, t) for q, t in wanted]
    todo = list({(p.query_hash, p.text_hash): p for p in pairs}.values())[::-1]
    found: dict[Any, float] = {}
    while todo or scorer.pending:
        while todo and scorer.room:
            scorer.submit(todo.pop())
        for score in scorer.step():
            found[score.query_hash, score.text_hash] = math.nan if score.logit is None else score.logit
        print(f"\r{len(found)} pairs scored", end="", file=sys.stderr)
    print(file=sys.stderr)
    scorer.close()
    logits = np.array([found[p.query_hash, p.text_hash] for p in pairs], np.float32)
    with tempfile.NamedTemporaryFile(dir=scratch, suffix=".npy", delete=False) as file:
        np.save(file, logits)
    os.replace(file.name, kept)
    return list(map(float, logits))


def thinned(dataset: data.Dataset, most: int, depth: int) -> data.Dataset:
    """At most so many lists, drawn with seed 0, of so many candidates, the first ones."""
    order = np.random.default_rng(0).permutation(len(dataset.lists))[:most]
    lists = [
        replace(one, texts=one.texts[:depth], gains=one.gains[:depth])
        for one in (dataset.lists[i] for i in sorted(order))
    ]
    return data.Dataset(dataset.name, dataset.texts, lists)


def missed(groups: list[Measured], min_logit: float | None) -> float:
    """Share of relevant items dropped, averaged over groups that have any."""
    limits = [group.limits for group in groups if group.relevant]
    return guarantee.missed_share(limits, -math.inf if min_logit is None else min_logit)


def trials(
    groups: list[Measured], policy: DecidePolicy, asked: argparse.Namespace, labels: int
) -> dict[str, Any]:
    """Draw, promise, and look at the others."""
    rng = np.random.default_rng(1)
    held, held_all, dropped, alarms, refused = [], [], [], [], 0
    for _ in range(asked.trials):
        order = rng.permutation(len(groups))
        drawn, others = [groups[i] for i in order[:labels]], [groups[i] for i in order[labels:]]
        try:
            made = guarantee.find(drawn, policy, max_miss=asked.max_miss, confidence=asked.confidence)
        except InputError:
            refused += 1
            continue
        held.append(missed(others, made.min_logit) <= asked.max_miss)
        held_all.append(missed(groups, made.min_logit) <= asked.max_miss)
        dropped.append(guarantee.dropped_share(others, made.min_logit))
        alarms.append(not drift.check(made, [group.shape for group in others]).fits)
    if not held:
        return {"refused": 1.0, "trials": asked.trials}
    return {
        "held": round(statistics.mean(held), 4),
        "held_all": round(statistics.mean(held_all), 4),
        "dropped": round(statistics.mean(dropped), 4),
        "false_alarm": round(statistics.mean(alarms), 4),
        "refused": round(refused / asked.trials, 4),
        "labelled_groups": labels,
        "trials": asked.trials,
    }


def shifted(
    source: list[Measured],
    target: list[Measured],
    policy: DecidePolicy,
    asked: argparse.Namespace,
    labels: int,
    count: int,
) -> dict[str, Any] | None:
    """Promise on one source, apply to another."""
    rng = np.random.default_rng(2)
    withdrawn, broken = [], []
    for _ in range(count):
        drawn = [source[i] for i in rng.permutation(len(source))[:labels]]
        try:
            made = guarantee.find(drawn, policy, max_miss=asked.max_miss, confidence=asked.confidence)
        except InputError:
            continue
        withdrawn.append(not drift.check(made, [group.shape for group in target]).fits)
        too_many = any(g.relevant for g in target) and missed(target, made.min_logit) > asked.max_miss
        broken.append(too_many and not withdrawn[-1])
    if not withdrawn:
        return None
    return {"refused": round(statistics.mean(withdrawn), 4), "broken": round(statistics.mean(broken), 4)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("AFTERPASS_CE_DATA"))
    parser.add_argument("--max-miss", type=float, default=0.1)
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--labels", type=int, help="groups labelled in each trial; a third where not given")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=100, help="groups of each set at most")
    parser.add_argument("--depth", type=int, default=10, help="candidates of a group at most")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true", help="only the JSON line on standard output")
    asked = parser.parse_args()
    say = sys.stderr if asked.json else sys.stdout
    policy = DecidePolicy(top_k=None)
    if asked.data is None:
        corpus = docstrings(most=2 * asked.limit, depth=asked.depth)
        own = [guarantee.measure(g, policy) for g in scored(corpus, asked.scratch)]
        other = [guarantee.measure(g, policy) for g in scored(corpus, asked.scratch, mixed=True)]
        sources, pairs = {"docstrings": own, "mixed up": other}, [("docstrings", "mixed up")]
    else:
        sources = {}
        for dataset in data.development(Path(asked.data), "all"):
            small = thinned(dataset, asked.limit, asked.depth)
            sources[dataset.name] = [guarantee.measure(g, policy) for g in scored(small, asked.scratch)]
        pairs = list(permutations(sources, 2))
        own = [group for groups in sources.values() for group in groups]
    result = trials(own, policy, asked, asked.labels or len(own) // 3)
    print({name: len(groups) for name, groups in sources.items()}, result, file=say)
    shifts: dict[str, dict[str, Any]] = {}
    count = math.ceil(asked.trials / len(pairs))
    for source, target in pairs:
        labels = len(sources[source]) * 2 // 3
        found = shifted(sources[source], sources[target], policy, asked, labels, count)
        if found is not None:
            shifts[f"{source} > {target}"] = found
            print(f"{source} > {target}: {found}", file=say)
    result |= {
        "shift_refused": round(statistics.mean(s["refused"] for s in shifts.values()), 4),
        "shift_broken": round(statistics.mean(s["broken"] for s in shifts.values()), 4),
        "max_miss": asked.max_miss,
        "confidence": asked.confidence,
        "shifts": shifts,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
