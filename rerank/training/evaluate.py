"""Figures of an adapter whose head alone was trained, from the features that `features` kept.

python -m afterpass.rerank.training.evaluate --features DIR --adapter FILE [--kind test]

`benchmarks/rerank_quality.py` gives the same figures of any adapter from the texts themselves; this one costs
seconds, so that one pass over the halves kept for the end serves.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from ..embedded.head import Head
from .head_stage import FeatureSet, fused, score
from .metrics import interval, ndcg


def values(scores: np.ndarray, dataset: FeatureSet) -> np.ndarray:
    """nDCG@10 of each list."""
    found, start = [], 0
    for size, ideal in zip(dataset.sizes, dataset.ideal, strict=True):
        part = slice(start, start + size)
        found.append(ndcg(scores[part], dataset.gains[part].numpy(), ideal))
        start += size
    return np.array(found)


def compare(head: Head, dataset: FeatureSet) -> dict[str, np.ndarray]:
    """nDCG@10 by list of ours, the bi-encoder, BM25 and their fusion."""
    return {
        "ours": values(score(head, dataset).numpy(), dataset),
        "fusion": values(fused(dataset), dataset),
        "bi": values(dataset.features[:, 0].numpy(), dataset),
        "bm25": values(dataset.bm25.numpy(), dataset),
    }


def main() -> None:
    """Entry point: a line for each set, the means, and the differences with their 95 % intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--kind", choices=("stop", "test"), default="test")
    arguments = parser.parse_args()
    head = Head.from_tensors(load_file(arguments.adapter))
    sets = {}
    for path in sorted(arguments.features.glob(f"{arguments.kind}-*.npz")):
        dataset = FeatureSet.read(path)
        found = compare(head, dataset)
        sets[dataset.name] = found
        better = max(("bi", "bm25"), key=lambda name: found[name].mean())
        low, high = interval((found["ours"] - found[better]).tolist())
        shown = " ".join(f"{name} {numbers.mean():.3f}" for name, numbers in found.items())
        print(f"{dataset.name:18} {len(found['ours']):4} {shown}  ours - {better} [{low:+.3f}, {high:+.3f}]")
    rng = np.random.default_rng(0)
    means = {name: float(np.mean([found[name].mean() for found in sets.values()])) for name in found}
    print("mean", {name: round(mean, 4) for name, mean in means.items()})
    for other in ("fusion", "bi", "bm25"):
        drawn = []
        for found in sets.values():
            difference = found["ours"] - found[other]
            drawn.append(difference[rng.integers(0, len(difference), (2000, len(difference)))].mean(1))
        low, high = np.quantile(np.mean(drawn, 0), [0.025, 0.975])
        print(f"ours - {other} {means['ours'] - means[other]:+.4f} [{low:+.4f}, {high:+.4f}]")
    print(json.dumps({"mean": means}))


if __name__ == "__main__":
    main()
