"""`afterpass prune`: what grew old goes, and its space comes back."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    ConfigOption,
    HomeOption,
    JsonOption,
    YesOption,
    examples,
    home_at,
    load_config,
    parse_duration,
)
from .output import emit, facts, note, size, table

if TYPE_CHECKING:
    from ..store.prune import Going
    from ..store.rewrite import Rewritten

EXAMPLES = examples(
    "# What would go",
    "afterpass prune --older-than 90d",
    "afterpass prune --older-than 90d --yes",
    "# Verdicts and summaries stay readable, without the texts",
    "afterpass prune --older-than 30d --keep-verdicts --yes",
)

REASONS = {
    "not_judged": "wait to be judged",
    "no_summary": "wait for a summary",
    "no_query": "have no query",
}


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", help='Groups for which nothing came for so long ("90d").')
    ],
    keep_verdicts: Annotated[
        bool, typer.Option("--keep-verdicts", help="Only texts go; verdicts and summaries stay readable.")
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove groups that are old and done with, and what was made of them.

    Groups with due or pending work stay, whatever their age. The ledger is written anew without what goes,
    which needs room beside it, and takes the old one's place at the end.
    """
    from datetime import UTC, datetime

    from ..store import prune as store
    from ..store.door import Door
    from ..store.export import mark_stale, update
    from ..store.ledger_file import LedgerFile
    from ..sweep.lock import sweep_lock

    place = home_at(home)
    settings = load_config(config, place)
    age = parse_duration(older_than, "--older-than")
    assert age is not None
    before = datetime.now(UTC) - age
    summarised = [name for name, policy in settings.policy.items() if policy.summarize.enabled]
    patience = settings.store.busy_timeout.total_seconds()
    done: Rewritten | None = None
    if yes:
        with sweep_lock(place.lock):
            door = Door(place, settings.store)
            door.ingest()  # what waits may belong to an old group, which then is not done with
            door.open().close()
            with closing(LedgerFile(place.ledger, timeout=patience)) as file:
                going = store.choose(file, before=before, summarised=summarised, keep_verdicts=keep_verdicts)
                if not going.nothing:
                    mark_stale(place)  # readers see what there was until it is written anew
                    done = store.prune(file)
            if done is not None and settings.store.export:
                with closing(LedgerFile(place.ledger, timeout=patience)) as file:
                    update(place, file)
    else:
        with closing(LedgerFile(place.ledger, read_only=True, timeout=patience)) as file:
            going = store.choose(file, before=before, summarised=summarised, keep_verdicts=keep_verdicts)
    if json:
        emit({"dry_run": not yes, "before": before, "keep_verdicts": keep_verdicts, **_json(going, done)})
        return
    _show(going, done, keep_verdicts)
    if not yes and not going.nothing:
        note(f"--yes does it, with up to {size(going.room)} free beside the ledger")


def _json(going: Going, done: Rewritten | None) -> dict[str, Any]:
    from dataclasses import asdict

    told = asdict(going)
    told["room_needed"] = told.pop("room")
    ledger = None if done is None else {"before": done.before, "after": done.after}
    return {**told, "ledger_bytes": ledger}


def _show(going: Going, done: Rewritten | None, keep_verdicts: bool) -> None:
    verb = "gone" if done else "would go"
    if going.nothing:
        note("nothing is old enough and done with")
    else:
        table(
            ["last item", "groups", "items", "texts", "bytes"],
            (
                [month.month, month.groups, month.items, month.texts, size(month.text_bytes)]
                for month in going.months
            ),
        )
        rows: list[tuple[str, object]] = [
            ("groups", going.groups),
            ("items" + (" (their texts)" if keep_verdicts else ""), going.items),
            ("texts", f"{going.texts:,}, {size(going.text_bytes)}"),
        ]
        names = ("scores", "verdicts", "summaries", "replies", "sweeps")
        rows += [(name, getattr(going, name)) for name in names if getattr(going, name)]
        facts((f"{verb}: {name}", value) for name, value in rows)
    if done:
        facts([("ledger", f"{size(done.before)} before, {size(done.after)} now")])
    for reason, groups in going.held_back.items():
        note(f"{groups:,} groups as old stay: they {REASONS[reason]}")
