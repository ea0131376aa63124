"""A backup of a home while its agents record; and bringing one back.

    DEST/manifest.json      versions, rows and checksums of the ledger's tables, SHA-256 of every file
    DEST/ledger.duckdb      a copy that was read back
    DEST/spool/, outbox/    what waited
    DEST/config.toml, calibration/

The spool is copied before the ledger: what moves from one to the other meanwhile is then in both, and counts
once, because the ledger knows a segment by its id and an item by its own. The export is made again.
Call both under the sweep's lock, which keeps the outbox still.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import __version__
from ..core import failpoints
from ..core.config import StoreConfig
from ..core.errors import InputError, LedgerBusy, StoreError
from ..core.keys import new_id
from ..core.paths import Home
from . import export
from .ledger_file import LedgerFile
from .rewrite import Checks, check_room, copy_ledger, nothing_gone, remove_leftovers, room_needed
from .spool import open_segments, sealed_segments
from .spool_writer import private_folder, sync_folder
from .sqlfiles import schema_version, sql

VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup has.

    Attributes:
        created: ISO 8601.
        tables: rows of each table of the ledger; empty where there was no ledger.
        segments, commits: files that waited in the spool and in the outbox.
        bytes: of all files.
        kept: on restoring, files of the home that were left as they are.
        replaced: on restoring over a ledger, the folder with what was there.
    """

    created: str
    tables: Mapping[str, int]
    segments: int
    commits: int
    bytes: int
    kept: tuple[str, ...] = ()
    replaced: Path | None = None


# ----------------------------------------------------------------------------------------- backing up


def backup(home: Home, config: StoreConfig, target: Path) -> Backup:
    """Write a backup to the folder `target`, which appears whole or not at all.

    Raises:
        InputError: `target` is there already, or lies in the home.
        LedgerBusy: another process holds the ledger.
        StoreError: no room, or the copy does not read back.
    """
    target = target.expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already", hint="name a folder that is not, or an empty one")
    if target.is_relative_to(home.root):
        raise InputError(f"{target} lies in the home", hint="name a folder elsewhere, best on another disk")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{new_id().hex[-12:]}.partial"
    try:
        draft.mkdir(mode=0o700)
        _copy_files(home, draft)
        failpoints.hit("backup.spool")
        checks = _copy_ledger(home, config, draft)
        manifest = {
            "version": VERSION,
            "afterpass": __version__,
            "duckdb": _duckdb(),
            "schema": schema_version(),
            "created": datetime.now(UTC).isoformat(),
            "home": str(home.root),
            "tables": {name: {"rows": rows, "check": check} for name, (rows, check) in checks.items()},
            "files": {name: _file(draft / name) for name in _names(draft)},
        }
        _write(draft / MANIFEST, json.dumps(manifest, indent=1).encode())
        for folder in {draft, *(path.parent for path in draft.rglob("*"))}:
            sync_folder(folder)
        failpoints.hit("backup.written")
        os.rename(draft, target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreError(
            f"the backup {target} could not be written: {error}", hint="see to the free space there"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _told(manifest)


def _copy_files(home: Home, draft: Path) -> None:
    """The spool (what is open before what is sealed: a segment moves that way), the outbox, the rest."""
    inbox = draft / "spool" / "inbox"
    private_folder(inbox)
    for path in open_segments(home):
        with suppress(FileNotFoundError):
            content = path.read_bytes()
            _write(draft / "spool" / path.name, content[: content.rfind(b"\n") + 1])
    for path in sealed_segments(home):
        with suppress(FileNotFoundError):
            _write(inbox / path.name, path.read_bytes())
            (draft / "spool" / path.with_suffix(".open").name).unlink(missing_ok=True)
    others = [*home.outbox.glob("*.commit"), *home.calibrations.glob("*"), home.config]
    for path in filter(Path.is_file, others):
        _write(draft / path.relative_to(home.root), path.read_bytes())


def _copy_ledger(home: Home, config: StoreConfig, draft: Path) -> Checks:
    if not home.ledger.exists():
        return {}
    copy = draft / home.ledger.name
    with closing(LedgerFile(home.ledger, timeout=config.busy_timeout.total_seconds())) as file:
        check_room(draft, room_needed(file), "the backup")
        nothing_gone(file)
        checks = copy_ledger(file, copy)
    os.chmod(copy, 0o600)
    _check_ledger(copy, checks, by_content=True)
    return checks


# ------------------------------------------------------------------------------------------ restoring


def restore(source: Path, home: Home, config: StoreConfig, *, replace: bool = False) -> Backup:
    """Bring a backup into a home.

    What waits in the home's spool stays there; configuration and calibrations only come where there are
    none.

    Args:
        replace: put it in the place of a ledger that is there. The old one is kept in a folder of the home.

    Raises:
        InputError: `source` is no backup, or one of a newer version.
        LedgerBusy: another process holds the ledger.
        StoreError: the backup is damaged, there is a ledger already, or no room.
    """
    source = source.expanduser().absolute()
    manifest = check(source)
    if home.ledger.exists() and not replace:
        raise StoreError(
            f"there is a ledger at {home.ledger}; nothing was changed",
            hint="name another home with --home, or replace it with --yes (the old one is kept beside)",
        )
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_leftovers(home.ledger)
    check_room(home.root, sum(one["bytes"] for one in manifest["files"].values()), "restoring")
    replaced = None
    try:
        if manifest["tables"]:
            replaced = _put_ledger(source, home, config, manifest)
        kept = _put_files(source, home, manifest)
        shutil.rmtree(home.exports, ignore_errors=True)
    except OSError as error:
        raise StoreError(
            f"restoring to {home.root} failed: {error}", hint="see to the free space, and restore again"
        ) from error
    if config.export and manifest["tables"]:
        with closing(LedgerFile(home.ledger, timeout=config.busy_timeout.total_seconds())) as file:
            export.rebuild(home, file)
    return _told(manifest, kept, replaced)


def check(source: Path) -> dict[str, Any]:
    """Read a backup's manifest and see that every file is what it says.

    Raises:
        InputError: no backup, or one of a newer version. StoreError: damaged; names the files.
    """
    try:
        manifest: dict[str, Any] = json.loads((source / MANIFEST).read_text("utf-8"))
        version, files = int(manifest["version"]), manifest["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{source} is no backup: {MANIFEST} cannot be read ({error})",
            hint="name the folder that `afterpass backup` wrote",
        ) from error
    if version > VERSION or manifest["schema"] > schema_version():
        raise InputError(
            f"{source} was written by afterpass {manifest['afterpass']}, which is newer", hint="upgrade"
        )
    wrong = [name for name, told in files.items() if not _same(source / name, told)]
    if wrong:
        raise StoreError(
            f"{source} is damaged: {', '.join(wrong[:5])}", hint="take another backup; nothing was changed"
        )
    return manifest


def _put_ledger(source: Path, home: Home, config: StoreConfig, manifest: Mapping[str, Any]) -> Path | None:
    """Put the ledger in place by rename; returns where the old one is kept."""
    aside = home.root / f".{home.ledger.name}.{new_id().hex[-12:]}.copy"
    old: LedgerFile | None = None
    try:
        shutil.copyfile(source / home.ledger.name, aside)
        os.chmod(aside, 0o600)
        with aside.open("rb+") as written:
            os.fsync(written.fileno())
        told = {name: (one["rows"], one["check"]) for name, one in manifest["tables"].items()}
        if manifest["schema"] == schema_version():
            _check_ledger(aside, told, by_content=manifest["duckdb"] == _duckdb())
        replaced = None
        if home.ledger.exists():
            old = _exclusive(home, config)
            replaced = _keep_old(home)
        failpoints.hit("restore.copied")
        os.rename(aside, home.ledger)
        failpoints.hit("restore.renamed")
        sync_folder(home.root)
        return replaced
    finally:
        aside.unlink(missing_ok=True)
        if old is not None:
            old.close()


def _exclusive(home: Home, config: StoreConfig) -> LedgerFile | None:
    """The ledger that is to be replaced, with nothing left in its log; None where it cannot be opened."""
    try:
        file = LedgerFile(home.ledger, timeout=config.busy_timeout.total_seconds())
    except LedgerBusy:
        raise
    except StoreError:
        return None  # damaged: that is why somebody restores
    file.connection.execute("CHECKPOINT")
    return file


def _keep_old(home: Home) -> Path:
    """Keep what is replaced, under other names; the ledger's own name stays taken all the while."""
    folder = home.root / f"replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{new_id().hex[-6:]}"
    folder.mkdir(mode=0o700)
    os.link(home.ledger, folder / home.ledger.name)
    for path in (home.ledger.with_name(home.ledger.name + ".wal"), home.outbox):
        with suppress(FileNotFoundError):  # both belong to the old ledger, and would spoil the new one
            os.rename(path, folder / path.name)
    return folder


def _put_files(source: Path, home: Home, manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The other files; returns those that were there already and differ."""
    kept = []
    private_folder(home.inbox)  # a segment whose writer is gone is moved there
    there = {path.stem for path in (*open_segments(home), *sealed_segments(home))}
    for name in sorted(manifest["files"]):
        target = home.root / name
        if name == home.ledger.name or (name.startswith("spool/") and target.stem in there):
            continue
        if target.exists():
            if not _same(target, manifest["files"][name]):
                kept.append(name)
            continue
        private_folder(target.parent)
        aside = target.with_name(f".{target.name}.restoring")
        _write(aside, (source / name).read_bytes())
        os.rename(aside, target)
        sync_folder(target.parent)
    return tuple(kept)


# ------------------------------------------------------------------------------------- files, checks


def _check_ledger(path: Path, told: Checks, *, by_content: bool) -> None:
    with closing(LedgerFile(path, read_only=True)) as file:
        nothing_gone(file)
        found = {name: (rows, check or 0) for name, rows, check in file.rows(sql("rewrite.expected"))}
    wrong = [
        name for name in told if found[name][: 2 if by_content else 1] != told[name][: 2 if by_content else 1]
    ]
    if wrong:
        raise StoreError(
            f"{path} does not have what it should in {', '.join(wrong)}", hint="take another backup"
        )


def _names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _same(path: Path, told: Mapping[str, Any]) -> bool:
    with suppress(OSError):
        return _file(path) == dict(told)
    return False


def _write(path: Path, content: bytes) -> None:
    private_folder(path.parent)
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _duckdb() -> str:
    import duckdb

    return duckdb.__version__


def _told(manifest: Mapping[str, Any], kept: tuple[str, ...] = (), replaced: Path | None = None) -> Backup:
    files: Mapping[str, Any] = manifest["files"]
    return Backup(
        created=manifest["created"],
        tables={name: one["rows"] for name, one in manifest["tables"].items()},
        segments=sum(name.startswith("spool/") for name in files),
        commits=sum(name.startswith("outbox/") for name in files),
        bytes=sum(one["bytes"] for one in files.values()),
        kept=kept,
        replaced=replaced,
    )
