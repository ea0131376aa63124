"""A summarizer without a model: it picks sentences, and says so in its name.

The fake of this seam, and a legitimate choice where no language model may run: each point is the sentence of
a passage that shares most words with the question, cited to that passage.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.config import SummarizerConfig
from ..core.types import Prompt, Reply
from .replies import failed, unfit
from .tokens import GuessCounter

VERSION = "1"
CONTEXT = 8192

# As the default templates write them: "[1 mark]", the text, and "[end mark]" after the last.
_END = re.compile(r"^\[end (?P<mark>[a-z]{10})\]$", re.M)
_QUESTION = re.compile(r"^Question: (.*)$", re.M)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")


class Extractive:
    """An engine (`core.seams.Summarizer`) that answers by the schema with sentences it was shown.

    Args:
        config: `engine.batch` prompts are answered a step (8), `engine.delay` seconds each (0): for trying
            out a sweep without a model.
    """

    def __init__(self, config: SummarizerConfig) -> None:
        self._batch = int(config.engine.get("batch", 8))
        self._delay = float(config.engine.get("delay", 0.0))
        self._context = config.max_model_len or CONTEXT
        self._max_in_flight = config.max_in_flight
        self._count = GuessCounter()
        self._queue: deque[Prompt] = deque()

    @property
    def key(self) -> str:
        return key(None)

    @property
    def pending(self) -> int:
        return len(self._queue)

    @property
    def room(self) -> int:
        return max(0, self._max_in_flight - len(self._queue))

    def submit(self, request: Prompt) -> None:
        self._queue.append(request)

    def step(self) -> list[Reply]:
        done = []
        for _ in range(min(self._batch, len(self._queue))):
            if self._delay:
                time.sleep(self._delay)
            done.append(self._answer(self._queue.popleft()))
        return done

    def about(self) -> Mapping[str, Any]:
        return {"engine": "extractive", "model": "extractive", "key": self.key, "context": self._context}

    def close(self) -> None:
        self._queue.clear()

    def _answer(self, prompt: Prompt) -> Reply:
        tokens = self._count.chat(prompt.messages)
        if reason := unfit(prompt, tokens, self._context):
            return failed(Reply(id=prompt.id, prompt_tokens=tokens), reason)
        said = prompt.messages[-1]["content"]
        passages = _passages(said)
        question = _QUESTION.search(said)
        best = _sentences(passages or {"1": said}, question[1] if question else "")
        if prompt.schema is None:
            text = best[0][1]
        else:
            text = json.dumps(
                _fill(prompt.schema, iter(best * 50), prompt.schema),
                ensure_ascii=False,
                separators=(",", ":"),
            )
        return Reply(id=prompt.id, text=text, prompt_tokens=tokens, output_tokens=self._count(text))


def _passages(said: str) -> dict[str, str]:
    """The passages of a prompt by their ids; {} where another template wrote it."""
    ends = list(_END.finditer(said))
    if not ends:
        return {}
    word = ends[-1]["mark"]
    parts = re.split(rf"^\[(\d+) {word}\]\n", said[: ends[-1].start()], flags=re.M)
    return {number: text.strip() for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def key(config: SummarizerConfig | None) -> str:
    """The judgement key: there is nothing but the code's version that could change an answer."""
    del config
    return f"extractive:{VERSION}"


def _sentences(passages: Mapping[str, str], question: str) -> list[tuple[str, str]]:
    """(id, sentence) for each passage: the one that shares most words with the question, else its first."""
    wanted = set(re.findall(r"\w{3,}", question.casefold()))
    best = []
    for number, text in passages.items():
        sentences = [" ".join(one.split()) for one in _SENTENCE.split(text)]
        sentences = [one for one in sentences if any(map(str.isalnum, one))] or [
            " ".join(text.split()) or "-"
        ]
        scored = [len(wanted & set(re.findall(r"\w{3,}", one.casefold()))) for one in sentences]
        best.append((number, sentences[scored.index(max(scored))]))
    return best


def _fill(schema: Mapping[str, Any], said: Iterator[tuple[str, str]], root: Mapping[str, Any]) -> Any:
    """The plainest value that satisfies a schema, its strings filled with sentences in turn."""
    if "$ref" in schema:
        node: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            node = node[part]
        return _fill(node, said, root)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _fill(schema[choice][0], said, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        if properties.keys() >= {"text", "items"} and "enum" in properties["items"].get("items", {}):
            number, sentence = next(said)
            ids = properties["items"]["items"]["enum"]
            return {
                "text": _within(sentence, properties["text"]),
                "items": [number if number in ids else ids[0]],
            }
        return {name: _fill(inner, said, root) for name, inner in properties.items()}
    if kind == "array":
        inner = schema.get("items", {})
        ids = inner.get("properties", {}).get("items", {}).get("items", {}).get("enum", ())
        count = max(schema.get("minItems", 0), min(schema.get("maxItems", 1), len(ids) or 1))
        return [_fill(inner, said, root) for _ in range(count)]
    if kind == "string":
        return _within(next(said)[1], schema)
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    return False if kind == "boolean" else None


def _within(sentence: str, schema: Mapping[str, Any]) -> str:
    """A sentence held to a string's bounds."""
    return sentence[: schema.get("maxLength", len(sentence))].ljust(schema.get("minLength", 0), ".")
