"""Second stage: let attention cross in the upper layers and train them (LoRA), the biases and the head.

    python -m afterpass.rerank.training.joint_stage --features DIR --start adapter.safetensors --out FILE

Below layer `JOIN` nothing crosses and nothing is trained, so those layers' states come from the first stage's
files: a step costs a third of a whole pass, and joining late loses little (MacAvaney et al. 2020, PreTTR).
The loss is listwise cross-entropy, a pointwise part, and a divergence from the first stage's scores, which
stand in for the bi-encoder as teacher. A checkpoint is written every `--minutes`; the same command carries on
from it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...core.paths import cache_folder
from ..embedded import prepare
from ..embedded.model import LAYERS, SCALE, SHIFT, TwoSidedModel, load, pool
from ..embedded.packing import QUERY, TEXT
from .adapter import write_adapter
from .encode import JOIN, Sides, assemble, by_length, scores
from .head_stage import FeatureSet, list_loss, mean_ndcg, score

TRAINED = ("qkv", "out", "up", "down")


class LowRank(nn.Module):
    """A frozen linear layer plus a low-rank update, zero at the start."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, value: Tensor) -> Tensor:
        """`value` (..., in) -> (..., out)."""
        return self.base(value) + F.linear(F.linear(value, self.lora_a), self.lora_b)


@dataclass(slots=True)
class Part:
    """A set with the lower layers' states and the first stage's scores."""

    data: FeatureSet
    queries: Sides
    texts: Sides
    teacher: Tensor
    starts: list[int]

    @classmethod
    def read(cls, path: Path, model: TwoSidedModel) -> Part:
        """Load what `features` wrote."""
        sides = {}
        for name in ("query", "text"):
            found = np.load(path.parent / "states" / f"{path.stem}.{name}.npz")
            sides[name] = Sides(found["ids"], found["lower"], found["starts"])
        data = FeatureSet.read(path)
        assert model.head is not None
        starts = np.cumsum([0, *data.sizes[:-1]]).tolist()
        return cls(data, sides["query"], sides["text"], score(model.head, data), starts)


def prepare_model(model: TwoSidedModel, rank: int, bias: float) -> list[dict[str, object]]:
    """Put low-rank updates into the upper layers, open the biases there; returns the optimiser's groups."""
    model.requires_grad_(False)
    updates: list[nn.Parameter] = []
    for index in range(JOIN, LAYERS):
        layer = model.layers[index]
        for name in TRAINED:
            wrapped = LowRank(getattr(layer, name), rank)
            setattr(layer, name, wrapped)
            updates += [wrapped.lora_a, wrapped.lora_b]
    with torch.no_grad():
        model.cross_bias[JOIN:] = bias
    model.cross_bias.requires_grad_(True)
    model.cross_bias.register_hook(lambda g: torch.cat([torch.zeros_like(g[:JOIN]), g[JOIN:]]))
    assert model.head is not None
    head = [p.requires_grad_(True) for n, p in model.head.named_parameters() if not n.startswith("pair")]
    return [
        {"params": updates, "lr": 1.0},
        {"params": [model.cross_bias], "lr": 20.0, "weight_decay": 0.0},
        {"params": head, "lr": 1.0},
    ]


def forward(
    model: TwoSidedModel, parts: list[Part], chosen: list[tuple[int, int]], batch_tokens: int
) -> Tensor:
    """Logits of pairs (part, row of its pairs), with gradients, in micro-batches of similar length."""
    assert model.head is not None
    lengths = []
    for part, row in chosen:
        query, text = parts[part].data.pairs[row].tolist()
        lengths.append(parts[part].queries.length(query) + parts[part].texts.length(text))
    found: list[Tensor] = [torch.empty(0)] * len(chosen)
    for rows in by_length(np.array(lengths, np.int64), batch_tokens):
        pieces = [
            assemble(parts[p].queries, parts[p].texts, [tuple(parts[p].data.pairs[r].tolist())])
            for p, r in (chosen[row] for row in rows)
        ]
        width = max(ids.shape[1] for ids, _, _ in pieces)
        input_ids = torch.cat([F.pad(ids, (0, width - ids.shape[1])) for ids, _, _ in pieces])
        side_ids = torch.cat([F.pad(sides, (0, width - sides.shape[1])) for _, sides, _ in pieces])
        hidden = torch.cat([F.pad(states, (0, 0, 0, width - states.shape[1])) for _, _, states in pieces])
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no gradient for the mask
            hidden = model.attend(hidden, side_ids, JOIN)
        query_vectors, text_vectors = (pool(hidden, side_ids == side) for side in (QUERY, TEXT))
        logits = SCALE * (query_vectors * text_vectors).sum(1) + SHIFT
        logits = logits + model.head(input_ids, side_ids, hidden, query_vectors, text_vectors)
        for row, logit in zip(rows, logits, strict=True):
            found[row] = logit
    return torch.stack(found)


def draw(part: Part, index: int, width: int, rng: np.random.Generator) -> list[int]:
    """A positive and `width - 1` negatives of a list; the harder one is to the teacher, the likelier."""
    rows = np.arange(part.starts[index], part.starts[index] + part.data.sizes[index])
    gains = part.data.gains[rows].numpy()
    positive = rng.choice(rows[gains > 0])
    negatives = rows[gains <= 0]
    hard = part.teacher[negatives].numpy()
    weight = np.exp((hard - hard.max()) / 2)
    count = min(width - 1, len(negatives))
    chosen = rng.choice(negatives, count, replace=False, p=(weight + 1e-3) / (weight + 1e-3).sum())
    return [int(positive), *(int(row) for row in chosen)]


def evaluate(model: TwoSidedModel, stop: list[Part], lists: int) -> dict[str, float]:
    """nDCG@10 of the first `lists` lists of each stopping half."""
    found = {}
    for part in stop:
        count = min(lists, len(part.data.sizes))
        end = sum(part.data.sizes[:count])
        pairs = [(int(q), int(t)) for q, t in part.data.pairs[:end]]
        logits, _, _ = scores(model, part.queries, part.texts, pairs, join=JOIN)
        cut = replace(part.data, sizes=part.data.sizes[:count], ideal=part.data.ideal[:count])
        found[part.data.name] = mean_ndcg(logits, cut)
    return found


def updates_of(model: TwoSidedModel) -> dict[str, Tensor]:
    """The low-rank updates under the adapter file's names."""
    return {
        name: tensor.detach()
        for name, tensor in model.named_parameters()
        if name.endswith((".lora_a", ".lora_b"))
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--start", type=Path, required=True, help="the first stage's adapter")
    parser.add_argument(
        "--out", type=Path, required=True, help="the best adapter; FILE.state is the checkpoint"
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--minutes", type=float, default=12.0, help="between evaluations")
    parser.add_argument("--planned-steps", type=int, default=600, help="over which the rate falls")
    parser.add_argument("--lists", type=int, default=12, help="lists of one step")
    parser.add_argument("--width", type=int, default=4, help="pairs of one list")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--bias", type=float, default=-4.0)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--pointwise", type=float, default=0.3)
    parser.add_argument("--distil", type=float, default=0.5)
    parser.add_argument("--stop-lists", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(arguments.seed)
    model = load(prepare(cache_folder()), arguments.start)
    train, stop = (
        [Part.read(path, model) for path in sorted(arguments.features.glob(f"{kind}-*.npz"))]
        for kind in ("train", "stop")
    )
    best = float(np.mean(list(evaluate(model, stop, arguments.stop_lists).values())))
    print(f"start {best:.4f}", flush=True)
    groups = prepare_model(model, arguments.rank, arguments.bias)
    for group in groups:
        group["lr"] *= arguments.rate
    optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
    horizon = arguments.planned_steps

    def fall(step: int) -> float:
        return min(1.0, (step + 1) / 30) * max(0.05, 1 - step / horizon)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, fall)
    state = arguments.out.with_name(arguments.out.name + ".state")
    step = 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"], strict=False)
        optimiser.load_state_dict(saved["optimiser"])
        schedule.load_state_dict(saved["schedule"])
        step, best = saved["step"], saved["best"]
    rng = np.random.default_rng([arguments.seed, step])
    sizes = np.array([len(part.data.sizes) for part in train], np.float64) ** 0.5
    began = looked = time.time()
    running: list[float] = []
    while time.time() - began < arguments.hours * 3600:
        chosen: list[tuple[int, int]] = []
        widths = []
        for _ in range(arguments.lists):
            index = int(rng.choice(len(train), p=sizes / sizes.sum()))
            rows = draw(train[index], int(rng.integers(len(train[index].data.sizes))), arguments.width, rng)
            chosen += [(index, row) for row in rows]
            widths.append(len(rows))
        flat = forward(model, train, chosen, 3000)
        mask = torch.arange(max(widths))[None] < torch.tensor(widths)[:, None]
        logits = torch.zeros(mask.shape).masked_scatter(mask, flat)
        teacher = torch.stack([train[p].teacher[r] for p, r in chosen])
        teacher = torch.zeros(mask.shape).masked_scatter(mask, teacher)
        positive = torch.zeros(mask.shape, dtype=torch.bool)
        positive[:, 0] = True
        divergence = F.kl_div(
            logits.masked_fill(~mask, -1e4).log_softmax(1),
            teacher.masked_fill(~mask, -1e4).log_softmax(1),
            reduction="none",
            log_target=True,
        ).sum(1)
        loss = (list_loss(logits, positive, mask, arguments.pointwise) + arguments.distil * divergence).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for g in optimiser.param_groups for p in g["params"]], 1.0)
        optimiser.step()
        schedule.step()
        step += 1
        running.append(loss.item())
        if step % 10 == 0:
            print(f"{step} {time.time() - began:.0f}s {np.mean(running[-20:]):.4f}", flush=True)
        last = time.time() - began >= arguments.hours * 3600
        if last or time.time() - looked > arguments.minutes * 60:
            found = evaluate(model, stop, arguments.stop_lists)
            mean = float(np.mean(list(found.values())))
            rounded = {name: round(value, 3) for name, value in found.items()}
            print(
                f"eval {step} {mean:.4f} {rounded} bias {model.cross_bias[JOIN:].mean(1).tolist()}",
                flush=True,
            )
            if mean > best:
                best = mean
                assert model.head is not None
                write_adapter(arguments.out, model.head, cross_bias=model.cross_bias, lora=updates_of(model))
            trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
            torch.save(
                {
                    "model": trained,
                    "optimiser": optimiser.state_dict(),
                    "schedule": schedule.state_dict(),
                    "step": step,
                    "best": best,
                },
                state,
            )
            looked = time.time()


if __name__ == "__main__":
    main()
