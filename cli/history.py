"""`afterpass history`: the sweeps there were, one of them whole, and what changed between two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, command, examples
from .output import cell, emit, facts, line, note, table
from .reading import reading

if TYPE_CHECKING:
    from ..store.results import SweepRow

EXAMPLES = examples(
    "afterpass history",
    "afterpass history show last",
    "afterpass history diff s_0a1b2c3d4e5f s_f0e1d2c3b4a5",
)

app = typer.Typer(
    help="The sweeps there were; one of them; what changed between two.",
    epilog=EXAMPLES,
    invoke_without_command=True,
)


@app.callback(epilog=EXAMPLES)
def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, newest first.")] = 20,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List the sweeps, newest first."""
    if context.invoked_subcommand is not None:
        return
    with reading(home, config) as ledger:
        rows = ledger.history(limit)
    if json:
        emit({"sweeps": [sweep_json(row) for row in rows]})
        return
    table(
        [
            "sweep",
            "started",
            "outcome",
            "seconds",
            "items",
            "kept",
            "dropped",
            "errors",
            "groups",
            "summaries",
        ],
        (
            [
                row.ref,
                row.started,
                row.outcome or "running",
                row.seconds and round(row.seconds, 1),
                *(_count(row, "items", name) for name in ("seen", "kept", "dropped", "errors")),
                _count(row, "groups", "judged"),
                _count(row, "groups", "summarised"),
            ]
            for row in rows
        ),
    )


@command(app, "show", EXAMPLES)
def show(
    ref: Annotated[str, typer.Argument(help='s_..., or "last".')] = "last",
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show one sweep: its account and what it ran with."""
    with reading(home, config) as ledger:
        story = sweep_json(ledger.sweep(ref))
    if json:
        emit(story)
    else:
        show_sweep(story)


@command(app, "diff", EXAMPLES)
def diff(
    a: Annotated[str, typer.Argument(help="A sweep, s_... .")],
    b: Annotated[str, typer.Argument(help='Another, or "last".')] = "last",
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show which verdicts two sweeps leave different, and which configuration keys."""
    with reading(home, config) as ledger:
        found = dict(ledger.diff(a, b))
    if json:
        emit(found)
        return
    changed = f"{len(found['changed']):,} changed, {found['same']:,} same, {found['new']:,} new"
    line(f"{found['a']} -> {found['b']}: {changed}")
    for change in found["config"]:
        line(f"  {change['key']}: {cell(change['before'])} -> {cell(change['after'])}")
    if found["changed"]:
        table(
            ["item", "group", "before", "after", "rank", "logit", "why"],
            (
                [
                    change["item"],
                    change["group_name"] or change["group"],
                    change["before"]["decision"],
                    change["after"]["decision"],
                    f"{cell(change['before']['rank'])} -> {cell(change['after']['rank'])}",
                    f"{cell(change['before']['logit'])} -> {cell(change['after']['logit'])}",
                    _why(change),
                ]
                for change in found["changed"]
            ),
            wide=["why", "group"],
        )


def sweep_json(row: SweepRow) -> dict[str, Any]:
    """A sweep as `history --json` has it."""
    return {
        "sweep": row.ref,
        "sweep_id": row.sweep_id,
        "started": row.started,
        "ended": row.ended,
        "seconds": row.seconds,
        "outcome": row.outcome,
        "account": row.account,
        "config": row.config,
    }


def show_sweep(story: dict[str, Any]) -> None:
    """A sweep for people."""
    facts([("started", story["started"]), ("ended", story["ended"])])
    if story["account"]:
        from .sweep import show as show_account

        show_account(story["account"])
        for problem in story["account"]["problems"]:
            line(f"problem: {problem}")
    else:
        facts([("sweep", story["sweep"]), ("outcome", story["outcome"] or "running")])
        note("it has no account: it never ended")


def _count(row: SweepRow, part: str, name: str) -> int | None:
    counts = row.account.get(part)
    return counts.get(name) if isinstance(counts, dict) else None


def _why(change: dict[str, Any]) -> str:
    reasons = ["another model"] * bool(change["other_model"]) + ["another policy"] * bool(
        change["other_policy"]
    )
    return ", ".join([*reasons, change["after"]["reason"]])
