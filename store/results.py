"""What readers get: typed rows, and results that are run when they are looked at."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from ..core.keys import reference
from ..core.types import Point

if TYPE_CHECKING:
    import pyarrow as pa

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """The current verdict on one item, with where it came from.

    Attributes:
        group: the group's name; `group_id` tells groups of one name apart.
        decision: "keep", "drop" or "error"; `reason` says why.
        rank: 1 is best within its group; None for errors, blanks and duplicates.
        logit: the cross-encoder's raw score, float32.
        probability: None unless the policy is calibrated.
        duplicate_of: the item whose verdict this one follows.
        excerpt: the chunk that earned the score: characters `excerpt_start` to `excerpt_end` of the text.
        text: None where it was not asked for, or was pruned: `flags` has "text_pruned" then.
        meta: what the recorder added.
        policy_hash: names the rules that judged, `model_key` the model.
    """

    item_id: UUID
    namespace: str
    group_id: UUID
    group: str | None
    run: str | None
    step: str | None
    kind: str
    agent: str | None
    query: str | None
    policy: str
    decision: str
    rank: int | None
    logit: float | None
    probability: float | None
    reason: str
    duplicate_of: UUID | None
    excerpt_start: int | None
    excerpt_end: int | None
    excerpt: str | None
    text: str | None
    chars: int
    flags: tuple[str, ...]
    meta: Mapping[str, Any]
    created_at: datetime
    model_key: str
    policy_hash: UUID | None
    sweep_id: UUID
    seq: int

    @property
    def item_ref(self) -> str:
        """What people type: `i_...`."""
        return reference("i", self.item_id)

    @property
    def group_ref(self) -> str:
        """`g_...`."""
        return reference("g", self.group_id)

    @property
    def sweep_ref(self) -> str:
        """`s_...`."""
        return reference("s", self.sweep_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """A group's current summary (or one item's, where the policy says so).

    Attributes:
        status: "done", "skipped", "error" or "extract" (excerpts standing in until a model wrote one).
        stale: made from earlier verdicts than the current ones.
        points: statements with the items they cite.
        item_id: None for the whole group's.
        left_out: kept items that did not fit.
    """

    namespace: str
    group_id: UUID
    group: str | None
    query: str | None
    policy: str
    item_id: UUID | None
    status: str
    stale: bool
    text: str
    points: tuple[Point, ...]
    output: Any
    reason: str
    model_key: str | None
    finish_reason: str | None
    prompt_tokens: int
    output_tokens: int
    left_out: int
    calls: int
    levels: int
    written_at: datetime
    sweep_id: UUID
    judged_sweep: UUID | None

    @property
    def group_ref(self) -> str:
        """`g_...`."""
        return reference("g", self.group_id)

    @property
    def sweep_ref(self) -> str:
        """`s_...`."""
        return reference("s", self.sweep_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One sweep.

    Attributes:
        number: counts them.
        outcome: as in its account; "killed" where it never ended, None while it runs.
        config: what it ran with; `account`: its books, {} where it did not end.
    """

    number: int
    sweep_id: UUID
    started: datetime
    ended: datetime | None
    outcome: str | None
    config: Mapping[str, Any]
    account: Mapping[str, Any]

    @property
    def ref(self) -> str:
        """`s_...`."""
        return reference("s", self.sweep_id)

    @property
    def seconds(self) -> float | None:
        """From start to end."""
        return (self.ended - self.started).total_seconds() if self.ended else None


class Result(Generic[Row]):
    """Rows of a reading, fetched when asked for, each time anew.

        result.arrow()      all of it as a pyarrow.Table (ids are text there)
        for row in result   typed rows, in batches: memory stays bounded
        result.to_list()    all of them

    Valid while its ledger is open.
    """

    def __init__(
        self,
        stream: Callable[[], Iterator[pa.RecordBatch]],
        schema: Callable[[], pa.Schema],
        row: Callable[[Mapping[str, Any]], Row],
    ) -> None:
        self._stream = stream
        self._schema = schema
        self._row = row

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches, for what may not fit into memory."""
        return self._stream()

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        import pyarrow as pa

        batches = list(self._stream())
        return pa.Table.from_batches(batches) if batches else self._schema().empty_table()

    def __iter__(self) -> Iterator[Row]:
        for batch in self._stream():
            for values in batch.to_pylist():
                yield self._row(values)

    def to_list(self) -> list[Row]:
        """All rows as typed values."""
        return list(self)


def verdict_row(values: Mapping[str, Any]) -> VerdictRow:
    """A typed row of a row of Arrow."""
    uuids = _uuids(values, "item_id", "group_id", "duplicate_of", "policy_hash", "sweep_id")
    meta = json.loads(values["meta"]) if values["meta"] else {}
    return VerdictRow(**{**values, **uuids, "flags": tuple(values["flags"] or ()), "meta": meta})


def summary_row(values: Mapping[str, Any]) -> SummaryRow:
    """A typed row of a row of Arrow."""
    uuids = _uuids(values, "group_id", "item_id", "sweep_id", "judged_sweep")
    points = points_of(values["points"])
    output = None if values["output"] is None else json.loads(values["output"])
    return SummaryRow(**{**values, **uuids, "points": points, "output": output})


def points_of(text: str) -> tuple[Point, ...]:
    """Points as they stand in a summary's JSON."""
    return tuple(
        Point(
            text=point["text"],
            items=tuple(UUID(item) for item in point["items"]),
            support=point["support"],
            marks=tuple(point["marks"]),
        )
        for point in json.loads(text)
    )


def sweep_row(values: tuple[Any, ...]) -> SweepRow:
    """A typed row of (number, sweep_id, started, ended, outcome, config, account)."""
    number, sweep_id, started, ended, outcome, config, account = values
    return SweepRow(
        number=number,
        sweep_id=sweep_id,
        started=started,
        ended=ended,
        outcome=outcome,
        config=json.loads(config) if config else {},
        account=json.loads(account) if account else {},
    )


def _uuids(values: Mapping[str, Any], *names: str) -> dict[str, UUID | None]:
    return {name: None if values[name] is None else UUID(values[name]) for name in names}
