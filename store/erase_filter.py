"""Which items are to be forgotten: by id, run, group, or by what stands in a field; no SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import InputError
from ..core.keys import parse_reference
from ..core.types import Item

FIELDS = ("step", "kind", "agent", "policy", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """All conditions hold of an item that is meant.

    Attributes:
        items: ends of ids, in hex: one of them.
        group: a group's name; or, where it is a reference, `group_tail`: the end of its id.
        run: the run's name.
        fields: of `FIELDS`, what each has to be.
        meta: path ("user" or "user.id") and value as text: 42 and "42" are the same.
    """

    items: tuple[str, ...] = ()
    group: str | None = None
    group_tail: str | None = None
    run: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)

    def matches(self, item: Item) -> bool:
        """Whether an item is meant; says the same as the SQL does of the ledger's items."""
        if self.items and not any(item.item_id.hex.endswith(tail) for tail in self.items):
            return False
        if self.run is not None and item.run != self.run:
            return False
        if (
            self.group is not None
            and item.group_name != self.group
            and not (self.group_tail and item.group_id.hex.endswith(self.group_tail))
        ):
            return False
        if any(getattr(item, name) != value for name, value in self.fields.items()):
            return False
        return all(value in _values(item.meta, path) for path, value in self.meta.items())


def which(
    *,
    items: Sequence[str] = (),
    run: str | None = None,
    group: str | None = None,
    namespace: str | None = None,
    where: Sequence[str] = (),
) -> Which:
    """Read conditions as people type them.

    Raises:
        InputError: none is given, or one cannot be read.
    """
    fields: dict[str, str] = {} if namespace is None else {"namespace": namespace}
    meta: dict[str, str] = {}
    for condition in where:
        name, equals, value = condition.partition("=")
        if not equals or (name not in FIELDS and not name.removeprefix("meta.")) or "=" in name:
            raise _unreadable(condition)
        if name.startswith("meta."):
            meta[name.removeprefix("meta.")] = value
        elif name in FIELDS:
            fields[name] = value
        else:
            raise _unreadable(condition)
    if not (items or run is not None or group is not None or where):
        raise InputError("nothing says what to erase", hint="--item, --run, --group or --where meta.user=42")
    parsed = parse_reference(group) if group is not None else None
    tail = parsed[1] if parsed is not None and parsed[0] in ("g", "") else None
    return Which(
        items=tuple(_tail(item) for item in items),
        group=group,
        group_tail=tail,
        run=run,
        fields=fields,
        meta=meta,
    )


def _tail(item: str) -> str:
    parsed = parse_reference(item)
    if parsed is None or parsed[0] not in ("i", ""):
        raise InputError(f"--item {item!r} is no item", hint="`afterpass verdicts` lists items by i_...")
    return parsed[1]


def _unreadable(condition: str) -> InputError:
    names = ", ".join((*FIELDS, "meta.KEY"))
    return InputError(f"--where {condition!r} cannot be read", hint=f"FIELD=VALUE, with one of {names}")


def paths(path: str) -> tuple[str, str]:
    """A path as DuckDB's JSON functions take it; and as a single key, dots and all."""
    parts = [json.dumps(part, ensure_ascii=False) for part in path.split(".")]
    return "$." + ".".join(parts), "$." + json.dumps(path, ensure_ascii=False)


def _values(meta: Mapping[str, Any], path: str) -> list[str]:
    found = [_text(meta[path])] if path in meta else []
    inner: Any = meta
    for part in path.split("."):
        if not isinstance(inner, Mapping) or part not in inner:
            return found
        inner = inner[part]
    return [*found, _text(inner)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
