"""Counting and cutting by tokens, as the model's own tokenizer does it, without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..core.errors import ModelNotFound

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TURN = 8
"""Tokens that a chat template puts around one turn where it cannot be rendered; more than most need."""

# Where no tokenizer is known: a word's pieces of up to four letters, each ideograph, each other sign.
# On English prose this counts about a fifth more tokens than byte-pair encodings do.
_GUESS = re.compile(r"[^\W\d_぀-ヿ㐀-鿿가-힯]{1,4}|\d|[぀-ヿ㐀-鿿가-힯]|[^\w\s]|_|\n+")

ROLE_TOKENS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
"""What common models use for turns; neutralised whatever the tokenizer at hand says."""


class TokenCounter(Protocol):
    """Counts tokens; made by `token_counter`.

    Attributes:
        specials: the strings that the tokenizer turns into control tokens.
    """

    specials: Sequence[str]

    def __call__(self, text: str) -> int:
        """How many tokens a text has, without any that a model puts around it."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Each token's (start, end) in characters, in order."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> int:
        """How many tokens a conversation has, the template's own included."""
        ...

    def controls(self, text: str) -> bool:
        """Whether a text holds anything that becomes a control token."""
        ...


class GuessCounter:
    """Counts without a tokenizer, on the high side."""

    specials: Sequence[str] = ROLE_TOKENS

    def __call__(self, text: str) -> int:
        return sum(1 for _ in _GUESS.finditer(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _GUESS.finditer(text)]

    def chat(self, messages: Sequence[Mapping[str, str]]) -> int:
        return sum(self(message["content"]) + _TURN for message in messages)

    def controls(self, text: str) -> bool:
        return any(token in text for token in self.specials)


class TokenizerCounter:
    """Counts with a model's own `tokenizer.json` and chat template.

    Args:
        tokenizer: as `tokenizers` loads it.
        template: the chat template (Jinja2), or None to estimate what it adds.
    """

    def __init__(self, tokenizer: Tokenizer, template: str | None = None) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        # Some tokenizers add runs of spaces or single signs as tokens of their own: those are plain text.
        own = {number: token.content for number, token in added.items() if len(token.content.strip()) > 1}
        self._control_ids = frozenset(own)
        self.specials: Sequence[str] = tuple(
            sorted({*own.values(), *ROLE_TOKENS}, key=lambda word: (-len(word), word))
        )
        self._template = _compile(template) if template else None

    def __call__(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def spans(self, text: str) -> list[tuple[int, int]]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return list(encoding.offsets)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> int:
        if self._template is not None:
            try:
                return self(self._template.render(messages=list(messages), add_generation_prompt=True))
            except Exception:  # a template may want what only its own library gives: estimate instead
                self._template = None
        return sum(self(message["content"]) + _TURN for message in messages)

    def controls(self, text: str) -> bool:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return not self._control_ids.isdisjoint(ids)


def from_folder(folder: Path) -> TokenizerCounter:
    """The counter of a model folder.

    Raises:
        ModelNotFound: the folder has no `tokenizer.json`.
    """
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelNotFound(
            f"{folder} has no tokenizer.json, so prompts cannot be counted",
            hint="save the model's fast tokenizer beside its weights (`tokenizer.save_pretrained(folder)`)",
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise ModelNotFound(
            f"{file} cannot be read: {error}", hint="bring the model's files again"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return TokenizerCounter(tokenizer, _template_of(folder))


def _template_of(folder: Path) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text("utf-8")
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        template = json.loads(settings.read_text("utf-8")).get("chat_template")
        return template if isinstance(template, str) else None
    return None


def _compile(template: str) -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    environment.globals.update(bos_token="", eos_token="", tools=None)
    try:
        return environment.from_string(template)
    except TemplateError:
        return None
