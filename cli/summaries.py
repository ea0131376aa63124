"""`afterpass summaries`: the groups' short texts, with their sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    ConfigOption,
    GroupOption,
    HomeOption,
    JsonOption,
    LimitOption,
    NamespaceOption,
    RunOption,
    examples,
)
from .output import emit_rows, line, note, one_line
from .reading import reading_anyway, summary_json

if TYPE_CHECKING:
    from ..store.results import SummaryRow

EXAMPLES = examples(
    "afterpass summaries --run night-7",
    "afterpass summaries --status extract",
    "afterpass summaries --group tickets --json",
)


def summaries(
    group: GroupOption = None,
    run: RunOption = None,
    namespace: NamespaceOption = None,
    status: Annotated[
        str | None,
        typer.Option("--status", help="Only done, skipped, error or extract.", show_default=False),
    ] = None,
    limit: LimitOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List the current summaries; stale ones (made from earlier verdicts) and extracts are marked."""
    from ..core.errors import InputError

    if status not in (None, "done", "skipped", "error", "extract"):
        raise InputError(f"--status {status!r} is none", hint="one of done, skipped, error, extract")
    with reading_anyway(home, config) as ledger:
        found = ledger.summaries(group=group, run=run, namespace=namespace, status=status, limit=limit)
        if json:
            emit_rows("summaries", (summary_json(row) for row in found))
            return
        count = 0
        for row in found:
            show(row)
            count += 1
    if not count:
        note("no summaries")


def told(marks: Iterable[str]) -> str:
    """What the check noticed of a point, in words; "" where nothing."""
    from ..summarize.support import NO_SOURCE, UNSOURCED

    known = list(marks)
    words = [mark.replace("_", " ") for mark in known if mark != NO_SOURCE and not mark.startswith(UNSOURCED)]
    if loose := [mark.removeprefix(UNSOURCED) for mark in known if mark.startswith(UNSOURCED)]:
        words.append(f"not in its sources: {', '.join(loose)}")
    return "; ".join(words)


def show(row: SummaryRow) -> None:
    """One summary: its question, its points and what they rest on."""
    from ..core.keys import reference

    marks = [row.status] if row.status != "done" else []
    marks += ["stale: newer verdicts exist"] if row.stale else []
    marked = f"  [{', '.join(marks)}]" if marks else ""
    item = f" {reference('i', row.item_id)}" if row.item_id else ""
    line(f"{row.group_ref}{item}  {row.query or row.group or ''}{marked}")
    if row.reason:
        line(f"  ({row.reason})")
    for point in row.points:
        sources = ", ".join(reference("i", item) for item in point.items) or "no source found"
        marked = f"  [{noticed}]" if (noticed := told(point.marks)) else ""
        line(f"  - {one_line(point.text, 300)}  ({sources}){marked}")
    if not any(point.items for point in row.points):  # extracts, under their own label
        for text in row.text.splitlines():
            line(f"  {text}")
    line()
