"""What LangChain's values say: the question in an input, the text of an output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def question_of(inputs: Any) -> str | None:
    """What a human asked, in what a chain was given: its last human message, or a question's usual keys."""
    if isinstance(inputs, str):
        return inputs or None
    if isinstance(inputs, Mapping):
        for key in ("messages", "input", "question", "query", "prompt"):
            if (value := inputs.get(key)) and (found := question_of(value)):
                return found
        return None
    if isinstance(inputs, Sequence):
        return next((found for message in reversed(inputs) if (found := _human(message))), None)
    return _human(inputs)


def answer_of(outputs: Any) -> str | None:
    """The text of what a chain gave: its last message, or the usual keys."""
    if isinstance(outputs, Mapping):
        if messages := outputs.get("messages"):
            outputs = messages[-1] if isinstance(messages, Sequence) else messages
        else:
            outputs = next((outputs[key] for key in ("output", "answer", "result") if key in outputs), None)
    return text_of(outputs) if outputs is not None else None


def text_of(output: Any) -> str | None:
    """A tool's output as text: messages by their content, a Command by its messages, the rest as JSON."""
    if output is None or isinstance(output, str):
        return output
    if hasattr(output, "content"):
        return _content(output.content)
    if hasattr(output, "page_content"):
        return str(output.page_content)
    if isinstance(update := getattr(output, "update", None), Mapping):  # LangGraph's Command
        return text_of(update.get("messages"))
    if (
        isinstance(output, list | tuple)
        and output
        and all(hasattr(part, "content") or hasattr(part, "page_content") for part in output)
    ):
        return "\n\n".join(filter(None, map(text_of, output)))
    dump = getattr(output, "model_dump", None)  # pydantic's
    value = dump() if callable(dump) else output
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(output)


def _human(message: Any) -> str | None:
    if isinstance(message, tuple | list) and len(message) == 2 and isinstance(message[0], str):
        role, content = message
    elif isinstance(message, Mapping):
        role, content = message.get("role") or message.get("type"), message.get("content")
    elif isinstance(message, str):
        role, content = "human", message
    else:
        role, content = getattr(message, "type", None), getattr(message, "content", None)
    return _content(content) or None if role in ("human", "user") else None


def _content(content: Any) -> str:
    """A message's content, which is text or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, Iterable):
        texts = (block if isinstance(block, str) else block.get("text") for block in content if block)
        return "\n".join(text for text in texts if isinstance(text, str))
    return "" if content is None else str(content)


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can say it: frameworks put all sorts of things into metadata."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # NaN and infinities are no JSON
    if depth < 8:
        if isinstance(value, Mapping):
            return {str(key): plain(part, depth + 1) for key, part in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(part, depth + 1) for part in value]
    return str(value)
