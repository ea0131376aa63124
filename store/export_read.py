"""Reading while somebody else holds the ledger: from the Parquet beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.errors import LedgerBusy
from ..core.keys import parse_reference
from ..core.paths import Home
from .export import Manifest, read_manifest
from .ledger import Ledger
from .ledger_open import in_memory
from .ledger_pages import BATCH_ROWS, NO_LIMIT
from .results import Result, SummaryRow, VerdictRow, summary_row, verdict_row
from .sqlfiles import sql

if TYPE_CHECKING:
    import pyarrow as pa


class ExportReader:
    """Current verdicts and summaries as they were exported last; asks as `Ledger` does.

    Dropped items come without text and excerpt: those stay in the ledger.

    Attributes:
        as_of: up to when the ledger is seen here.
    """

    def __init__(self, home: Home, manifest: Manifest) -> None:
        self._home = home
        self._manifest = manifest
        self.as_of = datetime.fromisoformat(manifest.as_of) if manifest.as_of else None

    def close(self) -> None:
        """There is nothing to close."""

    def __enter__(self) -> ExportReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def verdicts(
        self,
        *,
        group: str | None = None,
        run: str | None = None,
        keep: bool | None = None,
        namespace: str | None = None,
        item: str | None = None,
        text: bool = True,
        limit: int | None = None,
    ) -> Result[VerdictRow]:
        """As `Ledger.verdicts`; a name that nothing goes by gives no rows."""
        asked = {**_group(group), "item_tail": _tail(item), "namespace": namespace, "run": run, "keep": keep}

        def row(values: Mapping[str, Any]) -> VerdictRow:
            return verdict_row(values if text else {**values, "text": None})

        return self._result("verdicts", [live.name for live in self._manifest.verdicts], asked, limit, row)

    def summaries(
        self,
        *,
        group: str | None = None,
        run: str | None = None,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Result[SummaryRow]:
        """As `Ledger.summaries`; a name that nothing goes by gives no rows."""
        asked = {**_group(group), "namespace": namespace, "status": status, "groups": self._groups_of(run)}
        names = [live.name for live in self._manifest.summaries]
        return self._result("summaries", names, asked, limit, summary_row)

    def _groups_of(self, run: str | None) -> list[str] | None:
        if run is None:
            return None
        files = self._paths([live.name for live in self._manifest.verdicts])
        if not files:
            return []
        connection = in_memory()
        try:
            found = connection.execute(sql("export.groups_of_run"), {"files": files, "run": run}).fetchall()
        finally:
            connection.close()
        return [group_id for (group_id,) in found]

    def _paths(self, names: list[str]) -> list[str]:
        return [str(self._home.exports / name) for name in names]

    def _result(
        self,
        statement: str,
        names: list[str],
        asked: Mapping[str, Any],
        limit: int | None,
        row: Callable[[Mapping[str, Any]], Any],
    ) -> Result[Any]:
        known = {**asked, "files": self._paths(names), "limit": NO_LIMIT if limit is None else limit}

        def stream() -> Iterator[pa.RecordBatch]:
            if not names:
                return
            connection = in_memory()
            try:
                yield from connection.sql(sql(f"export.{statement}"), params=known).to_arrow_reader(
                    BATCH_ROWS
                )
            finally:
                connection.close()

        def schema() -> pa.Schema:
            import pyarrow as pa
            import pyarrow.parquet as pq

            return pq.read_schema(self._home.exports / names[0]) if names else pa.schema([])

        return Result(stream, schema, row)


def open_reader(home: Home, *, timeout: float = 30.0) -> Ledger | ExportReader:
    """The ledger for reading; or, where somebody holds it for longer than `timeout`, what was exported.

    Raises:
        LedgerBusy: it is held, and nothing was exported yet.
        LedgerMissing, StoreError: as `Ledger.open`.
    """
    try:
        return Ledger.open(home.ledger, read_only=True, timeout=timeout)
    except LedgerBusy:
        manifest = read_manifest(home)
        if manifest.as_of is None:
            raise
        return ExportReader(home, manifest)


def _group(group: str | None) -> dict[str, str | None]:
    parsed = parse_reference(group) if group is not None else None
    if parsed is not None and parsed[0] in ("g", ""):
        return {"group_name": None, "group_tail": parsed[1]}
    return {"group_name": group, "group_tail": None}


def _tail(reference: str | None) -> str | None:
    parsed = parse_reference(reference) if reference is not None else None
    return parsed[1] if parsed else reference
