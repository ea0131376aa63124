"""The readers' side: verdicts, summaries, sweeps, and who goes by which reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from ..core.errors import UnknownReference
from ..core.keys import parse_reference, reference
from ..core.types import Selection
from .columns import keys_table
from .ledger_file import LedgerFile
from .ledger_plan import chosen_groups
from .ledger_values import GroupKey
from .results import Result, SummaryRow, SweepRow, VerdictRow, summary_row, sweep_row, verdict_row
from .sqlfiles import sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

NO_LIMIT = 2**62
BATCH_ROWS = 2048
PAGE_ITEMS = 50_000

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
    group: str | None,
    run: str | None,
    keep: bool | None,
    namespace: str | None,
    item: str | None,
    text: bool,
    limit: int | None,
) -> Result[VerdictRow]:
    """See `Ledger.verdicts`."""
    only = None if item is None else find(file, item, "item")
    parameters = {"run": run, "seq": only.seq if only else None, "keep": keep, "text": text}
    selection = Selection(group=group, run=run, namespace=namespace)
    chosen = chosen_groups(file, selection)
    if only is not None:
        chosen = [key for key in only.keys if chosen is None or key in chosen]
    return _Reading(file, "verdict", chosen, namespace, parameters, limit).result(verdict_row)


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
    return _Reading(file, "summary", chosen, namespace, {"status": status}, limit).result(summary_row)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Rows of groups, in the order in which the groups began: a page of groups at a time.

    So a first row costs no sort of everything, all rows never lie in memory at once, and each page reads
    only where in the ledger its groups lie. All pages see the ledger as it was at the first.
    """

    file: LedgerFile
    what: Literal["verdict", "summary"]
    chosen: list[GroupKey] | None
    namespace: str | None
    parameters: Mapping[str, Any]
    limit: int | None

    def result(self, row: Callable[[Mapping[str, Any]], Any]) -> Result[Any]:
        """Nothing is read before it is looked at."""
        return Result(self._stream, self._schema, row)

    def _stream(self) -> Iterator[pa.RecordBatch]:
        left = NO_LIMIT if self.limit is None else self.limit
        with self._cursor() as cursor:
            for picked, bounds in self._pages(cursor, left):
                for batch in self._page(cursor, picked, bounds, left).to_arrow_reader(BATCH_ROWS):
                    left -= batch.num_rows
                    yield batch
                if left <= 0:
                    return

    def _schema(self) -> pa.Schema:
        with self._cursor() as cursor:
            found: pa.Schema = self._page(cursor, keys_table([]), (0, 0), 0).to_arrow_table().schema
            return found

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self.file.own_cursor({"chosen": keys_table(self.chosen or [])}) as cursor:
            cursor.execute("BEGIN TRANSACTION")
            yield cursor

    def _pages(
        self, cursor: duckdb.DuckDBPyConnection, wanted: int
    ) -> Iterator[tuple[pa.Table, tuple[int, int]]]:
        """Groups that have about PAGE_ITEMS items together, and between which `seq` these lie."""
        size = min(PAGE_ITEMS, max(wanted, 100))
        after = 0
        while True:
            groups = cursor.execute(
                sql(f"read.{self.what}_groups"),
                {
                    "after": after,
                    "by_choice": self.chosen is not None,
                    "by_namespace": self.namespace is not None,
                    "namespace": self.namespace,
                },
            ).fetchall()
            if not groups:
                return
            page: list[GroupKey] = []
            first, last, items = groups[0][1], 0, 0
            for group_id, begins, ends, count in groups:
                page.append(("", group_id))
                last, items = max(last, ends), items + count
                if items >= size:
                    yield keys_table(page), (first, last)
                    page, first, last, items = [], begins, 0, 0
            if page:
                yield keys_table(page), (first, last)
            after = groups[-1][1]

    def _page(
        self, cursor: duckdb.DuckDBPyConnection, picked: pa.Table, bounds: tuple[int, int], left: int
    ) -> duckdb.DuckDBPyRelation:
        cursor.register("picked", picked)
        known = {**self.parameters, "limit": left}
        if self.what == "verdict":
            known |= {"first": bounds[0], "last": bounds[1]}
        return cursor.sql(sql(f"read.{self.what}_rows"), params=known)


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
