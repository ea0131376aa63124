"""The readers' side: verdicts, summaries, sweeps, and who goes by which reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from ..core.errors import UnknownReference
from ..core.keys import parse_reference, reference
from ..core.types import Selection
from .ledger_file import LedgerFile
from .ledger_pages import Reading
from .ledger_plan import chosen_groups
from .ledger_values import GroupKey
from .results import Result, SummaryRow, SweepRow, VerdictRow, summary_row, sweep_row, verdict_row
from .sqlfiles import sql

Kind = Literal["item", "group", "sweep"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a reference names.

    Attributes:
        ids: one id, or of a group's name all groups that bear it.
        keys: (namespace, group_id) of the groups, or of an item's group.
        seq: an item's number.
    """

    kind: Kind
    ids: tuple[UUID, ...]
    keys: tuple[GroupKey, ...] = ()
    seq: int | None = None


def verdicts(
    file: LedgerFile,
    *,
    group: str | Sequence[str] | None,
    run: str | None,
    keep: bool | None,
    namespace: str | None,
    item: str | None,
    text: bool,
    limit: int | None,
) -> Result[VerdictRow]:
    """See `Ledger.verdicts`."""
    only = None if item is None else find(file, item, "item")
    parameters = {
        "run": run,
        "seq": only.seq if only else None,
        "keep": keep,
        "text": text,
        "kept_text": text,
    }
    if group is None or isinstance(group, str):
        chosen = chosen_groups(file, Selection(group=group, run=run, namespace=namespace))
    else:
        each = [chosen_groups(file, Selection(group=one, run=run, namespace=namespace)) for one in group]
        chosen = sorted({key for found in each for key in found or ()})
    if only is not None:
        chosen = [key for key in only.keys if chosen is None or key in chosen]
    return Reading(file, "verdict", chosen, namespace, parameters, limit).result(verdict_row)


def summaries(
    file: LedgerFile,
    *,
    group: str | None,
    run: str | None,
    namespace: str | None,
    status: str | None,
    limit: int | None,
) -> Result[SummaryRow]:
    """See `Ledger.summaries`."""
    chosen = chosen_groups(file, Selection(group=group, run=run, namespace=namespace))
    return Reading(file, "summary", chosen, namespace, {"status": status}, limit).result(summary_row)


# ------------------------------------------------------------------------------------------ sweeps


def history(file: LedgerFile, limit: int) -> list[SweepRow]:
    """The newest sweeps first."""
    return [sweep_row(row) for row in file.rows(sql("read.sweeps"), {"limit": limit})]


def sweep(file: LedgerFile, ref: str) -> SweepRow:
    """One sweep by its reference, or "last".

    Raises:
        UnknownReference: no sweep goes by it.
    """
    if ref == "last":
        newest = history(file, 1)
        if not newest:
            raise UnknownReference("there was no sweep yet", hint="run `afterpass sweep`")
        return newest[0]
    (sweep_id,) = find(file, ref, "sweep").ids
    return sweep_row(file.rows(sql("read.sweep"), {"sweep": sweep_id})[0])


def diff(file: LedgerFile, a: str, b: str) -> dict[str, Any]:
    """What the verdicts were after sweep `a` and are after sweep `b`, where they differ; JSON values."""
    first, second = sorted((sweep(file, a), sweep(file, b)), key=lambda row: row.number)
    result: dict[str, Any] = {
        "a": first.ref,
        "b": second.ref,
        "config": _config_changes(first.config, second.config),
        "new": 0,
        "same": 0,
        "changed": [],
    }
    found = file.rows(sql("read.diff"), {"a": first.number, "b": second.number})
    for item_id, group_id, name, *rest in found:
        before, after, other_model, other_policy = rest[:4], rest[4:8], rest[8], rest[9]
        if before[0] is None:
            result["new"] += 1
        elif before[:2] == after[:2]:
            result["same"] += 1
        else:
            names = ("decision", "rank", "logit", "reason")
            result["changed"].append(
                {
                    "item": reference("i", item_id),
                    "group": reference("g", group_id),
                    "group_name": name,
                    "before": dict(zip(names, before, strict=True)),
                    "after": dict(zip(names, after, strict=True)),
                    "other_model": other_model,
                    "other_policy": other_policy,
                }
            )
    return result


def _config_changes(a: Any, b: Any, path: str = "") -> list[dict[str, Any]]:
    """Keys whose values differ, dotted."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        changes = []
        for key in sorted({*a, *b}):
            changes += _config_changes(a.get(key), b.get(key), f"{path}.{key}" if path else str(key))
        return changes
    return [] if a == b else [{"key": path, "before": a, "after": b}]


# -------------------------------------------------------------------------------------- references


def find(file: LedgerFile, ref: str, kind: Kind | None = None) -> Found:
    """What goes by a reference: `i_`, `g_`, `s_` and the end of an id, a whole id, or a group's name.

    Args:
        kind: only this kind is meant.

    Raises:
        UnknownReference: nothing does (the nearest names are told), or several things do (they are listed).
    """
    parsed = parse_reference(ref)
    found: list[Found] = []
    if parsed is not None:
        letter, tail = parsed
        found = [one for each in _KINDS if letter in (each[0], "") for one in _BY_TAIL[each](file, tail)]
        if kind is not None:
            found = [one for one in found if one.kind == kind]
    if not found and kind in (None, "group"):
        named = file.rows(sql("read.groups_by_name"), {"name": ref})
        if named:
            keys = tuple((namespace, group_id) for group_id, namespace, _ in named)
            found = [Found("group", tuple(group_id for _, group_id in keys), keys)]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(_as_reference(one) for one in found[:10])
        raise UnknownReference(
            f"{ref!r} is the end of several ids: {several}", hint="give more of its digits"
        )
    raise UnknownReference(f"nothing goes by {ref!r}{_nearest(file, ref)}", hint=_hint(kind))


def _items(file: LedgerFile, tail: str) -> list[Found]:
    found = file.rows(sql("read.items_by_tail"), {"tail": tail})
    return [Found("item", (uid,), ((namespace, group_id),), seq) for uid, seq, namespace, group_id in found]


def _groups(file: LedgerFile, tail: str) -> list[Found]:
    found: dict[UUID, list[GroupKey]] = {}
    for group_id, namespace, _ in file.rows(sql("read.groups_by_tail"), {"tail": tail}):
        found.setdefault(group_id, []).append((namespace, group_id))
    return [Found("group", (group_id,), tuple(keys)) for group_id, keys in found.items()]


def _sweeps(file: LedgerFile, tail: str) -> list[Found]:
    return [Found("sweep", (uid,)) for (uid,) in file.rows(sql("read.sweeps_by_tail"), {"tail": tail})]


_KINDS: tuple[Kind, ...] = ("item", "group", "sweep")
_BY_TAIL: dict[Kind, Callable[[LedgerFile, str], list[Found]]] = {
    "item": _items,
    "group": _groups,
    "sweep": _sweeps,
}


def _as_reference(found: Found) -> str:
    uid = found.ids[0].hex
    return f"{found.kind[0]}_{uid[-16:]}"


def _nearest(file: LedgerFile, ref: str) -> str:
    if parse_reference(ref) is not None:
        return ""
    names = [name for (name,) in file.rows(sql("read.near_names"), {"name": ref})]
    return f"; near it are {', '.join(map(repr, names))}" if names else ""


def _hint(kind: Kind | None) -> str:
    if kind == "sweep":
        return "`afterpass history` lists sweeps by s_..."
    if kind == "item":
        return "`afterpass verdicts` lists items by i_..."
    return "references look like i_..., g_... or s_...; a group's name is taken too"
