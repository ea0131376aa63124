"""A record of the spool as the values of a row.

Two ways to the same row: `exact_row` by way of an `Item`, which says what is wrong with a record, and
`fast_row`, which takes the plain records that hooks write at a third of the cost and gives up on all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..core.types import Item
from .columns import to_json
from .spool_items import clean, item_of

Place = tuple[str, str | None, str, str | None]
"""(namespace, group's name, policy, query): which group an item belongs to."""

_TEXT = frozenset({str})
_TEXT_OR_NOT = frozenset({str, type(None)})


class Row(NamedTuple):
    """An item as the ledger takes it; `rest`: run_id, step, kind, agent, meta, flags, created_at, priority,
    deadline."""

    item_id: bytes
    text: bytes
    chars: int
    blank: bool
    place: Place
    rest: tuple[Any, ...]


def fast_row(record: Mapping[str, Any]) -> Row | None:
    """The row of a record in which everything is as it should be; None where anything is not."""
    get = record.get
    text: Any = get("text")
    uid: Any = get("item_id")
    created: Any = get("created_at")
    namespace, kind, policy = get("namespace", "default"), get("kind", "result"), get("policy", "default")
    group, run, query, step, agent = get("group"), get("run"), get("query"), get("step"), get("agent")
    meta, priority = get("meta"), get("priority", 0)
    if (
        not {type(text), type(uid), type(created), type(namespace), type(kind), type(policy)} <= _TEXT
        or not {type(group), type(run), type(query), type(step), type(agent)} <= _TEXT_OR_NOT
        or (meta is not None and type(meta) is not dict)
        or type(priority) is not int
        or not -(2**31) <= priority < 2**31
        or None in record.values()  # said to be nothing, which is not the same as not said
        or "flags" in record
        or "deadline" in record
    ):
        return None
    try:
        item_id = bytes.fromhex(uid.replace("-", ""))
        encoded = text.encode()
        moment = datetime.fromisoformat(created)
        told = to_json(meta) if meta else None
        words = "".join(
            (namespace, kind, policy, group or "", run or "", query or "", step or "", agent or "")
        )
        if not words.isascii():
            words.encode()
        if told is not None and not told.isascii():
            told.encode()
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, RecursionError):  # a UnicodeEncodeError is a ValueError
        return None
    if len(item_id) != 16:
        return None
    return Row(
        item_id,
        encoded,
        len(text),
        not text or text.isspace(),
        (
            namespace,
            run if group is None else group,
            policy,
            query if query and not query.isspace() else None,
        ),
        (run, step, kind, agent, told, None, moment, priority, None),
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
