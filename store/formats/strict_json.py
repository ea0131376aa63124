"""JSON as its standard has it: what Python's parser takes beyond it (NaN, Infinity) is refused."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 200
"""Levels of nesting; every later reader of the value must get by with Python's own limit."""


class NotJSON(ValueError):
    """The text is not JSON; the message says where."""


def loads(text: str) -> Any:
    """The value of a JSON text. Lone surrogates pass; of a repeated key the last one counts.

    Raises:
        NotJSON: not JSON, nested too deep, or with numbers that no double holds.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise NotJSON(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise NotJSON("nested too deep") from None
    except ValueError as error:  # _refuse, _finite, or a whole number of thousands of digits
        raise NotJSON(str(error)) from None
    if _deeper(value, MAX_DEPTH):
        raise NotJSON("nested too deep")
    return value


def _deeper(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        children = [child for inner in level for child in (inner.values() if type(inner) is dict else inner)]
        level = [child for child in children if type(child) is dict or type(child) is list]
        if not level:
            return False
    return True


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:30]} is larger than any double")
    return value
