"""What `record()` takes, and the line that comes of it.

The caller's thread only checks (`check`); JSON, cleaning and checksums are the writer's work (`encode`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from ..core import keys
from ..store.spool_format import MAX_LINE, dump, line
from ..store.spool_items import clean, flagged

_LONG = 128 * 1024
"""Characters from which a text is quoted in slices."""

Redact = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Gets an item's fields (the names of `record()`, and `item_id`), gives those to be written or None."""


class Refused(Exception):
    """An item that is not taken; the message is the reason, as it is counted."""


class Entry(NamedTuple):
    """A checked item on its way to the writer; `meta` is JSON text, so that later changes do not matter."""

    item_id: str
    text: str
    query: str | None
    group: str | None
    run: str | None
    step: str | None
    kind: str
    agent: str | None
    policy: str
    namespace: str
    created_at: float | datetime
    priority: int
    deadline: datetime | None
    meta: str | None
    flags: tuple[str, ...]
    size: int
    """Bytes in memory, about."""


def check(
    text: str,
    query: str | None = None,
    group: str | None = None,
    run: str | UUID | None = None,
    step: str | int | None = None,
    kind: str = "result",
    agent: str | None = None,
    policy: str = "default",
    namespace: str = "default",
    id: str | int | UUID | None = None,
    created_at: datetime | None = None,
    priority: int = 0,
    deadline: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    item_id: str | None = None,
) -> Entry:
    """Check the values of one item.

    Raises:
        Refused: "wrong_type: FIELD", "no_text", "bad_meta" or "bad_value: FIELD".
    """
    if type(text) is not str:
        text = _text(text)
    # Nearly all that comes here is a plain string already: that path has to be short.
    if type(query) is not str and query is not None:
        query = _name("query", query)
    if type(group) is not str and group is not None:
        group = _name("group", group)
    if type(run) is not str and run is not None:
        run = _name("run", run)
    if type(step) is not str and step is not None:
        step = _name("step", step)
    if type(agent) is not str and agent is not None:
        agent = _name("agent", agent)
    if type(kind) is not str:
        kind = _name("kind", kind)
    if type(policy) is not str:
        policy = _name("policy", policy)
    if type(namespace) is not str:
        namespace = _name("namespace", namespace)
    flags: tuple[str, ...] = ()
    moment: float | datetime
    if created_at is None:
        moment = time.time()
    else:
        moment, flags = _moment("created_at", created_at)
    if deadline is not None:
        deadline, naive = _moment("deadline", deadline)
        flags = flags or naive
    if type(priority) is not int or not -(2**31) <= priority < 2**31:
        raise Refused("wrong_type: priority")
    if item_id is None:
        item_id = keys.new_id_text() if id is None else _given_id(namespace, id)
    json_meta = None if meta is None else _json(meta)
    size = 512 + text.__sizeof__()
    if query is not None:
        size += query.__sizeof__()
    if json_meta is not None:
        size += json_meta.__sizeof__()
    return Entry(
        item_id, text, query, group, run, step, kind, agent, policy, namespace,
        moment, priority, deadline, json_meta, flags, size,
    )  # fmt: skip


def encode(entry: Entry) -> bytes:
    """The line of an item in a segment.

    Raises:
        Refused: "too_long": no reader would take a line of that length.
    """
    moment = entry.created_at
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    record: dict[str, Any] = {
        "type": "item",
        "item_id": entry.item_id,
        "created_at": moment.isoformat(),
    }
    if entry.namespace != "default":
        record["namespace"] = entry.namespace
    if entry.group is not None:
        record["group"] = entry.group
    if entry.run is not None:
        record["run"] = entry.run
    if entry.query is not None:
        record["query"] = entry.query
    if entry.policy != "default":
        record["policy"] = entry.policy
    if entry.step is not None:
        record["step"] = entry.step
    if entry.kind != "result":
        record["kind"] = entry.kind
    if entry.agent is not None:
        record["agent"] = entry.agent
    if entry.priority:
        record["priority"] = entry.priority
    if entry.deadline is not None:
        record["deadline"] = entry.deadline.isoformat()
    long = len(entry.text) > _LONG
    if not long:
        record["text"] = entry.text
    nul = "\0" in entry.text or (entry.query is not None and "\0" in entry.query)
    if entry.flags or nul:
        record["flags"] = [*entry.flags, *(["nul"] if nul else [])]
    try:
        payload = dump(record)
        if long:
            payload = b'%b,"text":"%b"}' % (payload[:-1], _in_slices(entry.text))
        if entry.meta is not None:
            payload = b'%b,"meta":%b}' % (payload[:-1], entry.meta.encode())
    except UnicodeEncodeError:
        record["text"] = entry.text
        if entry.meta is not None:
            record["meta"] = json.loads(entry.meta)
        payload = dump(flagged(record, entry.flags))
    if len(payload) > MAX_LINE - 16:
        raise Refused("too_long")
    return line(payload)


def _in_slices(text: str) -> bytes:
    """The inside of a long text's JSON. The interpreter is free between slices: quoting holds it."""
    slices = []
    for start in range(0, len(text), _LONG):
        slices.append(_encode(text[start : start + _LONG])[1:-1].encode())
        time.sleep(0)
    return b"".join(slices)


def redacted(entry: Entry, redact: Redact) -> Entry:
    """What is left of an item after the caller's redaction, checked again. Its id stays.

    Raises:
        Refused: "redacted" (it gave None), or what `check` says of what it gave.
        Exception: whatever the redaction raised: the item must not be written then.
    """
    fields = entry._asdict()
    moment = fields["created_at"]
    fields["created_at"] = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    fields["meta"] = {} if entry.meta is None else json.loads(entry.meta)
    flags = fields.pop("flags")
    del fields["size"]
    given = redact(fields)
    if given is None:
        raise Refused("redacted")
    if not isinstance(given, Mapping):
        raise Refused("wrong_type: redaction")
    values = dict(given)
    values["item_id"] = entry.item_id
    values["meta"] = values.get("meta") or None
    if values.get("created_at") is None:
        values["created_at"] = fields["created_at"]
    try:
        left = check(**values)
    except TypeError as error:  # a name that record() does not know, or no text
        raise Refused("wrong_type: redaction") from error
    return left._replace(flags=flags)


def _text(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise Refused("no_text" if value is None else "wrong_type: text")


def _name(field: str, value: object) -> str:
    """Numbers and UUIDs are fine as names: frameworks count steps and give runs UUIDs."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | UUID) and not isinstance(value, bool) and field != "query":
        return str(value)
    raise Refused(f"wrong_type: {field}")


def _moment(field: str, value: object) -> tuple[datetime, tuple[str, ...]]:
    """A naive time is taken as this machine's local time, as `datetime.timestamp()` does, and flagged."""
    if not isinstance(value, datetime):
        raise Refused(f"wrong_type: {field}")
    try:
        if value.tzinfo is None or value.utcoffset() is None:
            return value.astimezone(), ("naive_time",)
        return value.astimezone(UTC), ()
    except (OverflowError, ValueError, OSError):
        raise Refused(f"bad_value: {field}") from None


def _given_id(namespace: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise Refused("wrong_type: id")
    given = str(value)
    try:
        return str(keys.given_item_id(namespace, given))
    except UnicodeEncodeError:
        return str(keys.given_item_id(clean(namespace)[0], clean(given)[0]))


def _json(meta: object) -> str | None:
    if not isinstance(meta, Mapping):
        raise Refused("wrong_type: meta")
    if not meta:
        return None
    try:
        return _encode(meta if type(meta) is dict else dict(meta))
    except (TypeError, ValueError, RecursionError):
        raise Refused("bad_meta") from None


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
