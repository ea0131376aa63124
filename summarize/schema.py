"""What a reply must look like: a JSON schema, bounded so that the largest reply fits `max_tokens`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.config import SummarizePolicy
from ..core.errors import ConfigError

ITEM_ID = "item-id"
"""A string with this `format` in a policy's own schema becomes one of the ids of the items shown."""

_CITED = 3
"""Ids at most for one point: more is a list of contents, not a source."""
_SHORTEST, _LONGEST = 24, 400
_LEAST = 12
"""Bytes that a point has at least: small models else answer a question with "4"."""


def points_schema(ids: Sequence[str], policy: SummarizePolicy, width: int, max_tokens: int) -> dict[str, Any]:
    """The default: up to `max_points` points, each with the ids it rests on and one sentence.

    Args:
        ids: the opaque ids that were shown; nothing else can be cited.
        policy: for `max_points`.
        width: UTF-8 bytes of a usual character of the texts: a byte-level tokenizer needs no more tokens than
            bytes, so this bounds the reply in tokens whatever its words are.
        max_tokens: what the whole reply must fit.
    """
    cited = min(_CITED, len(ids))
    longest_id = max(len(one) for one in ids)
    braces = len('{"items":[],"text":""},') + cited * (longest_id + 3)
    room = max_tokens - len('{"points":[]}')
    count = policy.max_points
    while count > 1 and (room // count - braces) // width < _SHORTEST:
        count -= 1
    length = max(_SHORTEST, min(_LONGEST, (room // count - braces) // width))
    point = {
        "type": "object",
        "properties": {
            # The sentence first: a model that cites before it knows what it will say cites anything.
            "text": {"type": "string", "minLength": min(length, _LEAST // width), "maxLength": length},
            "items": {
                "type": "array",
                "items": {"type": "string", "enum": list(ids)},
                "minItems": 1,
                "maxItems": cited,
            },
        },
        "required": ["text", "items"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"points": {"type": "array", "items": point, "minItems": 1, "maxItems": count}},
        "required": ["points"],
        "additionalProperties": False,
    }


def own_schema(policy: SummarizePolicy) -> dict[str, Any] | None:
    """The policy's own schema, or None where it names none.

    Raises:
        ConfigError: "package.module:Model" cannot be imported or is no pydantic model, or it is no schema.
    """
    given = policy.output_schema
    if given is None:
        return None
    schema = _of_model(given) if isinstance(given, str) else _plain(given)
    if schema.get("type") != "object":
        raise ConfigError(
            "summarize.output_schema must describe an object",
            hint='give it "type": "object" and put what you want under "properties"',
        )
    return schema


def bounded(schema: Mapping[str, Any], ids: Sequence[str], width: int, max_tokens: int) -> dict[str, Any]:
    """A policy's own schema with ids filled in and bounds where it sets none.

    Strings without `maxLength` share what `max_tokens` leaves; arrays without `maxItems` get 8. What the
    schema itself allows beyond that may still be cut: such a reply is asked for once more with more room.
    """
    filled = _fill(schema, ids)
    leaves = sum(weight for _, weight in _open_strings(filled, 1))
    if leaves:
        length = max(_SHORTEST, min(_LONGEST * 4, (max_tokens * 3 // 4) // (leaves * width)))
        for string, _ in list(_open_strings(filled, 1)):
            string["maxLength"] = length
    return filled


def width_of(texts: Sequence[str]) -> int:
    """UTF-8 bytes of a usual character, 1 (Latin) to 4, in the middle one of the texts given to read.

    Not of all of them together: one flood of pictures would narrow what can be said of the others.
    """
    widths = sorted(len(text.encode("utf-8", "replace")) / len(text) for text in texts if text)
    return max(1, min(4, round(widths[len(widths) // 2]))) if widths else 1


def _of_model(name: str) -> dict[str, Any]:
    module, _, attribute = name.partition(":")
    try:
        model = getattr(importlib.import_module(module), attribute)
        schema = model.model_json_schema()
    except Exception as error:
        raise ConfigError(
            f"summarize.output_schema names {name!r}, which gives no schema: {type(error).__name__}: {error}",
            hint='write "package.module:Model" with a pydantic model that can be imported here',
        ) from error
    return _plain(schema)


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    def copy(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {str(key): copy(inner) for key, inner in one.items()}
        if isinstance(one, list | tuple):
            return [copy(inner) for inner in one]
        return one

    return {str(key): copy(inner) for key, inner in value.items()}


def _fill(schema: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    def visit(node: Any) -> Any:
        if isinstance(node, list):
            return [visit(one) for one in node]
        if not isinstance(node, dict):
            return node
        if node.get("type") == "string" and node.get("format") == ITEM_ID:
            return {"type": "string", "enum": list(ids)}
        seen = {key: visit(value) for key, value in node.items()}
        if seen.get("type") == "array" and "maxItems" not in seen:
            seen["maxItems"] = 8
        if seen.get("type") == "object" and "properties" in seen:
            seen.setdefault("additionalProperties", False)
        return seen

    return dict(visit(_plain(schema)))


def _open_strings(node: Any, weight: int) -> Iterator[tuple[dict[str, Any], int]]:
    if isinstance(node, list):
        for one in node:
            yield from _open_strings(one, weight)
    elif isinstance(node, dict):
        if node.get("type") == "string" and not node.keys() & {
            "maxLength",
            "enum",
            "const",
            "format",
            "pattern",
        }:
            yield node, weight
        inner = weight * int(node.get("maxItems", 8)) if node.get("type") == "array" else weight
        for value in node.values():
            yield from _open_strings(value, inner)
