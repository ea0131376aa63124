"""Lost power, by a model of a disk: what was not fsynced may be gone, in part or as a whole.

The recorder runs on the real file system while each of its calls is noted. Then the power is cut at every
moment in between, and what a disk may hold then is laid out in another folder and read as a sweep would:

- a file's content is what was fsynced, and of what was written since, any beginning (its length may already
  be the new one, with zeros for content, as journalling file systems leave it);
- names (creating, renaming, unlinking, folders) are on disk once a folder that they changed was fsynced, and
  of the others, any beginning. A rename is there as a whole or not at all, as journalling file systems have
  it; a file is there only if all the folders above it are.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.spool import adopt_orphans, read_segment, sealed_segments


@dataclass
class File:
    """What was written to a file, and how much of it is safe."""

    content: bytearray = field(default_factory=bytearray)
    safe: bytes = b""


@dataclass
class Power:
    """The state of the model after some of the calls."""

    files: dict[int, File] = field(default_factory=dict)
    names: dict[Path, int] = field(default_factory=dict)  # as the processes see them
    journal: list[tuple[str, Path, Path | None, int]] = field(default_factory=list)
    safe: set[int] = field(default_factory=set)  # which of the journal are on disk

    def apply(self, call: tuple[Any, ...]) -> None:
        match call:
            case ("create", path, number):
                self.files[number] = File()
                self.names[path] = number
                self.journal.append(("create", path, None, number))
            case ("mkdir", path):
                self.journal.append(("mkdir", path, None, 0))
            case ("rename", old, new):
                self.names[new] = self.names.pop(old)
                self.journal.append(("rename", new, old, self.names[new]))
            case ("unlink", path):
                self.journal.append(("unlink", path, None, self.names.pop(path)))
            case ("write", number, data):
                self.files[number].content += data
            case ("truncate", number, size):
                del self.files[number].content[size:]
            case ("fsync", number):
                self.files[number].safe = bytes(self.files[number].content)
            case ("fsync_folder", folder):
                for number, (_, path, old, _) in enumerate(self.journal):
                    if folder in (path.parent, old.parent if old is not None else None):
                        self.safe.add(number)

    def lay_out(self, root: Path, into: Path, chance: random.Random | None) -> None:
        """A folder as the disk may hold it: with `chance` None, the least that it must."""
        until = 0 if chance is None else chance.randint(0, len(self.journal))
        names: dict[Path, int] = {}
        folders = {root}
        for at, (kind, path, old, number) in enumerate(self.journal):
            if at in self.safe or at < until:
                if kind == "mkdir":
                    folders.add(path)
                    continue
                if kind in ("create", "rename"):
                    names[path] = number
                if kind in ("unlink", "rename"):
                    names.pop(old or path, None)
        folders = {folder for folder in folders if folders.issuperset(above(folder, root))}
        for folder in sorted(folders):
            (into / folder.relative_to(root)).mkdir(parents=True, exist_ok=True)
        for path, number in names.items():
            if path.parent not in folders:
                continue
            file = self.files[number]
            content = file.safe
            if chance is not None and len(file.content) > len(content):
                content = bytes(file.content[: chance.randint(len(content), len(file.content))])
                if chance.random() < 0.3:
                    content += bytes(chance.randint(0, len(file.content) - len(content)))
            (into / path.relative_to(root)).write_bytes(content)


def above(path: Path, root: Path) -> list[Path]:
    """The folders between `root` and a path."""
    return [folder for folder in path.parents if root in folder.parents]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """Each call that changes a file or folder in `tmp_path / "disk"`, in order."""
    disk = tmp_path / "disk"
    disk.mkdir()
    noted: list[tuple[Any, ...]] = []
    numbers: dict[int, int | Path] = {}  # descriptor -> file's number, or folder
    created = 0
    real = {name: getattr(os, name) for name in ("open", "write", "ftruncate", "fsync", "fdatasync", "close")}
    real |= {name: getattr(os, name) for name in ("rename", "unlink", "mkdir")}

    def opened(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
        nonlocal created
        descriptor: int = real["open"](path, flags, *arguments, **keywords)
        if disk in (Path(path), *Path(path).parents):
            if flags & os.O_CREAT:
                numbers[descriptor] = created
                noted.append(("create", Path(path), created))
                created += 1
            elif flags & os.O_DIRECTORY:
                numbers[descriptor] = Path(path)
        return descriptor

    def closed(descriptor: int) -> None:
        numbers.pop(descriptor, None)
        real["close"](descriptor)

    def written(descriptor: int, data: Any) -> int:
        count: int = real["write"](descriptor, data)
        if descriptor in numbers:
            noted.append(("write", numbers[descriptor], bytes(data[:count])))
        return count

    def truncated(descriptor: int, size: int) -> None:
        real["ftruncate"](descriptor, size)
        if descriptor in numbers:
            noted.append(("truncate", numbers[descriptor], size))

    def synced(name: str) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            real[name](descriptor)
            if isinstance(what := numbers.get(descriptor), Path):
                noted.append(("fsync_folder", what))
            elif what is not None:
                noted.append(("fsync", what))

        return sync

    def named(name: str) -> Callable[..., None]:
        def change(*arguments: Any, **keywords: Any) -> None:
            real[name](*arguments, **keywords)
            paths = [Path(argument) for argument in arguments if not isinstance(argument, int)]
            if disk in paths[0].parents:
                noted.append((name, *paths))

        return change

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        patch.setattr(os, "close", closed)
        patch.setattr(os, "write", written)
        patch.setattr(os, "ftruncate", truncated)
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, synced(name))
        for name in ("rename", "unlink", "mkdir"):
            patch.setattr(os, name, named(name))
        yield noted


def recorded(home: Home, calls: list[tuple[Any, ...]], seed: int) -> None:
    """Some work, with each acknowledgement noted among the calls."""
    chance = random.Random(seed)
    with Recorder(
        home,
        segment_bytes=chance.choice((1_500, 6_000)),
        segment_age=chance.choice((0.01, 5.0)),
        durability=chance.choice(("segment", "record")),
    ) as recorder:
        waiting: list[str] = []
        for n in range(40):
            wait = chance.random() < 0.1
            item = recorder.record(f"{n}" * chance.choice((1, 50, 400)), run="r", wait=wait)
            assert item is not None
            if wait:
                calls.append(("acknowledged", [item]))
            else:
                waiting.append(item)
            if chance.random() < 0.08:
                assert recorder.flush()
                calls.append(("acknowledged", waiting))
                waiting = []
            if chance.random() < 0.1:
                recorder.close(run="r")
    calls.append(("acknowledged", waiting))


def after(home: Home) -> set[str]:
    """What a sweep finds."""
    adopt_orphans(home)
    return {
        said["item_id"]
        for path in sealed_segments(home)
        for _, said in read_segment(path)
        if isinstance(said, Mapping) and said["type"] == "item"
    }


def cut_at_every_moment(tmp_path: Path, calls: list[tuple[Any, ...]], seed: int, layouts: int) -> int:
    """Record, then cut the power at each moment of it; returns how many states of the disk were tried."""
    calls.clear()
    disk, into = tmp_path / "disk", tmp_path / "after"
    recorded(Home(disk / f"home-{seed}"), calls, seed)
    chance = random.Random(seed)
    power = Power()
    acknowledged: set[str] = set()
    tried = 0
    for call in calls:
        if call[0] == "acknowledged":
            acknowledged |= set(call[1])
            continue
        power.apply(call)
        for luck in (None, *(random.Random(chance.random()) for _ in range(layouts))):
            into.mkdir()
            power.lay_out(disk, into, luck)
            found = after(Home(into / f"home-{seed}"))
            assert acknowledged <= found, (call, len(acknowledged - found))
            shutil.rmtree(into)
            tried += 1
    assert len(acknowledged) == 40
    return tried


@pytest.mark.parametrize("seed", [1])
def test_lost_power_takes_nothing_acknowledged(
    tmp_path: Path, calls: list[tuple[Any, ...]], seed: int
) -> None:
    assert cut_at_every_moment(tmp_path, calls, seed, layouts=1) > 100


@pytest.mark.faults
@pytest.mark.timeout(1300)
def test_power_lost_many_times_takes_nothing_acknowledged(
    tmp_path: Path, calls: list[tuple[Any, ...]], account: dict[str, Any]
) -> None:
    rounds = max(int(os.environ.get("KILLS", "300")) // 50, 1)
    tried = sum(cut_at_every_moment(tmp_path, calls, 100 + seed, layouts=3) for seed in range(rounds))
    account["power_losses"] = tried


def test_the_model_itself_loses_what_was_not_synced(tmp_path: Path) -> None:
    """A disk that never forgets would prove nothing."""
    path = tmp_path / "a" / "f"
    power = Power()
    for call in [("mkdir", path.parent), ("create", path, 0), ("write", 0, b"x"), ("fsync", 0)]:
        power.apply(call)
    (into := tmp_path / "into").mkdir()
    power.lay_out(tmp_path, into, None)
    assert list(into.iterdir()) == []  # its name was never synced
    power.apply(("fsync_folder", path.parent))
    power.lay_out(tmp_path, into, None)
    assert list(into.iterdir()) == []  # nor was its folder's
    power.apply(("fsync_folder", tmp_path))
    power.apply(("write", 0, b"y"))
    power.lay_out(tmp_path, into, None)
    assert (into / "a" / "f").read_bytes() == b"x"
