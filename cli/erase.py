"""`afterpass erase`: forget items, and what was made from them, in every file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    ConfigOption,
    HomeOption,
    JsonOption,
    NamespaceOption,
    YesOption,
    examples,
    home_at,
    load_config,
    parse_duration,
)
from .output import emit, facts, note, size

if TYPE_CHECKING:
    from ..store.erase import Forgotten

EXAMPLES = examples(
    "# What would go",
    "afterpass erase --where meta.user=42",
    "afterpass erase --where meta.user=42 --yes",
    "afterpass erase --item i_3f9c02d41a77 --copies --yes",
    "afterpass erase --run night-7 --where agent=crawler --yes",
)

TRY_AGAIN = 75


def erase(
    item: Annotated[
        list[str] | None,
        typer.Option("--item", help="i_... or a whole id; may be given again.", show_default=False),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Items of this run.", show_default=False)] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="A group's name, or g_... .", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            help="FIELD=VALUE: step, kind, agent, policy, namespace or meta.KEY; may be given again.",
            show_default=False,
        ),
    ] = None,
    namespace: NamespaceOption = None,
    copies: Annotated[
        bool, typer.Option("--copies", help="And every other item with the same text.")
    ] = False,
    wait: Annotated[
        str, typer.Option("--wait", help="How long agents get to seal the segments that they write.")
    ] = "10s",
    yes: YesOption = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Erase the items of which all that is given holds, and what was made from them, in every file.

    Their groups are judged and summarised again from the rest. What an agent has not written yet, files that
    `export` wrote and backups are yours to look after. Exit 75: an agent still writes to a segment with such
    an item; call it again.
    """
    from ..store import erase as store
    from ..store.erase_filter import which
    from ..sweep.lock import sweep_lock

    place = home_at(home)
    settings = load_config(config, place).store
    meant = which(items=item or (), run=run, group=group, namespace=namespace, where=where or ())
    patience = parse_duration(wait, "--wait")
    assert patience is not None
    if yes:
        with sweep_lock(place.lock):
            found = store.erase(place, settings, meant, copies=copies, wait=patience.total_seconds())
    else:
        found = store.preview(place, settings, meant, copies=copies)
    if json:
        emit({"dry_run": not yes, **_json(found)})
    else:
        _show(found, yes)
    if found.unreached:
        raise typer.Exit(TRY_AGAIN)


def _json(found: Forgotten) -> dict[str, Any]:
    from dataclasses import asdict

    told = asdict(found)
    before, after = told.pop("before"), told.pop("after")
    return {**told, "ledger_bytes": None if after is None else {"before": before, "after": after}}


def _show(found: Forgotten, done: bool) -> None:
    verb = "gone" if done else "would go"
    names = ("items", "texts", "scores", "verdicts", "summaries", "replies", "quarantined")
    facts([(f"{verb}: {name}", getattr(found, name)) for name in names])
    if found.spool:
        facts([(f"{verb}: items of the spool", found.spool)])
    facts([("groups judged again", found.groups - found.groups_gone), ("groups gone", found.groups_gone)])
    if found.after is not None and found.before is not None:
        facts([("ledger", f"{size(found.before)} before, {size(found.after)} now")])
    if found.texts_shared:
        note(f"{found.texts_shared:,} texts stay: other items have them too; --copies takes those as well")
    for why in found.unreached:
        note(f"not reached: {why}")
    if found.other_files:
        note(f"not Afterpass's own, look there yourself: {', '.join(found.other_files[:10])}")
    note("backups and exported files are yours to look after" if done else "--yes does it")
