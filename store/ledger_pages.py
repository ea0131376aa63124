"""Current verdicts and summaries, a page of groups at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .columns import keys_table
from .ledger_file import LedgerFile
from .ledger_values import GroupKey
from .results import Result
from .sqlfiles import sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

NO_LIMIT = 2**62
BATCH_ROWS = 2048
PAGE_ITEMS = 50_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows of groups, in the order in which the groups began: a page of groups at a time.

    So a first row costs no sort of everything, all rows never lie in memory at once, and each page reads
    only where in the ledger its groups lie. All pages see the ledger as it was at the first.

    Attributes:
        chosen: only these groups; None for all.
        parameters: what the rows' statement asks for besides.
        since: only groups that changed after this change number.
    """

    file: LedgerFile
    what: Literal["verdict", "summary"]
    chosen: list[GroupKey] | None = None
    namespace: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    since: int = 0

    @classmethod
    def changed(cls, file: LedgerFile, what: Literal["verdict", "summary"], since: int) -> Reading:
        """All of what readers see in groups that changed after `since`; of dropped items no texts."""
        asked: dict[str, Any] = {"status": None}
        if what == "verdict":
            asked = {"run": None, "seq": None, "keep": None, "text": False, "kept_text": True}
        return cls(file, what, parameters=asked, since=since)

    def result(self, row: Callable[[Mapping[str, Any]], Any]) -> Result[Any]:
        """Nothing is read before it is looked at."""
        return Result(self.batches, self._schema, row)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
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
                    "since": self.since,
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
                if not page:
                    first = begins
                page.append(("", group_id))
                last, items = max(last, ends), items + count
                if items >= size:
                    yield keys_table(page), (first, last)
                    page, last, items = [], 0, 0
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
