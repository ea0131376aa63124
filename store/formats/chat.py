"""OpenAI-style chat logs: the results of tools are the items, the first user message is the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .records import Record, Skipped, as_text

LISTS = ("messages", "traj", "conversation", "conversations", "history", "turns", "chat", "input")
"""Where a conversation's messages may lie in its record."""

_NAMES = ("conversation_id", "session_id", "thread_id", "run_id", "trace_id", "id", "task_id")
_TOOL_ROLES = ("tool", "function", "ipython", "observation")


def messages_of(document: Any) -> Sequence[Mapping[str, Any]] | None:
    """A conversation's messages, or None if this is no conversation."""
    if isinstance(document, list):
        return document if document and all(_is_message(entry) for entry in document) else None
    if isinstance(document, Mapping):
        for name in LISTS:
            inner = document.get(name)
            if isinstance(inner, list) and inner and all(_is_message(entry) for entry in inner):
                return inner
    return None


def records(document: Any, *, line: int, where: str, run: str) -> Iterator[Record | Skipped]:
    """The tool results of one conversation, as records; every other message as skipped.

    Args:
        run: a name for the conversation where it has none of its own.
    """
    messages = messages_of(document) or []
    guess = {"run": _name(document) or run, "query": first_question(messages)}
    calls: dict[str, Mapping[str, Any]] = {}
    for position, message in enumerate(messages):
        place = f"{where} message {position + 1}"
        calls |= dict(_calls(message))
        found = list(_results(message))
        if not found:
            yield Skipped(where=place, reason=f"{_role(message)} message")
        for part, (text, call_id, name) in enumerate(found):
            call = calls.get(call_id or "", {})
            meta = {"tool_call_id": call_id, "arguments": call.get("arguments")}
            yield Record(
                line=line,
                where=place,
                own={
                    "text": text,
                    "kind": "tool_output",
                    "step": f"{position}.{part}" if part else str(position),
                    "agent": name or call.get("name"),
                    "meta": {key: value for key, value in meta.items() if value is not None},
                },
                guess=guess,
            )


def first_question(messages: Sequence[Any]) -> str | None:
    """What the user asked first, as text."""
    for message in messages:
        if isinstance(message, Mapping) and _role(message) in ("user", "human"):
            text = content_text(message.get("content", message.get("value")))
            if text and text.strip():
                return text
    return None


def content_text(content: Any) -> str | None:
    """A message's content as text: a string, or the text parts of a list; None where there is none."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            part if isinstance(part, str) else str(part["text"])
            for part in content
            if isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("text"), str))
        ]
        return "\n".join(texts) if texts else None
    return as_text(content)


def _is_message(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    if isinstance(entry.get("role"), str) and (
        "content" in entry or "tool_calls" in entry or "parts" in entry
    ):
        return True
    return (isinstance(entry.get("from"), str) and "value" in entry) or entry.get("type") in (
        "function_call",
        "function_call_output",
    )


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("from") or message.get("type") or "unknown")


def _results(message: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None, str | None]]:
    """(text, call id, tool name) of each tool result in a message, in whichever of the common shapes."""
    name = message.get("name") if isinstance(message.get("name"), str) else None
    if message.get("type") == "function_call_output":
        yield as_text(message.get("output")), message.get("call_id"), name
    elif _role(message) in _TOOL_ROLES:
        call_id = message.get("tool_call_id")
        yield (
            content_text(message.get("content", message.get("value"))),
            call_id,
            name or message.get("function"),
        )
    elif isinstance(message.get("content"), list):
        for part in message["content"]:
            if isinstance(part, Mapping) and part.get("type") in ("tool_result", "tool-result"):
                result = part.get("content", part.get("result", part.get("output")))
                yield (
                    content_text(result),
                    part.get("tool_use_id") or part.get("toolCallId"),
                    part.get("toolName"),
                )


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(id, {"name", "arguments"}) of the tool calls that a message makes."""
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping):
            function = call.get("function")
            inner = function if isinstance(function, Mapping) else {"name": function, **call}
            yield str(call.get("id")), {"name": inner.get("name"), "arguments": inner.get("arguments")}
    if message.get("type") == "function_call":
        yield (
            str(message.get("call_id")),
            {"name": message.get("name"), "arguments": message.get("arguments")},
        )
    if isinstance(content := message.get("content"), list):
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "tool_use":
                yield str(part.get("id")), {"name": part.get("name"), "arguments": part.get("input")}


def _name(document: Any) -> str | None:
    if isinstance(document, Mapping):
        for name in _NAMES:
            value = document.get(name)
            if isinstance(value, str | int) and not isinstance(value, bool):
                trial = document.get("trial", document.get("epoch"))
                return f"{value}/{trial}" if isinstance(trial, int) else str(value)
    return None
