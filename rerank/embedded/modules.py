"""The model as sentence-transformers modules, for `CrossEncoder(modules=[...])`.

Loaded through modules.json, classes of ours would ask for `trust_remote_code`: `load` builds them by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules.input_module import InputModule
from sentence_transformers.base.modules.module import Module
from tokenizers import Tokenizer
from torch import Tensor, nn

from .head import Head
from .model import TwoSidedModel
from .model import load as load_model
from .packing import SPECIALS, pack

WEIGHTS = "two_sided.safetensors"


class PairInput(InputModule):
    """From (query, text) pairs to `input_ids` and `side_ids`."""

    config_keys: ClassVar[list[str]] = ["query_length", "max_length"]  # type: ignore[misc]
    save_in_root = False

    def __init__(self, tokenizer: Tokenizer, *, query_length: int = 64, max_length: int = 256) -> None:
        super().__init__()
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.query_length = query_length
        self.max_length = max_length

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """`inputs` are (query, text): a query is cut at `query_length`, a text at what is left."""
        queries = self._ids([(prompt or "") + pair[0] for pair in inputs], self.query_length - 2)
        texts = self._ids([pair[1] for pair in inputs], self.max_length - SPECIALS)
        room = self.max_length - SPECIALS
        cut = [text[: room - len(query)] for query, text in zip(queries, texts, strict=True)]
        input_ids, side_ids = pack(queries, cut)
        return {"input_ids": torch.from_numpy(input_ids), "side_ids": torch.from_numpy(side_ids)}

    def _ids(self, texts: list[str], most: int) -> list[list[int]]:
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids[:most] for encoding in found]

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Nothing to do: the ids go on as they are."""
        return features

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:  # noqa: ARG002
        """Write the tokenizer and the two lengths."""
        self.save_config(output_path)
        self.tokenizer.save(str(Path(output_path) / "tokenizer.json"))

    @classmethod
    def load(cls, model_name_or_path: str, **_: Any) -> Self:  # type: ignore[override]
        """Read what `save` wrote, from a local folder."""
        tokenizer = Tokenizer.from_file(str(Path(model_name_or_path) / "tokenizer.json"))
        return cls(tokenizer, **cls.load_config(model_name_or_path))


class TwoSided(Module):
    """`TwoSidedModel` between dictionaries: puts `scores`, raw logits of shape (pairs, 1)."""

    config_keys: ClassVar[list[str]] = []  # type: ignore[misc]

    def __init__(self, model: TwoSidedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Adds `scores` to the features."""
        logits: Tensor = self.model(features["input_ids"], features["side_ids"])
        return features | {"scores": logits[:, None]}

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:  # noqa: ARG002
        """Write all weights, adapter merged, as safetensors."""
        save_file(
            {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()},
            str(Path(output_path) / WEIGHTS),
        )

    @classmethod
    def load(cls, model_name_or_path: str, **_: Any) -> Self:  # type: ignore[override]
        """Read what `save` wrote, from a local folder."""
        state = load_file(str(Path(model_name_or_path) / WEIGHTS))
        model = TwoSidedModel(Head.from_tensors(state) if "head.idf" in state else None)
        model.load_state_dict(state)
        return cls(model.eval().requires_grad_(False))


def cross_encoder(
    folder: Path, adapter: Path | None, *, query_length: int = 64, max_length: int = 256
) -> CrossEncoder:
    """Base weights from `folder`, the adapter's on top, as a CrossEncoder that gives raw logits."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    modules: list[nn.Module] = [
        PairInput(tokenizer, query_length=query_length, max_length=max_length),
        TwoSided(load_model(folder, adapter)),
    ]
    return CrossEncoder(modules=modules, activation_fn=nn.Identity(), device="cpu")


def load(folder: Path) -> CrossEncoder:
    """Read what `CrossEncoder.save_pretrained` wrote of such a model, without `trust_remote_code`."""
    modules: list[nn.Module] = [
        PairInput.load(str(folder / "0_PairInput")),
        TwoSided.load(str(folder / "1_TwoSided")),
    ]
    return CrossEncoder(modules=modules, activation_fn=nn.Identity(), device="cpu")
