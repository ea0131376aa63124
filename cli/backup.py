"""`afterpass backup`: a copy of the home that was read back, while agents record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, examples, home_at, load_config
from .output import emit, facts, size

if TYPE_CHECKING:
    from ..store.backup import Backup

EXAMPLES = examples(
    "afterpass backup /backups/afterpass-monday",
    "# And back",
    "afterpass restore /backups/afterpass-monday --home /srv/afterpass",
)


def backup(
    dest: Annotated[Path, typer.Argument(help="The folder to write; it must not be there yet.")],
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Copy ledger, spool, outbox, configuration and calibrations, and read the copy back.

    Agents go on recording; no sweep runs meanwhile (exit 75 where one does, or where the ledger is held).
    """
    from ..store.backup import backup as write
    from ..sweep.lock import sweep_lock

    place = home_at(home)
    settings = load_config(config, place).store
    with sweep_lock(place.lock):
        made = write(place, settings, dest)
    if json:
        emit({"backup": dest.absolute(), **as_json(made)})
    else:
        facts([("backup", dest.absolute()), *told(made)])


def as_json(made: Backup) -> dict[str, Any]:
    """What a backup has, as JSON values."""
    from dataclasses import asdict

    return asdict(made)


def told(made: Backup) -> list[tuple[str, object]]:
    """What a backup has, for people."""
    return [
        ("taken", made.created),
        ("items", made.tables.get("item", 0)),
        ("verdicts", made.tables.get("verdict", 0)),
        ("waiting segments", made.segments),
        ("waiting commits", made.commits),
        ("size", size(made.bytes)),
    ]
