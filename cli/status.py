"""`afterpass status`: how things stand, and whether a monitor should know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, examples, home_at, load_config, parse_duration
from .output import ago, emit, facts, line, size, span
from .promises import promises, told

if TYPE_CHECKING:
    from ..core.config import Config
    from ..core.paths import Home

EXAMPLES = examples(
    "afterpass status",
    "# For a monitor: exit 4 when no sweep ended well since yesterday or too much waits",
    "afterpass status --max-age 26h --max-pending 100000",
)

ALARM = 4


def status(
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age",
            help="Alarm when the last good sweep, the oldest due item or the oldest segment is older.",
            show_default=False,
        ),
    ] = None,
    max_pending: Annotated[
        int | None,
        typer.Option("--max-pending", min=0, help="Alarm when more items wait.", show_default=False),
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what waits, since when, and how the last sweep ended. Alarms end with exit 4."""
    place = home_at(home)
    settings = load_config(config, place)
    limit = parse_duration(max_age, "--max-age")
    now = datetime.now(UTC)
    spool = spool_state(place, now)
    ledger = _ledger_state(place, settings, now)
    refused = _recently_refused(place, settings, now, limit)
    alarms = _alarms(spool, ledger, refused, now, limit, max_pending)
    kept = promises(place, settings)
    if max_age is not None or max_pending is not None:
        alarms += [told(promise) for promise in kept if promise["withdrawn"]]
    if json:
        emit({"home": place.root, "alarms": alarms, "spool": spool, "ledger": ledger, "promises": kept})
    else:
        _show(place, spool, ledger)
        facts([("promise", told(promise)) for promise in kept])
        for alarm in alarms:
            line(f"ALARM  {alarm}")
    if alarms:
        raise typer.Exit(ALARM)


def spool_state(home: Home, now: datetime) -> dict[str, Any]:
    """Segments that wait and segments that are written: how many, how large, how old."""
    from ..store.spool import open_segments, sealed_segments

    state: dict[str, Any] = {}
    for name, paths in (("sealed", sealed_segments(home)), ("open", open_segments(home))):
        stats = []
        for path in paths:
            try:
                stats.append(path.stat())
            except FileNotFoundError:  # sealed or taken in since it was listed
                continue
        oldest = min((stat.st_mtime for stat in stats), default=None)
        state[name] = {
            "segments": len(stats),
            "bytes": sum(stat.st_size for stat in stats),
            "oldest_seconds": None if oldest is None else max(0.0, now.timestamp() - oldest),
        }
    return state


def _ledger_state(home: Home, config: Config, now: datetime) -> dict[str, Any] | None:
    """The ledger's own counts, or None where there is no ledger yet."""
    from ..core.errors import LedgerMissing
    from ..store.ledger import Ledger

    patience = config.store.busy_timeout.total_seconds()
    try:
        with Ledger.open(home.ledger, read_only=True, timeout=patience) as ledger:
            return dict(ledger.status(now, settle=config.store.settle))
    except LedgerMissing:
        return None


def _recently_refused(home: Home, config: Config, now: datetime, limit: timedelta | None) -> int:
    """Items that hooks had no room for, by the accounts of the sweeps within `limit` (or the last one)."""
    from ..core.errors import LedgerMissing
    from ..store.ledger import Ledger

    try:
        with Ledger.open(
            home.ledger, read_only=True, timeout=config.store.busy_timeout.total_seconds()
        ) as ledger:
            rows = ledger.history(1000 if limit else 1)
    except LedgerMissing:
        return 0
    return sum(
        int(row.account.get("overflowed", 0)) for row in rows if limit is None or now - row.started <= limit
    )


def _alarms(
    spool: dict[str, Any],
    ledger: dict[str, Any] | None,
    refused: int,
    now: datetime,
    max_age: timedelta | None,
    max_pending: int | None,
) -> list[str]:
    if max_age is None and max_pending is None:
        return []
    alarms = []
    if max_age is not None:
        alarms += _too_old(spool, ledger, now, max_age)
    pending = ledger["items"]["pending"] if ledger else 0
    if max_pending is not None and pending > max_pending:
        alarms.append(f"{pending:,} items wait to be judged, more than {max_pending:,}")
    if refused:
        alarms.append(f"{refused:,} items were refused at the hook for want of room ([store] queue_rows)")
    return alarms


def _too_old(
    spool: dict[str, Any], ledger: dict[str, Any] | None, now: datetime, max_age: timedelta
) -> list[str]:
    alarms = []
    good = ledger and ledger["last_good_sweep"]
    since = datetime.fromisoformat(good["started"]) if good else None
    anything = spool["sealed"]["segments"] or (ledger and ledger["items"]["total"])
    if since is not None and now - since > max_age:
        alarms.append(f"the last good sweep was {ago(since)}, more than {span(max_age.total_seconds())}")
    elif since is None and anything:
        alarms.append("no sweep ever ended well")
    waited = ledger["oldest_due_seconds"] if ledger else None
    if waited is not None and waited > max_age.total_seconds():
        alarms.append(f"an item has been due for {span(waited)}, more than {span(max_age.total_seconds())}")
    lain = spool["sealed"]["oldest_seconds"]
    if lain is not None and lain > max_age.total_seconds():
        alarms.append(f"the spool grows: a segment has lain there for {span(lain)}")
    return alarms


def _show(home: Home, spool: dict[str, Any], ledger: dict[str, Any] | None) -> None:
    facts([("home", home.root)])
    sealed, opened = spool["sealed"], spool["open"]
    facts(
        [
            (
                "spool",
                f"{sealed['segments']:,} segments wait ({size(sealed['bytes'])}), "
                f"{opened['segments']:,} are being written ({size(opened['bytes'])})",
            )
        ]
    )
    if ledger is None:
        facts([("ledger", "none yet: the first sweep, plan or import makes it")])
        return
    items, groups, last = ledger["items"], ledger["groups"], ledger["last_sweep"]
    due = ledger["oldest_due_seconds"]
    facts(
        [
            ("ledger", size(ledger["bytes"])),
            (
                "items",
                f"{items['total']:,}: {items['kept']:,} kept, {items['dropped']:,} dropped, "
                f"{items['errors']:,} errors, {items['pending']:,} pending, "
                f"{items['no_query']:,} without a query",
            ),
            (
                "groups",
                f"{groups['total']:,}: {groups['judged']:,} judged, {groups['due']:,} due, "
                f"{groups['unsettled']:,} unsettled, {groups['to_summarise']:,} to summarise",
            ),
            ("due since", "nothing is due" if due is None else span(due)),
            ("summaries", ledger["summaries"] or "none"),
            ("not taken", f"{ledger['quarantined']:,} quarantined, {ledger['overflowed']:,} overflowed"),
            (
                "last sweep",
                f"{last['sweep']} {last['outcome'] or 'running'} at {last['started']}" if last else "never",
            ),
        ]
    )
