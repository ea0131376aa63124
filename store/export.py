"""Parquet beside the ledger: the current verdicts and summaries, readable whoever holds the ledger.

    export/manifest.json         which files are live, oldest first, and as of when; replaced by rename
    export/verdicts-*.parquet    immutable; a group's rows in a later file replace those in an earlier one
    export/summaries-*.parquet

Each update adds what changed since the last, by the change numbers that the ledger gives to groups; so a
crash at any moment is caught up by the next update. Many small files are merged into larger ones; a file that
is no longer live stays for a grace period, for readers that opened it by an older manifest.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core import failpoints
from ..core.keys import new_id
from ..core.paths import Home
from .ledger_file import LedgerFile
from .ledger_open import in_memory
from .ledger_pages import Reading
from .spool_writer import private_folder, sync_folder
from .sqlfiles import sql

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
MOST_FILES = 8
"""Live files of a kind, from which the small ones are merged."""
GRACE_SECONDS = 3600.0
"""How long a file that was replaced is kept."""

What = Literal["verdict", "summary"]
_NAMES: Mapping[What, str] = {"verdict": "verdicts", "summary": "summaries"}


@dataclass(frozen=True, slots=True)
class Live:
    """A live file: its name in the folder, and its rows."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is live.

    Attributes:
        change: the ledger's change number up to which everything is here.
        as_of: when that was so, ISO 8601.
        retired: names of files that were live once, and since when (seconds since 1970) they are not.
    """

    change: int = 0
    as_of: str | None = None
    verdicts: tuple[Live, ...] = ()
    summaries: tuple[Live, ...] = ()
    retired: Mapping[str, float] = field(default_factory=dict)
    version: int = VERSION

    def files(self, what: What) -> tuple[Live, ...]:
        """The live files of a kind, oldest first."""
        return self.verdicts if what == "verdict" else self.summaries


def read_manifest(home: Home) -> Manifest:
    """The manifest; an empty one where there is none, or none of this version."""
    try:
        said = json.loads((home.exports / "manifest.json").read_text("utf-8"))
        if said["version"] != VERSION:
            return Manifest()
        lives = {name: tuple(Live(**live) for live in said[name]) for name in ("verdicts", "summaries")}
        return Manifest(said["change"], said["as_of"], lives["verdicts"], lives["summaries"], said["retired"])
    except (OSError, ValueError, KeyError, TypeError):
        return Manifest()


def update(home: Home, file: LedgerFile) -> Manifest:
    """Bring the export up to the ledger; does nothing where nothing changed.

    Raises:
        OSError: the folder cannot be written. What was live stays live.
    """
    import duckdb

    manifest = read_manifest(home)
    change = int(file.rows(sql("export.change"))[0][0])
    # Another ledger than the one that was exported, or files that somebody deleted: begin anew.
    if change < manifest.change or not _is_whole(home, manifest) or _stale(home).exists():
        manifest = _anew(manifest)
    if change == manifest.change:
        return manifest
    private_folder(home.exports)
    try:
        done = _extended(home, file, manifest, change)
    except duckdb.Error:  # a damaged file among those to be merged; else it is raised again
        done = _extended(home, file, _anew(manifest), change)
    _stale(home).unlink(missing_ok=True)
    return done


def _extended(home: Home, file: LedgerFile, manifest: Manifest, change: int) -> Manifest:
    """The manifest with what changed up to `change`, and in place."""
    for what in ("verdict", "summary"):
        live = _write_delta(home, file, what, manifest.change, change)
        if live is not None:
            manifest = _with(manifest, what, (*manifest.files(what), live))
        manifest = _merge(home, manifest, what)
    before = manifest.retired
    old = time.time() - GRACE_SECONDS
    manifest = replace(
        manifest,
        change=change,
        as_of=datetime.now(UTC).isoformat(),
        retired={name: since for name, since in before.items() if since > old},
    )
    _replace_manifest(home, manifest)
    _tidy(home, manifest, before, old)
    return manifest


def mark_stale(home: Home) -> None:
    """Before groups leave the ledger: the next update begins anew, whatever happens until then.

    Raises:
        OSError: the folder cannot be written.
    """
    if home.exports.is_dir():
        _stale(home).touch()
        sync_folder(home.exports)


def _stale(home: Home) -> Path:
    return home.exports / "stale"


def rebuild(home: Home, file: LedgerFile) -> Manifest:
    """Write the export anew and delete all that was there: after erasing, nothing erased may be left."""
    with suppress(FileNotFoundError):
        (home.exports / "manifest.json").unlink()
    with suppress(FileNotFoundError):
        for entry in list(os.scandir(home.exports)):
            if entry.name.endswith((".parquet", ".new")):
                os.unlink(entry.path)
    return update(home, file)


# ------------------------------------------------------------------------------------------ files


def _write_delta(home: Home, file: LedgerFile, what: What, since: int, change: int) -> Live | None:
    """A file of the groups that changed after `since`, or None where there are none."""
    import pyarrow as pa

    reading = Reading.changed(file, what, since)
    rows = 0
    writer: Any = None
    path, aside = _names(home, what, change)
    try:
        for batch in reading.batches():
            batch = batch.append_column("version", pa.array([change] * batch.num_rows, pa.int64()))
            if writer is None:
                writer = _writer(aside, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    return None if writer is None else _publish(aside, path, rows)


def _merge(home: Home, manifest: Manifest, what: What) -> Manifest:
    """Merge the newest files where there are too many; older ones only once they are not much larger."""
    files = manifest.files(what)
    if len(files) <= MOST_FILES:
        return manifest
    start, rows = len(files), 0
    while start > 0 and (len(files) - start < MOST_FILES // 2 or files[start - 1].rows <= 2 * rows):
        start -= 1
        rows += files[start].rows
    merging = files[start:]
    failpoints.hit("export.merge")
    path, aside = _names(home, what, 0)
    connection = in_memory()
    try:
        names = [str(home.exports / live.name) for live in merging]
        reader = connection.sql(sql("export.merge"), params={"files": names}).to_arrow_reader(10_000)
        writer = _writer(aside, reader.schema)
        try:
            merged = 0
            for batch in reader:
                writer.write_batch(batch)
                merged += batch.num_rows
        finally:
            writer.close()
    finally:
        connection.close()
    live = _publish(aside, path, merged)
    retired = {**manifest.retired, **{live.name: time.time() for live in merging}}
    return replace(_with(manifest, what, (*files[:start], live)), retired=retired)


def _names(home: Home, what: What, change: int) -> tuple[Path, Path]:
    name = f"{_NAMES[what]}-{change:012d}-{new_id().hex[-12:]}.parquet"
    return home.exports / name, home.exports / f".{name}.new"


def _writer(path: Path, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(str(path), schema, compression="zstd")


def _publish(aside: Path, path: Path, rows: int) -> Live:
    failpoints.hit("export.written")
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    os.chmod(aside, 0o600)
    os.rename(aside, path)
    failpoints.hit("export.renamed")
    return Live(path.name, rows)


def _replace_manifest(home: Home, manifest: Manifest) -> None:
    aside = home.exports / ".manifest.json.new"
    failpoints.hit("export.manifest_write")
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(home.exports)  # the files that it names are there before it is
    failpoints.hit("export.manifest")
    os.rename(aside, home.exports / "manifest.json")
    failpoints.hit("export.manifest_renamed")
    sync_folder(home.exports)
    failpoints.hit("export.done")


def _tidy(home: Home, manifest: Manifest, before: Mapping[str, float], old: float) -> None:
    """Delete what was retired before `old`, and what a crash left that no manifest ever named.

    Only once the manifest that no longer names it is in place: a crash must not leave one that names a file
    which is gone.
    """
    kept = {one.name for one in (*manifest.verdicts, *manifest.summaries)} | manifest.retired.keys()
    for entry in list(os.scandir(home.exports)):
        if not entry.name.endswith((".parquet", ".parquet.new")) or entry.name in kept:
            continue
        with suppress(OSError):
            if entry.name in before or entry.stat().st_mtime < old:
                failpoints.hit("export.unlink")
                os.unlink(entry.path)


def _is_whole(home: Home, manifest: Manifest) -> bool:
    return all((home.exports / one.name).exists() for one in (*manifest.verdicts, *manifest.summaries))


def _anew(manifest: Manifest) -> Manifest:
    """An empty manifest; what was live is retired."""
    return Manifest(retired={**manifest.retired, **_retire(manifest)})


def _with(manifest: Manifest, what: What, files: Sequence[Live]) -> Manifest:
    if what == "verdict":
        return replace(manifest, verdicts=tuple(files))
    return replace(manifest, summaries=tuple(files))


def _retire(manifest: Manifest) -> dict[str, float]:
    return {live.name: time.time() for live in (*manifest.verdicts, *manifest.summaries)}
