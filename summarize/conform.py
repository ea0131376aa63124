"""Whether a value satisfies a JSON schema: the part of the language that replies are asked in.

Engines that constrain decoding make this a formality; a server that ignores the schema makes it the only
check. Covered: type, enum, const, properties, required, additionalProperties, items, the length and size
bounds, anyOf, oneOf (as anyOf), allOf and `$ref` into the schema itself. Anything else is not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


def problem(
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, at: str = "$"
) -> str | None:
    """What is wrong with a value, and where; None if it satisfies the schema."""
    root = schema if root is None else root
    if "$ref" in schema:
        return problem(value, _target(str(schema["$ref"]), root), root, at)
    for key in ("anyOf", "oneOf"):
        if key in schema and all(problem(value, one, root, at) for one in schema[key]):
            return f"{at} matches none of {key}"
    for one in schema.get("allOf", ()):
        if found := problem(value, one, root, at):
            return found
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} is not one of the values allowed"
    if "const" in schema and value != schema["const"]:
        return f"{at} is not the value required"
    types = schema.get("type")
    names = [types] if isinstance(types, str) else list(types or ())
    if names and not any(_is(value, name) for name in names):
        return f"{at} is not of type {' or '.join(names)}"
    if isinstance(value, dict):
        return _object(value, schema, root, at)
    if isinstance(value, list):
        return _array(value, schema, root, at)
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return f"{at} is too short"
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            return f"{at} is too long"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{at} is too small"
        if "maximum" in schema and value > schema["maximum"]:
            return f"{at} is too large"
    return None


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str
) -> str | None:
    properties = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            return f"{at}.{key} is missing"
    more = schema.get("additionalProperties", True)
    for key, inner in value.items():
        if key in properties:
            found = problem(inner, properties[key], root, f"{at}.{key}")
        elif isinstance(more, Mapping):
            found = problem(inner, more, root, f"{at}.{key}")
        else:
            found = None if more else f"{at}.{key} was not asked for"
        if found:
            return found
    return None


def _array(value: list[Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{at} has too few entries"
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        return f"{at} has too many entries"
    items = schema.get("items")
    if isinstance(items, Mapping):
        for number, inner in enumerate(value):
            if found := problem(inner, items, root, f"{at}[{number}]"):
                return found
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, object))


def _target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    node: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        node = (
            node.get(part.replace("~1", "/").replace("~0", "~"), {})
            if part and isinstance(node, dict)
            else node
        )
    return node if isinstance(node, Mapping) else {}
