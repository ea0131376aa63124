"""From token ids of a query and a chunk to what a model takes: one seam for every kind of model.

A query and a text are each tokenised once, without special tokens; chunks are slices of the text's ids. An
encoding says what stands around them and lays rows out as padded arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

    from .kinds import Spec

Ids = NDArray[np.int32]
Arrays = Mapping[str, NDArray[np.int64]]


class Layout(Protocol):
    """What stands around a pair: all that cutting texts needs to know."""

    @property
    def specials(self) -> int:
        """How many tokens a row has beside the query's and the text's."""
        ...

    @property
    def lead(self) -> str:
        """What stands before query and text when they are tokenised (a chat prompt's " ")."""
        ...


class Encoding(Layout, Protocol):
    """How a pair is laid out."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the arrays, in the order in which an exported model takes them."""
        ...

    def collate(self, queries: Sequence[Ids], texts: Sequence[Ids], width: int) -> Arrays:
        """Rows as arrays of shape (rows, width), int64."""
        ...


@dataclass(frozen=True)
class TemplateEncoding:
    """`prefix query middle text suffix`, as a tokenizer's own template or a chat prompt has it.

    Attributes:
        types: token type ids of prefix, query, middle, text, suffix; None where the model takes none.
        left: pad on the left, so that the last token of every row stands in the last column.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    pad: int = 0
    types: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]] | None = None
    left: bool = False
    lead: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """As transformers names them."""
        return ("input_ids", "attention_mask") + (("token_type_ids",) if self.types else ())

    @property
    def specials(self) -> int:
        """Tokens beside the query's and the text's."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def collate(self, queries: Sequence[Ids], texts: Sequence[Ids], width: int) -> Arrays:
        """Rows as arrays of shape (rows, width)."""
        ids = np.full((len(queries), width), self.pad, np.int64)
        mask = np.zeros_like(ids)
        types = np.zeros_like(ids)
        for row, (query, text) in enumerate(zip(queries, texts, strict=True)):
            tokens = np.concatenate([self.prefix, query, self.middle, text, self.suffix])
            at = slice(width - len(tokens), width) if self.left else slice(len(tokens))
            ids[row, at] = tokens
            mask[row, at] = 1
            if self.types:
                before, of_query, between, of_text, after = self.types
                types[row, at] = np.concatenate(
                    [before, np.full(len(query), of_query), between, np.full(len(text), of_text), after]
                )
        arrays = {"input_ids": ids, "attention_mask": mask}
        return arrays | {"token_type_ids": types} if self.types else arrays


@dataclass(frozen=True)
class TwoSidedEncoding:
    """The embedded model's `[CLS] query [SEP] [CLS] text [SEP]`."""

    inputs: tuple[str, ...] = ("input_ids", "side_ids")
    specials: int = 4
    lead: str = ""

    def collate(self, queries: Sequence[Ids], texts: Sequence[Ids], width: int) -> Arrays:
        """Rows as arrays of shape (rows, width)."""
        from .embedded.packing import CLS, PAD, QUERY, SEP, TEXT

        ids = np.full((len(queries), width), PAD, np.int64)
        sides = np.zeros_like(ids)
        for row, (query, text) in enumerate(zip(queries, texts, strict=True)):
            middle = len(query) + 2
            end = middle + len(text) + 2
            ids[row, 0] = ids[row, middle] = CLS
            ids[row, 1 : middle - 1] = query
            ids[row, middle - 1] = ids[row, end - 1] = SEP
            ids[row, middle + 1 : end - 1] = text
            sides[row, :middle] = QUERY
            sides[row, middle:end] = TEXT
        return {"input_ids": ids, "side_ids": sides}


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that neither cuts nor pads, and reads "[SEP]" or "<|im_end|>" in a text as mere letters."""
    from tokenizers import Tokenizer as Class

    copy = Class.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def embedded(folder: Path) -> tuple[Tokenizer, Encoding]:
    """The embedded model's tokenizer and layout."""
    from tokenizers import Tokenizer as Class

    return plain(Class.from_file(str(folder / "tokenizer.json"))), TwoSidedEncoding()


def classifier(tokenizer: Any) -> tuple[Tokenizer, Encoding]:
    """The layout that a transformers tokenizer gives a pair of texts, told from a pair of two short ones.

    Raises:
        ValueError: the tokenizer is not one of the fast ones, or drops a side.
    """
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise ValueError("the model has no fast tokenizer, so offsets into its texts cannot be known")
    fast = plain(fast)
    probe = fast.encode("a", "b", add_special_tokens=True)
    sides = [
        side if not special else None
        for side, special in zip(probe.sequence_ids, probe.special_tokens_mask, strict=True)
    ]
    if 0 not in sides or 1 not in sides:
        raise ValueError("the tokenizer lays out no pair of texts")
    first, second = sides.index(0), sides.index(1)
    first_end, second_end = first + sides.count(0), second + sides.count(1)
    ids, types = tuple(probe.ids), tuple(probe.type_ids)
    return fast, TemplateEncoding(
        prefix=ids[:first],
        middle=ids[first_end:second],
        suffix=ids[second_end:],
        pad=int(tokenizer.pad_token_id or 0),
        types=(types[:first], types[first], types[first_end:second], types[second], types[second_end:])
        if "token_type_ids" in tokenizer.model_input_names
        else None,
    )


_QUERY, _TEXT = "\u241eQUERY\u241e", "\u241eTEXT\u241e"
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    f"<|im_start|>user\n<Instruct>: {_INSTRUCTION}\n<Query>: {_QUERY}\n<Document>: {_TEXT}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""Qwen3-Reranker's prompt, as its model card gives it (Zhang et al. 2025)."""


def chat(tokenizer: Any, spec: Spec) -> tuple[Tokenizer, Encoding]:
    """The prompt of a chat-style reranker around the two texts.

    The model's own template is used where it knows the roles "query" and "document"; else Qwen3-Reranker's.

    Raises:
        ValueError: there is no fast tokenizer, or the template loses a side.
    """
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise ValueError("the model has no fast tokenizer, so offsets into its texts cannot be known")
    prompt = _own_template(tokenizer) or _QWEN3
    before, _, rest = prompt.partition(_QUERY)
    between, found, after = rest.partition(_TEXT)
    if not found:
        raise ValueError(f"the chat template of {spec.name} does not hold a query and then a document")
    # A space before the texts belongs to their first token in byte-level BPE.
    lead = " " if before.endswith(" ") and between.endswith(" ") else ""
    if lead:
        before, between = before[:-1], between[:-1]
    parts = [
        tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (before, between, after)
    ]
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return plain(fast), TemplateEncoding(
        prefix=parts[0], middle=parts[1], suffix=parts[2], pad=int(pad or 0), left=True, lead=lead
    )


def _own_template(tokenizer: Any) -> str | None:
    template = getattr(tokenizer, "chat_template", None)
    if not isinstance(template, str) or "document" not in template or "query" not in template:
        return None
    messages = [{"role": "query", "content": _QUERY}, {"role": "document", "content": _TEXT}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return str(prompt) if _QUERY in prompt and _TEXT in prompt else None
