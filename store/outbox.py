"""A sweep's results that wait for the ledger: one file a commit, in order, each whole or not there.

    afterpass commit 1 CRC {"commit":ID,"kind":...,"sweep":ID,"facts":{...},"tables":[[NAME,SIZE,CRC],...]}
    the tables as Arrow IPC streams, one after another

Files are written aside, fsynced and renamed to `NUMBER-ID.commit`; they are applied in the order of their
numbers and each at most once: the ledger notes a commit's id in the transaction that applies it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID
from zlib import crc32

from ..core import failpoints
from ..core.errors import StoreError
from ..core.paths import Home
from .columns import to_json
from .ledger_commit import APPLY, Commit
from .spool_writer import private_folder, sync_folder

MAGIC = b"afterpass commit 1 "
SUFFIX = ".commit"


class Outbox:
    """The folder of waiting commits.

    Args:
        home: whose.
        most_bytes: what it may hold; a commit beyond it is refused.
    """

    def __init__(self, home: Home, *, most_bytes: int) -> None:
        self._folder = home.outbox
        self._most = most_bytes

    def pending(self) -> list[Path]:
        """Waiting commits, in order."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._folder) if entry.name.endswith(SUFFIX))
        except FileNotFoundError:
            return []
        return [self._folder / name for name in names]

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return sum(path.stat().st_size for path in self.pending())

    def put(self, commit: Commit) -> Path:
        """Keep a commit, durably.

        Raises:
            StoreError: the outbox is full, or its folder cannot be written.
        """
        content = dump(commit)
        pending = self.pending()
        if sum(path.stat().st_size for path in pending) + len(content) > self._most:
            raise StoreError(
                f"{self._folder} holds {len(pending)} commits and has no room for another",
                hint="free the ledger: close whoever holds it, and run `afterpass sweep`",
            )
        number = int(pending[-1].name.partition("-")[0]) + 1 if pending else 1
        path = self._folder / f"{number:012d}-{commit.commit_id}{SUFFIX}"
        aside = self._folder / f".{path.name}.new"
        try:
            private_folder(self._folder)
            failpoints.hit("outbox.write")
            with open(aside, "wb", opener=_private) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            failpoints.hit("outbox.written")
            os.rename(aside, path)
            failpoints.hit("outbox.renamed")
            sync_folder(self._folder)
            failpoints.hit("outbox.kept")
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            raise StoreError(
                f"{self._folder} cannot be written: {error.strerror or error}",
                hint="see to its permissions and to the free space",
            ) from error
        return path

    def done(self, path: Path) -> None:
        """Throw an applied commit's file away."""
        path.unlink(missing_ok=True)
        failpoints.hit("outbox.unlinked")

    def set_aside(self, path: Path) -> Path:
        """Move a damaged file out of the way, to `outbox/damaged/`; its results will be made again."""
        folder = self._folder / "damaged"
        private_folder(folder)
        target = folder / path.name
        failpoints.hit("outbox.aside")
        os.rename(path, target)
        return target


class Damaged(ValueError):
    """A file of the outbox is not whole."""


def commit_id(path: Path) -> UUID:
    """A waiting commit's id, by its name."""
    return UUID(path.name.partition("-")[2].removesuffix(SUFFIX))


def dump(commit: Commit) -> bytes:
    """A commit as bytes."""
    import pyarrow as pa

    bodies: list[bytes] = []
    tables: list[tuple[str, int, int]] = []
    for name, table in commit.tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue().to_pybytes()
        bodies.append(body)
        tables.append((name, len(body), crc32(body)))
    head = to_json(
        {
            "commit": str(commit.commit_id),
            "kind": commit.kind,
            "sweep": str(commit.sweep_id),
            "facts": dict(commit.facts),
            "tables": tables,
        }
    ).encode()
    return b"%b%08x %b\n" % (MAGIC, crc32(head), head) + b"".join(bodies)


def load(path: Path) -> Commit:
    """Read a waiting commit.

    Raises:
        Damaged: it is not what was written, or a newer version wrote it.
    """
    import pyarrow as pa

    content = path.read_bytes()
    head, newline, rest = content.partition(b"\n")
    told, _, payload = head.removeprefix(MAGIC).partition(b" ")
    if not head.startswith(MAGIC) or not newline or told != b"%08x" % crc32(payload):
        raise Damaged(f"{path.name} does not begin as a commit")
    said = json.loads(payload)
    if said["kind"] not in APPLY:
        raise Damaged(f"{path.name} is of a kind that is not known: {said['kind']}")
    tables = {}
    for name, body in _bodies(said["tables"], rest, path):
        tables[name] = pa.ipc.open_stream(body).read_all()
    return Commit(said["kind"], UUID(said["sweep"]), said["facts"], tables, UUID(said["commit"]))


def _bodies(tables: list[tuple[str, int, int]], rest: bytes, path: Path) -> Iterator[tuple[str, bytes]]:
    at = 0
    for name, size, crc in tables:
        body = rest[at : at + size]
        if len(body) != size or crc32(body) != crc:
            raise Damaged(f"{path.name} is damaged in its table {name!r}")
        yield name, body
        at += size


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
