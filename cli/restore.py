"""`afterpass restore`: a backup, checked and brought back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .backup import as_json, told
from .options import ConfigOption, HomeOption, JsonOption, examples, home_at, load_config
from .output import emit, facts, note

EXAMPLES = examples(
    "afterpass restore /backups/afterpass-monday --home /srv/afterpass",
    "# Over a ledger that is there: the old one is kept in a folder beside",
    "afterpass restore /backups/afterpass-monday --yes",
)


def restore(
    source: Annotated[Path, typer.Argument(help="The folder that `afterpass backup` wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Replace the ledger that is there.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Check a backup, file by file and row by row, and bring it back.

    What waits in the home's own spool stays and is taken in by the next sweep, each item once. Configuration
    and calibrations come only where there are none.
    """
    from ..store.backup import restore as bring
    from ..sweep.lock import sweep_lock

    place = home_at(home)
    settings = load_config(config, place).store
    with sweep_lock(place.lock):
        done = bring(source, place, settings, replace=yes)
    if json:
        emit({"home": place.root, **as_json(done)})
        return
    facts([("home", place.root), *told(done)])
    if done.replaced:
        note(f"what was there is kept in {done.replaced}: delete it when all is well")
    if done.kept:
        note(f"left as they are: {', '.join(done.kept)}")
