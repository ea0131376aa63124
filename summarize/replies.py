"""What a reply says: thinking taken off, JSON read and held to its schema, ids turned back into items."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ..core.types import Point, Prompt, Reply
from .conform import problem
from .schema import ITEM_ID

Sources = Mapping[str, Sequence[UUID]]
"""For each id that was shown, the items it stands for: one for a passage, several for a note."""

NOTHING_SAID = "says_nothing"
"""Marks a point without a statement: the question again, a bare number, an id."""


class BadReply(Exception):
    """A reply that is no result; the message is the reason that the summary carries."""


def read(reply: Reply, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A reply's JSON.

    Raises:
        BadReply: an error, cut short, empty, not JSON or not what the schema asks for.
    """
    if reply.error:
        raise BadReply(reply.error)
    if reply.finish_reason != "stop":
        raise BadReply(
            "the reply was cut at max_tokens" if reply.finish_reason == "length" else reply.finish_reason
        )
    if not reply.text.strip():
        raise BadReply("the reply is empty")
    try:
        value = json.loads(_bare(reply.text))
    except (ValueError, RecursionError):
        raise BadReply("the reply is not JSON") from None
    if found := problem(value, schema):
        raise BadReply(f"the reply does not follow the schema: {found}")
    if not isinstance(value, dict):
        raise BadReply("the reply is not a JSON object")
    return value


def points(value: Mapping[str, Any], sources: Sources, query: str, longest: int) -> list[Point]:
    """The points of a reply of the default schema: ids resolved, repetitions joined, empty ones marked."""
    found: dict[str, Point] = {}
    for entry in value.get("points", ()):
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            continue
        text = _tidy(entry["text"], longest)
        cited: dict[UUID, None] = {}
        for one in entry.get("items", ()):
            cited.update(dict.fromkeys(sources.get(str(one), ())))
        key = _key(text)
        if key in found:
            before = found[key]
            found[key] = Point(
                text=before.text, items=tuple(dict.fromkeys((*before.items, *cited))), marks=before.marks
            )
            continue
        says_nothing = sum(map(str.isalpha, text)) < 2 or key == _key(query)
        found[key] = Point(text=text, items=tuple(cited), marks=(NOTHING_SAID,) if says_nothing else ())
    return list(found.values())


def own_output(value: Any, schema: Mapping[str, Any], sources: Sources) -> Any:
    """A reply of a policy's own schema, with item ids for ids (the first, where one stands for several)."""
    if isinstance(schema, Mapping) and schema.get("type") == "string" and schema.get("format") == ITEM_ID:
        items = sources.get(str(value), ())
        return str(items[0]) if items else None
    if isinstance(value, dict):
        inner = schema.get("properties", {})
        return {key: own_output(one, inner.get(key, {}), sources) for key, one in value.items()}
    if isinstance(value, list):
        items_schema = schema.get("items", {})
        return [own_output(one, items_schema, sources) for one in value]
    return value


def unfit(prompt: Prompt, prompt_tokens: int, context: int) -> str | None:
    """Why an engine should not be sent a prompt: empty, or too long with its reply. None if it is fit."""
    if not any(message["content"].strip() for message in prompt.messages):
        return "the prompt is empty"
    if prompt_tokens + prompt.max_tokens > context:
        return (
            f"{prompt_tokens} prompt tokens and {prompt.max_tokens} for the reply exceed the context of "
            f"{context}: lower input_tokens or max_tokens"
        )
    return None


def failed(reply: Reply, reason: str) -> Reply:
    """A reply that is no result, with what was counted so far."""
    return replace(reply, text="", finish_reason="error", error=reason)


def answered(reply: Reply, opened: bool = False) -> Reply:
    """A finished reply without its thinking; an error where the thinking was never closed."""
    if reply.finish_reason != "stop":
        return reply
    try:
        return replace(reply, text=without_thinking(reply.text, opened))
    except BadReply as bad:
        return failed(reply, str(bad))


def without_thinking(text: str, opened: bool = False) -> str:
    """The answer of a reasoning model, its thinking taken off.

    Args:
        text: the raw reply.
        opened: the chat template itself opened the thinking.

    Raises:
        BadReply: the thinking was never closed, so there is no answer.
    """
    head = text.lstrip()
    if not (opened or head.startswith("<think>") or "</think>" in head):
        return text
    _, closed, answer = head.rpartition("</think>")
    if not closed:
        raise BadReply("the model's thinking was not closed, so there is no answer")
    return answer.lstrip()


def _bare(text: str) -> str:
    # Servers without constrained decoding like to put a fence around their JSON.
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)\s*```\s*", text, re.DOTALL)
    return fenced[1] if fenced else text


def _tidy(text: str, longest: int) -> str:
    cut = len(text) >= longest and text[-1:].isalnum()
    text = re.sub(r"^(?:[-*•]|\d{1,2}[.)])\s+", "", " ".join(text.replace("\x00", " ").split()))
    if cut:  # the schema's bound fell inside a word
        head, space, _ = text.rpartition(" ")
        text = (head if space and len(head) > len(text) // 2 else text) + " ..."
    return text


def _key(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
