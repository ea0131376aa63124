"""First stage: train the head alone, on features of the frozen encoder. Minutes.

    python -m afterpass.rerank.training.head_stage --features DIR... --out adapter.safetensors --seeds 6

Several heads from different first weights are trained and merged into one wide head whose addition is the
mean of theirs: less of it is chance, and it costs nothing when scoring.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..embedded.head import FEATURES, Head
from ..embedded.model import SCALE, SHIFT
from .adapter import write_adapter
from .metrics import fusion, ndcg


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """One set's `.npz`, as tensors: rows are pairs, `sizes` says how many belong to each list."""

    name: str
    features: Tensor
    pairs: Tensor
    gains: Tensor
    bm25: Tensor
    sizes: list[int]
    ideal: np.ndarray
    queries: Tensor
    texts: Tensor

    @classmethod
    def read(cls, path: Path) -> FeatureSet:
        """Load what `features` wrote."""
        found = np.load(path)
        tensor = {name: torch.from_numpy(found[name]) for name in found.files}
        return cls(
            name=path.stem.split("-", 1)[1],
            features=tensor["features"],
            pairs=tensor["pairs"].long(),
            gains=tensor["gains"],
            bm25=tensor["bm25"],
            sizes=found["sizes"].tolist(),
            ideal=found["ideal"],
            queries=tensor["query_means"],
            texts=tensor["text_means"],
        )

    def vectors(self, rows: slice | Tensor) -> tuple[Tensor, Tensor]:
        """The pooled sides of some pairs."""
        pairs = self.pairs[rows]
        return self.queries[pairs[:, 0]], self.texts[pairs[:, 1]]


def score(head: Head, dataset: FeatureSet) -> Tensor:
    """Logits of all pairs of a set."""
    with torch.inference_mode():
        return (
            SCALE * dataset.features[:, 0]
            + SHIFT
            + head.combine(dataset.features, *dataset.vectors(slice(None)))
        )


def mean_ndcg(scores: Tensor | np.ndarray, dataset: FeatureSet) -> float:
    """Mean nDCG@10 of a set's lists."""
    values, start = [], 0
    for size, ideal in zip(dataset.sizes, dataset.ideal, strict=True):
        part = slice(start, start + size)
        values.append(ndcg(np.asarray(scores[part]), dataset.gains[part].numpy(), ideal))
        start += size
    return float(np.mean(values))


def fused(dataset: FeatureSet) -> np.ndarray:
    """Per-group fusion of cosine and BM25."""
    found, start = [], 0
    for size in dataset.sizes:
        part = slice(start, start + size)
        found.append(fusion(dataset.features[part, 0].numpy(), dataset.bm25[part].numpy()))
        start += size
    return np.concatenate(found)


def list_loss(logits: Tensor, positive: Tensor, mask: Tensor, pointwise: float) -> Tensor:
    """Per list: cross-entropy of the positives' total mass, plus `pointwise` times the mean binary one."""
    filled = logits.masked_fill(~mask, -1e4)
    mass = torch.logsumexp(filled.masked_fill(~positive, -1e4), 1)
    ranking = torch.logsumexp(filled, 1) - mass
    binary = F.binary_cross_entropy_with_logits(logits, positive.float(), reduction="none")
    return ranking + pointwise * (binary * mask).sum(1) / mask.sum(1)


def train(
    head: Head,
    sets: list[FeatureSet],
    stop: list[FeatureSet],
    *,
    epochs: int,
    rate: float,
    decay: float,
    pointwise: float,
    use_pair: bool,
    seed: int = 0,
    say: bool = True,
) -> tuple[float, dict[str, Tensor]]:
    """Train and return the best mean nDCG@10 over the stopping halves, with the head's state there."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    every = torch.cat([dataset.features for dataset in sets])
    head.center.copy_(every.mean(0))
    head.spread.copy_(every.std(0).clamp(min=1e-3))
    trained = [p for name, p in head.named_parameters() if use_pair or not name.startswith("pair")]
    optimiser = torch.optim.AdamW(trained, lr=rate, weight_decay=decay)
    lists = [
        (index, start, size)
        for index, dataset in enumerate(sets)
        for start, size in zip(np.cumsum([0, *dataset.sizes[:-1]]).tolist(), dataset.sizes, strict=True)
    ]
    weights = torch.tensor([len(dataset.sizes) ** -0.5 for dataset in sets])
    steps = epochs * (len(lists) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps + 1, pct_start=0.1)
    best, kept = -1.0, {}
    for epoch in range(epochs):
        shuffled = rng.permutation(len(lists))
        for first in range(0, len(lists) - 63, 64):
            chosen = [lists[i] for i in shuffled[first : first + 64]]
            longest = max(size for _, _, size in chosen)
            rows = [(s, torch.arange(start, start + size)) for s, start, size in chosen]
            features = torch.cat([sets[s].features[r] for s, r in rows])
            sides = [sets[s].vectors(r) for s, r in rows]
            query, text = (torch.cat([side[i] for side in sides]) for i in (0, 1))
            flat = SCALE * features[:, 0] + SHIFT + head.combine(features, query, text)
            mask = torch.arange(longest)[None] < torch.tensor([size for _, _, size in chosen])[:, None]
            logits = torch.zeros(mask.shape).masked_scatter(mask, flat)
            gains = torch.cat([sets[s].gains[r] for s, r in rows])
            positive = torch.zeros(mask.shape).masked_scatter(mask, gains) > 0
            weight = weights[[s for s, _, _ in chosen]]
            loss = (list_loss(logits, positive, mask, pointwise) * weight).sum() / weight.sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        found = {dataset.name: mean_ndcg(score(head, dataset), dataset) for dataset in stop}
        mean = float(np.mean(list(found.values())))
        if mean > best:
            best, kept = mean, {name: t.clone() for name, t in head.state_dict().items()}
        if say:
            print(
                epoch,
                f"{loss.item():.4f}",
                f"{mean:.4f}",
                {n: round(v, 3) for n, v in found.items()},
                flush=True,
            )
    return best, kept


def merged(heads: Sequence[Head]) -> Head:
    """One head that adds the mean of what `heads` add; they share tables, centers and spreads."""
    count = len(heads)
    made = Head(sum(h.inner.out_features for h in heads), sum(h.pair.out_features for h in heads))
    state = dict(heads[0].state_dict())
    for name in ("linear.weight", "linear.bias"):
        state[name] = torch.stack([head.state_dict()[name] for head in heads]).mean(0)
    for name in ("inner.weight", "inner.bias", "pair.weight", "pair.bias"):
        state[name] = torch.cat([head.state_dict()[name] for head in heads])
    for name in ("outer.weight", "pair_out.weight"):
        state[name] = torch.cat([head.state_dict()[name] for head in heads], 1) / count
    made.load_state_dict(state)
    return made


def balance(head: Head, stop: Sequence[FeatureSet]) -> float:
    """Shift the head so that 0 lies between relevant and irrelevant; returns the shift.

    Training sees twenty irrelevant texts for each relevant one, which pushes all logits down, by how much
    depends on the recipe. The shift is the one at which, averaged over sets, the mean probability of relevant
    and the mean improbability of irrelevant pairs are equal. No order changes.
    """
    scored = [(score(head, dataset), dataset.gains > 0) for dataset in stop]
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        lacking = [
            1 - torch.sigmoid(s[good] + middle).mean() - torch.sigmoid(s[~good] + middle).mean()
            for s, good in scored
        ]
        low, high = (middle, high) if sum(lacking) > 0 else (low, middle)
    with torch.no_grad():
        head.linear.bias.add_(low)
    return low


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, nargs="+", required=True, help="the first has the tables")
    parser.add_argument("--stop", type=Path, help="where the stopping halves are, if not in the first")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=1e-2)
    parser.add_argument("--pointwise", type=float, default=0.3)
    parser.add_argument("--pair", action="store_true", help="train the part on the pooled pair too")
    parser.add_argument("--seeds", type=int, default=1, help="heads that are merged")
    arguments = parser.parse_args()
    sets = [FeatureSet.read(path) for one in arguments.features for path in sorted(one.glob("train-*.npz"))]
    stop_folder = arguments.stop or arguments.features[0]
    stop = [FeatureSet.read(path) for path in sorted(stop_folder.glob("stop-*.npz"))]
    for name, scores in (("bi", lambda d: d.features[:, 0]), ("bm25", lambda d: d.bm25), ("fusion", fused)):
        found = {d.name: round(mean_ndcg(scores(d), d), 3) for d in stop}
        print(name, f"{np.mean(list(found.values())):.4f}", found)
    tables = torch.load(arguments.features[0] / "tables.pt", weights_only=True)
    heads = []
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        head = Head(hidden=32, pair_rank=16 if arguments.pair else 1)
        first = {name: tensor for name, tensor in tables.items() if name in ("idf", "stem", "digits")}
        head.load_state_dict(head.state_dict() | first)
        best, state = train(
            head,
            sets,
            stop,
            epochs=arguments.epochs,
            rate=arguments.rate,
            decay=arguments.decay,
            pointwise=arguments.pointwise,
            use_pair=arguments.pair,
            seed=seed,
        )
        head.load_state_dict(state)
        print(f"seed {seed}: best {best:.4f}", flush=True)
        heads.append(head)
    head = merged(heads)
    found = {dataset.name: round(mean_ndcg(score(head, dataset), dataset), 3) for dataset in stop}
    print(f"merged {np.mean(list(found.values())):.4f}", found)
    print(f"shifted by {balance(head, stop):.3f}")
    print(dict(zip(FEATURES, head.linear.weight[0].tolist(), strict=True)))
    write_adapter(arguments.out, head)


if __name__ == "__main__":
    main()
