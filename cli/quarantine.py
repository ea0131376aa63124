"""`afterpass quarantine`: what could not become an item."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, command, examples, home_at, load_config
from .output import emit, facts, line, note, printable, size, table

EXAMPLES = examples(
    "afterpass quarantine list",
    "# The text was under another name",
    "afterpass quarantine retry --reason no_text --map text=body",
    "# The same id with another text: it gets an id of its own",
    "afterpass quarantine retry --reason id_conflict --new-ids",
    "afterpass quarantine drop q_3f9c02d41a77 --yes",
)

app = typer.Typer(
    help="What could not become an item: list, show, retry, drop.", no_args_is_help=True, epilog=EXAMPLES
)

RefsArgument = Annotated[
    list[str] | None, typer.Argument(help="q_... of some; all where none is named.", show_default=False)
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only of this reason.", show_default=False)
]

SHOWN = 200


@command(app, "list", EXAMPLES)
def list_(
    reason: ReasonOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, newest first.")] = SHOWN,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """List what could not be read, by file and line."""
    from ..store import quarantine as store
    from ..store.ledger_file import LedgerFile

    place = home_at(home)
    patience = load_config(config, place).store.busy_timeout.total_seconds()
    with closing(LedgerFile(place.ledger, read_only=True, timeout=patience)) as file:
        found = store.entries(file, reason=reason, limit=limit)
        counts = store.reasons(file)
    if json:
        emit({"reasons": counts, "quarantine": [_json(entry) for entry in found]})
        return
    if not found:
        note("the quarantine is empty")
        return
    table(
        ["id", "source", "line", "reason", "bytes", "detail"],
        ([e.ref, e.source or "recorded by a hook", e.line, e.reason, size(e.size), e.detail] for e in found),
        wide=["detail", "source"],
    )
    note(", ".join(f"{count:,} {name}" for name, count in counts.items()))


@command(app, "show", EXAMPLES)
def show(
    ref: Annotated[str, typer.Argument(help="q_... .")],
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show one with its bytes, as text where they are text."""
    from ..store import quarantine as store
    from ..store.ledger_file import LedgerFile

    place = home_at(home)
    patience = load_config(config, place).store.busy_timeout.total_seconds()
    with closing(LedgerFile(place.ledger, read_only=True, timeout=patience)) as file:
        found = store.entry(file, ref)
    raw = (found.raw or b"").decode("utf-8", "backslashreplace")
    if json:
        emit({**_json(found), "raw": raw})
        return
    facts((name, value) for name, value in _json(found).items())
    line()
    for text in printable(raw).split("\n"):
        line(text)


@command(app, "retry", EXAMPLES)
def retry(
    refs: RefsArgument = None,
    reason: ReasonOption = None,
    map: Annotated[
        list[str] | None, typer.Option("--map", help="field=path, as for import.", show_default=False)
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", help="For records that bring none.", show_default=False)
    ] = None,
    new_ids: Annotated[bool, typer.Option("--new-ids", help="Give the items ids of their own.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Read the bytes again, another way perhaps, and import what can be read now. The rest stays."""
    from ..store import quarantine as store
    from ..store.formats import FieldMap, Options

    place = home_at(home)
    settings = load_config(config, place).store
    options = Options(mapping=FieldMap.parse(map) if map else None, defaults={"query": query})
    done = store.retry(
        place, settings, refs or (), reason=reason, options=options, fresh_ids=new_ids,
        timeout=settings.busy_timeout.total_seconds(),
    )  # fmt: skip
    if json:
        emit({"items": done.items, "still": dict(done.still)})
    else:
        facts([("now items", done.items), ("still in quarantine", dict(done.still) or 0)])
        if "id_conflict" in done.still:
            note("their ids belong to other texts: --new-ids gives them ids of their own")


@command(app, "drop", EXAMPLES)
def drop(
    refs: RefsArgument = None,
    reason: ReasonOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really; without it, only the count is shown.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Throw them away for good, bytes and all."""
    from ..store import quarantine as store
    from ..store.ledger_file import LedgerFile

    place = home_at(home)
    patience = load_config(config, place).store.busy_timeout.total_seconds()
    with closing(LedgerFile(place.ledger, read_only=not yes, timeout=patience)) as file:
        ids = store.chosen(file, refs or (), reason=reason)
        dropped = store.drop(file, ids) if yes and ids else 0
    if json:
        emit({"chosen": len(ids), "dropped": dropped})
    elif yes:
        facts([("dropped", dropped)])
    else:
        facts([("would be dropped", len(ids))])
        note("--yes does it")


def _json(entry: Any) -> dict[str, Any]:
    return {
        "id": entry.ref,
        "quarantine_id": entry.quarantine_id,
        "source": entry.source,
        "line": entry.line,
        "reason": entry.reason,
        "detail": entry.detail,
        "bytes": entry.size,
        "at": entry.at,
    }
