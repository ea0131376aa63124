"""What the commands that read have in common: the ledger for a moment, and rows as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import home_at, load_config

if TYPE_CHECKING:
    from ..store.export_read import ExportReader
    from ..store.ledger import Ledger
    from ..store.results import SummaryRow, VerdictRow


@contextmanager
def reading(home: Path | None, config: Path | None) -> Iterator[Ledger]:
    """The home's ledger, read-only.

    Raises:
        LedgerMissing, LedgerBusy, StoreError: as `Ledger.open`.
    """
    from ..store.ledger import Ledger

    place = home_at(home)
    patience = load_config(config, place).store.busy_timeout.total_seconds()
    with Ledger.open(place.ledger, read_only=True, timeout=patience) as ledger:
        yield ledger


@contextmanager
def reading_anyway(home: Path | None, config: Path | None) -> Iterator[Ledger | ExportReader]:
    """As `reading`; where somebody holds the ledger, what was exported last, and a note that says of when.

    Waits two seconds at most: sweeps hold the ledger for less, whoever holds it longer does so for long.

    Raises:
        LedgerMissing, LedgerBusy (held, and nothing was exported yet), StoreError: as `Ledger.open`.
    """
    from ..store.export_read import ExportReader, open_reader
    from .output import ago, note

    place = home_at(home)
    patience = load_config(config, place).store.busy_timeout.total_seconds()
    with open_reader(place, timeout=min(2.0, patience)) as reader:
        if isinstance(reader, ExportReader):
            note(f"the ledger is held: this is the export, as of {ago(reader.as_of)}")
        yield reader


def verdict_json(row: VerdictRow, *, text: bool) -> dict[str, Any]:
    """A verdict as `afterpass verdicts --json` has it."""
    from ..core.keys import reference

    fields = {
        "item": row.item_ref,
        "group": row.group_ref,
        "sweep": row.sweep_ref,
        "item_id": row.item_id,
        "namespace": row.namespace,
        "group_name": row.group,
        "run": row.run,
        "step": row.step,
        "kind": row.kind,
        "agent": row.agent,
        "query": row.query,
        "policy": row.policy,
        "decision": row.decision,
        "reason": row.reason,
        "rank": row.rank,
        "logit": row.logit,
        "probability": row.probability,
        "duplicate_of": row.duplicate_of and reference("i", row.duplicate_of),
        "excerpt": row.excerpt,
        "excerpt_start": row.excerpt_start,
        "excerpt_end": row.excerpt_end,
        "chars": row.chars,
        "flags": row.flags,
        "meta": row.meta,
        "created_at": row.created_at,
        "model_key": row.model_key,
        "policy_hash": row.policy_hash,
    }
    return {**fields, "text": row.text} if text else fields


def summary_json(row: SummaryRow) -> dict[str, Any]:
    """A summary as `afterpass summaries --json` has it."""
    from ..core.keys import reference

    return {
        "group": row.group_ref,
        "sweep": row.sweep_ref,
        "judged_sweep": row.judged_sweep and reference("s", row.judged_sweep),
        "namespace": row.namespace,
        "group_name": row.group,
        "query": row.query,
        "policy": row.policy,
        "item": row.item_id and reference("i", row.item_id),
        "status": row.status,
        "stale": row.stale,
        "text": row.text,
        "points": [
            {
                "text": point.text,
                "items": [reference("i", item) for item in point.items],
                "support": point.support,
                "marks": point.marks,
            }
            for point in row.points
        ],
        "output": row.output,
        "reason": row.reason,
        "model_key": row.model_key,
        "finish_reason": row.finish_reason,
        "prompt_tokens": row.prompt_tokens,
        "output_tokens": row.output_tokens,
        "left_out": row.left_out,
        "calls": row.calls,
        "levels": row.levels,
        "written_at": row.written_at,
    }
