"""Each kind of model as one torch module: the encoding's arrays in, one raw logit a row out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import NotAReranker
from .encoding import Encoding, chat, classifier, embedded
from .kinds import Kind, Spec


class Classifier(nn.Module):
    """A sequence classifier: the logit of the labels that speak for relevance against those that do not.

    With one label, its own logit. With more, log-odds: logsumexp(positive) - logsumexp(negative), which for
    two labels is their difference.
    """

    def __init__(self, model: nn.Module, positive: tuple[int, ...], negative: tuple[int, ...]) -> None:
        super().__init__()
        self.model = model
        self.positive = list(positive)
        self.negative = list(negative)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """(rows, width) each -> (rows,), in the model's own type."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output: Any = self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        logits: Tensor = output.logits.float()
        score = (
            torch.logsumexp(logits[:, self.positive], 1)
            if len(self.positive) > 1
            else logits[:, self.positive[0]]
        )
        if not self.negative:
            return score
        if len(self.negative) == 1:
            return score - logits[:, self.negative[0]]
        return score - torch.logsumexp(logits[:, self.negative], 1)


class Chat(nn.Module):
    """A causal language model's log-odds of "yes" against "no" as the next token; padded on the left."""

    def __init__(self, model: nn.Module, yes: int, no: int) -> None:
        super().__init__()
        self.model = model
        self.yes = yes
        self.no = no

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(rows, width) each -> (rows,)."""
        places = (attention_mask.cumsum(1) - 1).clamp(min=0)
        output: Any = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=places,
            logits_to_keep=1,
            use_cache=False,
        )
        logits: Tensor = output.logits[:, -1].float()
        return logits[:, self.yes] - logits[:, self.no]


def build(spec: Spec, cache: Path) -> tuple[nn.Module, Any, Encoding]:
    """A model in float32 on the processor, its tokenizer and its encoding.

    Raises:
        NotAReranker: its tokenizer lays out no pair, or it has no token for "yes" or "no".
        ModelNotFound: the embedded model's package could not be brought.
    """
    if spec.kind is Kind.EMBEDDED:
        from . import embedded as shipped

        folder = shipped.prepare(cache)
        tokenizer, encoding = embedded(folder)
        return shipped.load_model(cache), tokenizer, encoding
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    folder_name = str(spec.folder)
    own: Any = AutoTokenizer.from_pretrained(folder_name, **options)
    options |= {"dtype": torch.float32, "use_safetensors": _safe(spec)}
    try:
        if spec.kind is Kind.CHAT:
            tokenizer, encoding = chat(own, spec)
            yes, no = _answers(own, spec)
            model: nn.Module = AutoModelForCausalLM.from_pretrained(folder_name, **options)
            return Chat(model, yes, no).eval(), tokenizer, encoding
        tokenizer, encoding = classifier(own)
    except ValueError as error:
        raise NotAReranker(f"{spec.name} cannot be used: {error}") from error
    model = AutoModelForSequenceClassification.from_pretrained(folder_name, **options)
    return Classifier(model, spec.positive, spec.negative).eval(), tokenizer, encoding


def _safe(spec: Spec) -> bool | None:
    """Safetensors where there are any; a pickle only where there is nothing else (torch reads it as weights
    only)."""
    assert spec.folder is not None
    return True if any(spec.folder.glob("*.safetensors")) else None


def _answers(tokenizer: Any, spec: Spec) -> tuple[int, int]:
    if spec.yes is not None and spec.no is not None:
        return spec.yes, spec.no
    ids = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("yes", "no")]
    if any(len(found) != 1 for found in ids):
        raise NotAReranker(f'{spec.name}\'s tokenizer has no single token for "yes" and "no"')
    return int(ids[0][0]), int(ids[1][0])
