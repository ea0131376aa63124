"""A record of the spool as the values of a row.

Two ways to the same row: `exact_row` by way of an `Item`, which says what is wrong with a record, and
`plain_row`, which takes the plain records that hooks write, parsed and checked in one go, at a third of the
cost, and gives up on all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ..core.types import Item
from .columns import to_json
from .spool_items import clean, item_of, moment

Place = tuple[str, str | None, str, str | None]
"""(namespace, group's name, policy, query): which group an item belongs to."""


class Row(NamedTuple):
    """An item as the ledger takes it; `rest`: run_id, step, kind, agent, meta, flags, created_at, priority,
    deadline."""

    item_id: bytes
    text: bytes
    chars: int
    blank: bool
    place: Place
    rest: tuple[Any, ...]


class _Plain(BaseModel):
    """A record in which everything is as it should be; what may be left out is never null.

    Pydantic reads JSON as Python's own parser does, or refuses it; its strings are whole (no lone surrogate).
    """

    model_config = ConfigDict(strict=True)

    type: Literal["item"]
    item_id: str
    created_at: str
    text: str
    namespace: str = "default"
    group: str = None  # type: ignore[assignment]
    run: str = None  # type: ignore[assignment]
    policy: str = "default"
    query: str = None  # type: ignore[assignment]
    step: str = None  # type: ignore[assignment]
    kind: str = "result"
    agent: str = None  # type: ignore[assignment]
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    deadline: str = None  # type: ignore[assignment]
    meta: dict[str, Any] = None  # type: ignore[assignment]
    flags: list[str] = None  # type: ignore[assignment]


_read = _Plain.__pydantic_validator__.validate_json


def plain_row(payload: bytes) -> Row | None:
    """The row of a plain record, from its JSON; None where anything is not as hooks write it."""
    try:
        said = _read(payload)
        digits = said.item_id.replace("-", "")
        item_id = bytes.fromhex(digits)
        created = moment(said.created_at).astimezone(UTC)
        deadline = None if said.deadline is None else moment(said.deadline).astimezone(UTC)
    except (ValueError, OverflowError):  # pydantic's ValidationError is a ValueError
        return None
    if len(item_id) != 16 or len(digits) != 32:
        return None
    text, query = said.text, said.query
    return Row(
        item_id,
        text.encode(),
        len(text),
        not text or text.isspace(),
        (
            said.namespace,
            said.run if said.group is None else said.group,
            said.policy,
            query if query and not query.isspace() else None,
        ),
        (
            said.run,
            said.step,
            said.kind,
            said.agent,
            to_json(said.meta) if said.meta else None,
            said.flags or None,
            created,
            said.priority,
            deadline,
        ),
    )


def exact_row(record: Mapping[str, Any]) -> Row:
    """The row of any record that says an item; lone surrogates are mended and flagged.

    Raises:
        ValueError: it says none; the message is the reason.
        OverflowError: a time that no calendar of ours has.
    """
    try:
        return _row(item_of(record))
    except UnicodeEncodeError:  # lone surrogates that a writer let through
        cleaned, _ = clean(record)
        return _row(item_of({**cleaned, "flags": [*cleaned.get("flags", ()), "lone_surrogate"]}))


def _row(item: Item) -> Row:
    query = item.query if item.query and not item.query.isspace() else None
    meta = to_json(item.meta) if item.meta else None
    place = (item.namespace, item.group_name, item.policy, query)
    for told in (*place, meta, item.run, item.step, item.agent, item.kind, *item.flags):
        if told is not None:
            told.encode()
    return Row(
        item.item_id.bytes,
        item.text.encode(),
        len(item.text),
        not item.text or item.text.isspace(),
        place,
        (
            item.run,
            item.step,
            item.kind,
            item.agent,
            meta,
            list(item.flags) or None,
            item.created_at.astimezone(UTC),
            item.priority,
            None if item.deadline is None else item.deadline.astimezone(UTC),
        ),
    )
