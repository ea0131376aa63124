"""`afterpass verdicts`: what was kept, what was dropped, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import (
    ConfigOption,
    GroupOption,
    HomeOption,
    JsonOption,
    LimitOption,
    NamespaceOption,
    examples,
)
from .output import emit_rows, note, table
from .reading import reading_anyway, verdict_json

EXAMPLES = examples(
    "afterpass verdicts --keep --run night-7",
    "afterpass verdicts --group tickets --json | jq '.verdicts[].excerpt'",
    "# SQL sees the same rows",
    "duckdb ~/.local/share/afterpass/ledger.duckdb 'FROM current_verdict'",
)

SHOWN = 200


def verdicts(
    group: GroupOption = None,
    run: Annotated[
        str | None, typer.Option("--run", help="Only items of this run.", show_default=False)
    ] = None,
    namespace: NamespaceOption = None,
    item: Annotated[
        str | None, typer.Option("--item", help="Only this item, i_... .", show_default=False)
    ] = None,
    keep: Annotated[
        bool | None, typer.Option("--keep/--not-kept", help="Only what is kept, or only what is not.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="With --json: whole texts, not excerpts alone.")
    ] = False,
    limit: LimitOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List the current verdicts, best first within each group."""
    with reading_anyway(home, config) as ledger:
        found = ledger.verdicts(
            group=group,
            run=run,
            keep=keep,
            namespace=namespace,
            item=item,
            text=json and text,
            limit=limit if json or limit else SHOWN + 1,
        )
        if json:
            emit_rows("verdicts", (verdict_json(row, text=text) for row in found))
            return
        rows = found.to_list()
    shown = rows if limit else rows[:SHOWN]
    table(
        ["item", "group", "decision", "rank", "logit", "reason", "excerpt"],
        (
            [
                row.item_ref,
                row.group_ref,
                row.decision,
                row.rank,
                _logit(row.logit),
                row.reason,
                row.excerpt or ("(its text was pruned)" if "text_pruned" in row.flags else ""),
            ]
            for row in shown
        ),
        wide=["excerpt"],
    )
    if len(shown) < len(rows):
        note(f"the first {SHOWN}; --limit N shows more, --json all")


def _logit(logit: float | None) -> str | None:
    return None if logit is None else f"{logit:.2f}"
