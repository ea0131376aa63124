"""How to record, from `[store]` of the home's configuration: read without pydantic, and never fatal.

What counts, strongest first: an argument, `AFTERPASS_STORE__NAME`, the file (`AFTERPASS_CONFIG`, else
`config.toml` in the home), the default. The sweep refuses a wrong configuration by name; an agent only
warns and goes on with what it can read, since it has other work to do.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..core.errors import ConfigError
from ..core.paths import Home

Durability = Literal["segment", "record"]

log = logging.getLogger("afterpass")

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a recorder works.

    Attributes:
        durability: fsync when a segment is sealed, or after each batch of records that is written
            (`flush()` and `record(wait=True)` always do).
        queue_rows: items that may wait for the writer.
        queue_bytes: bytes of memory that they may have; one item by itself may have more.
        segment_bytes: a segment is sealed once it has as many.
        segment_age: seconds after which an open segment is sealed.
    """

    durability: Durability = "segment"
    queue_rows: int = 10_000
    queue_bytes: int = 64 * 2**20
    segment_bytes: int = 8 * 2**20
    segment_age: float = 5.0


def load(home: Home, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings that count for a home.

    Args:
        given: the caller's own values; None means not given.

    Raises:
        ConfigError: one of `given` is wrong. A wrong file or variable is logged and passed over.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    source = Path(environment.get("AFTERPASS_CONFIG") or home.config)
    try:
        found = tomllib.loads(source.read_text("utf-8")).get("store", {})
        values |= _valid(found if isinstance(found, dict) else {}, f"[store] of {source}")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read, so recording goes by the defaults: %s", source, error)
    prefix = "AFTERPASS_STORE__"
    said = {
        key.removeprefix(prefix).lower(): text for key, text in environment.items() if key.startswith(prefix)
    }
    values |= _valid(said, "the environment")
    for name, value in given.items():
        if value is not None:
            try:
                values[name] = _value(name, value)
            except ValueError as error:
                raise ConfigError(f"Recorder({name}={value!r}): {error}", hint="see Settings") from None
    return Settings(**values)


def _valid(said: Mapping[str, Any], where: str) -> dict[str, Any]:
    values = {}
    for field in fields(Settings):
        if field.name in said:
            try:
                values[field.name] = _value(field.name, said[field.name])
            except ValueError as error:
                log.warning("%s: %s=%r is passed over: %s", where, field.name, said[field.name], error)
    return values


def _value(name: str, value: object) -> object:
    if name == "durability":
        if value not in ("segment", "record"):
            raise ValueError('want "segment" or "record"')
        return value
    if name == "segment_age":
        if isinstance(value, str) and (match := re.fullmatch(r"\s*([\d.]+)\s*(ms|s|m|h|d)?\s*", value)):
            return float(match[1]) * _UNITS[match[2] or "s"]
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        raise ValueError('want seconds, or a text such as "5s"')
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("want a whole number from 1")
    return value
