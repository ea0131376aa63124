"""The two-sided cross-encoder as a plain torch module.

A pair is one sequence, `[CLS] query [SEP] [CLS] text [SEP]`, in one pass of a 6-layer BERT. Position ids
restart on each side. Attention is free inside a side and carries an additive bias, one number for each layer
and head, across sides. Each side is mean-pooled, and

    logit = 12 cos(query, text) - 5 + head(...)

At a bias of -1e4 no attention crosses: each side is encoded as if alone, and the cosine is the base
bi-encoder's. So the model starts as a fair reranker, and training adds what crosses and the head. Where every
bias is that low, two separate encodings give the same numbers and a query's could be kept for many texts.

The architecture is BERT's (Devlin et al. 2018) with the weights of all-MiniLM-L6-v2 (MiniLM: Wang et al.
2020; Sentence-BERT: Reimers and Gurevych 2019). It is written out so that it needs no transformers, exports
as it stands and has its adapter (LoRA, Hu et al. 2021) merged into the weights when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .head import Head
from .packing import QUERY, TEXT

LAYERS, HEADS, WIDTH, INNER = 6, 12, 384, 1536
VOCABULARY, POSITIONS = 30522, 512
CLOSED = -1e4
"""A cross bias at which attention does not cross: exp(-1e4) is 0 in every float."""

SCALE, SHIFT = 12.0, -5.0


class Layer(nn.Module):
    """One transformer layer, normalised after each of its two blocks as BERT is."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.up = nn.Linear(WIDTH, INNER)
        self.down = nn.Linear(INNER, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """`hidden` (pairs, tokens, 384); `mask` (pairs, 12, tokens, tokens) is added before the softmax."""
        pairs, tokens, _ = hidden.shape
        qkv = self.qkv(hidden).view(pairs, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = self.attention_norm(hidden + self.out(mixed.transpose(1, 2).reshape(pairs, tokens, WIDTH)))
        return self.norm(hidden + self.down(F.gelu(self.up(hidden))))


class TwoSidedModel(nn.Module):
    """The whole model. `forward` is all that a scorer or an export needs.

    Attributes:
        cross_bias: (6, 12), what attention from one side to the other carries in each layer and head.
        head: None at the start, where the logit is the scaled cosine alone.
    """

    def __init__(self, head: Head | None = None) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.embedding_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.cross_bias = nn.Parameter(torch.full((LAYERS, HEADS), CLOSED))
        self.head = head

    def encode(self, input_ids: Tensor, side_ids: Tensor) -> Tensor:
        """The last layer's states, (pairs, tokens, 384)."""
        return self.attend(self.embed(input_ids, side_ids), side_ids)

    def embed(self, input_ids: Tensor, side_ids: Tensor) -> Tensor:
        """What the first layer is given; positions count from 0 on each side."""
        before = (side_ids == QUERY).sum(1, keepdim=True)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)[None, :] - before * (
            side_ids == TEXT
        )
        return self.embedding_norm(self.words(input_ids) + self.positions(places))

    def attend(self, hidden: Tensor, side_ids: Tensor, first: int = 0, last: int = LAYERS) -> Tensor:
        """Run layers `first` to `last` (not included)."""
        crosses = (side_ids[:, None, :, None] != side_ids[:, None, None, :]).to(hidden.dtype)
        closed = (side_ids == 0)[:, None, None, :].to(hidden.dtype) * CLOSED
        for index, layer in enumerate(self.layers):
            if first <= index < last:
                bias = self.cross_bias[index].to(hidden.dtype)
                hidden = layer(hidden, crosses * bias[None, :, None, None] + closed)
        return hidden

    def forward(self, input_ids: Tensor, side_ids: Tensor) -> Tensor:
        """Score pairs.

        Args:
            input_ids: (pairs, tokens) int64, laid out by `packing.pack`.
            side_ids: (pairs, tokens) int64: 1 query, 2 text, 0 padding.

        Returns:
            Raw logits, (pairs,), float32.
        """
        hidden = self.encode(input_ids, side_ids)
        query, text = (pool(hidden, side_ids == side) for side in (QUERY, TEXT))
        cosine = (query * text).sum(1)
        logits = SCALE * cosine + SHIFT
        if self.head is not None:
            logits = logits + self.head(input_ids, side_ids, hidden.float(), query, text)
        return logits


def pool(hidden: Tensor, side: Tensor) -> Tensor:
    """Unit mean vectors of one side, (pairs, 384), in float32."""
    weights = side.to(torch.float32)
    mean = torch.matmul(weights[:, None, :], hidden.float())[:, 0] / weights.sum(1, keepdim=True).clamp(min=1)
    return F.normalize(mean, dim=1)


def load(folder: Path, adapter: Path | None) -> TwoSidedModel:
    """Base weights from a prepared folder, with an adapter merged in where there is one.

    Args:
        folder: as `prepare` returns it.
        adapter: a safetensors file as `rerank.training` writes it; None or absent leaves the start.
    """
    from safetensors.torch import load_file

    trained = load_file(adapter) if adapter is not None and adapter.exists() else {}
    model = TwoSidedModel(Head.from_tensors(trained) if "head.idf" in trained else None)
    state = base_state(load_file(folder / "model.safetensors"))
    state["cross_bias"] = trained.get("cross_bias", model.cross_bias.detach()).float()
    merge_(state, trained)
    if model.head is not None:
        state |= {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)


def merge_(state: dict[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    """Add each low-rank update `NAME.lora_b @ NAME.lora_a` to the weight `NAME.weight`, in place."""
    for name, down in trained.items():
        if name.endswith(".lora_a"):
            target = name.removesuffix(".lora_a")
            update = trained[f"{target}.lora_b"].float() @ down.float()
            state[f"{target}.weight"] = state[f"{target}.weight"] + update


def base_state(bert: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The base model's tensors under this module's names; q, k and v stacked, token type 0 folded in."""
    state = {
        "words.weight": bert["embeddings.word_embeddings.weight"],
        # Both sides have token type 0, as the bi-encoder's single texts had.
        "positions.weight": bert["embeddings.position_embeddings.weight"]
        + bert["embeddings.token_type_embeddings.weight"][0],
        "embedding_norm.weight": bert["embeddings.LayerNorm.weight"],
        "embedding_norm.bias": bert["embeddings.LayerNorm.bias"],
    }
    for index in range(LAYERS):
        old = f"encoder.layer.{index}."
        for part in ("weight", "bias"):
            pieces = [bert[f"{old}attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            state[f"layers.{index}.qkv.{part}"] = torch.cat(pieces)
            for ours, theirs in _RENAMED.items():
                state[f"layers.{index}.{ours}.{part}"] = bert[f"{old}{theirs}.{part}"]
    return {name: tensor.float() for name, tensor in state.items()}


_RENAMED = {
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm": "output.LayerNorm",
}
