"""Segments as files: written, sealed, adopted, read, and read again after all sorts of damage."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import stat
import tracemalloc
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from afterpass.core import failpoints, keys
from afterpass.core.errors import SegmentNewer, SpoolNotWritable
from afterpass.core.paths import Home
from afterpass.core.types import Item
from afterpass.store.spool import (
    Bad,
    Counts,
    RollingWriter,
    SegmentWriter,
    adopt_orphans,
    close_record,
    item_of,
    item_record,
    open_segments,
    read_segment,
    sealed_segments,
)
from afterpass.store.spool_format import Header, header_line, line

V1 = Path(__file__).parents[1] / "data" / "segment-v1.segment"


def record(text: str) -> dict[str, Any]:
    return item_record(Item(item_id=keys.new_id(), text=text, created_at=datetime.now(UTC)))


def texts(path: Path) -> list[str]:
    with read_segment(path) as segment:
        return [said["text"] for _, said in segment if isinstance(said, Mapping)]


def bad(path: Path) -> list[tuple[int, str]]:
    with read_segment(path) as segment:
        return [(number, said.reason) for number, said in segment if isinstance(said, Bad)]


def sealed_with(home: Home, *items: str) -> Path:
    with SegmentWriter(home) as segment:
        for text in items:
            segment.write(record(text))
    return home.inbox / f"{segment.header.segment_id}.segment"


# ------------------------------------------------------------------------------------ the released


def test_a_segment_of_the_first_version_is_read_for_ever() -> None:
    with read_segment(V1) as segment:
        header = segment.header
        assert (header.version, header.host, header.pid, header.writer) == (1, "example", 4242, "0.1.0")
        assert header.segment_id == UUID("019a0000-0000-7000-8000-000000000001")
        assert header.created == datetime(2026, 1, 31, 22, 15, 7, 250000, UTC)
        assert (header.settled, header.about, header.damaged) == (False, {"note": "kept for ever"}, False)
        rows = dict(segment)
        assert segment.complete
        assert segment.counts == Counts(4, 2, 3, {"bad_meta": 1, "wrong_type: text": 2})
    assert [rows[number]["type"] for number in (2, 3, 4, 5, 6)] == ["item"] * 4 + ["close"]  # type: ignore[index]
    first, second, third, fourth = (item_of(rows[number]) for number in (2, 3, 4, 5))  # type: ignore[arg-type]
    assert first == Item(
        item_id=UUID("019a0000-0000-7000-8000-0000000000a1"),
        text="subprocess.run(..., timeout=5) kills the child",
        created_at=header.created,
        run="run-1",
        query="kill a child that takes too long",
        kind="tool",
        agent="searcher",
        step="1",
        priority=2,
        deadline=datetime(2026, 2, 1, 22, 15, 7, 250000, UTC),
        meta={"tool": "search", "score": 0.5, "nested": {"list": [1, None, True]}},
    )
    assert second.text == 'line one\nline two\r\n\u2028tab\tquote" backslash\\ caf\u00e9 \U0001f600'
    assert (second.group, second.namespace, second.policy, second.query) == (
        "g",
        "other",
        "strict",
        "Ünïcode?",
    )
    assert (third.text, third.flags) == ("nul \0 and half a pair \ufffd.", ("lone_surrogate", "nul"))
    assert (fourth.text, fourth.flags) == ("", ("naive_time",))
    assert rows[6]["run"] == "run-1"  # type: ignore[index]


# -------------------------------------------------------------------------------------- the writer


def test_a_sealed_segment_gives_back_what_it_took(home: Home) -> None:
    writer = SegmentWriter(home, settled=True, about={"source": "a.jsonl"})
    assert open_segments(home) == [writer.path]
    assert sealed_segments(home) == []
    writer.write(record("a\nb\u2028c"))
    writer.write(close_record(group="g"))
    writer.write(record(""))
    path = writer.seal(Counts(overflowed=2))
    assert sealed_segments(home) == [path]
    assert open_segments(home) == []
    with read_segment(path) as segment:
        assert segment.header == writer.header
        rows = dict(segment)
        assert segment.counts == Counts(rows=2, overflowed=2)
        assert segment.complete
    assert [rows[number].get("text") for number in (2, 3, 4)] == ["a\nb\u2028c", None, ""]  # type: ignore[union-attr]


def test_only_the_owner_may_read(home: Home) -> None:
    old = os.umask(0)
    try:
        path = sealed_with(home, "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (home.spool, home.inbox):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_exception_throws_the_segment_away(home: Home) -> None:
    def breaks() -> None:
        with SegmentWriter(home) as writer:
            writer.write(record("x"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        breaks()
    assert [*home.spool.glob("*.*"), *sealed_segments(home)] == []


def test_a_home_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SpoolNotWritable) as caught:
        SegmentWriter(Home(tmp_path / "file" / "home"))
    assert str(tmp_path / "file") in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("room", [0, 1, 7, 60])
def test_a_write_that_was_cut_short_leaves_no_trace(
    home: Home, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(home)
    writer.write(record("before"))
    real = os.write
    left = room

    def full(descriptor: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(28, "No space left on device")
        written = real(descriptor, bytes(data[:left]))
        left -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            writer.write(record("does not fit"))
    writer.write(record("after"))
    path = writer.seal()
    assert texts(path) == ["before", "after"]
    assert bad(path) == []


def test_a_cut_write_that_cannot_be_undone_costs_its_own_line(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(home)
    writer.write(record("before"))
    real = os.write
    calls = iter([9])

    def fails(descriptor: int, data: bytes) -> int:
        if (take := next(calls, 0)) == 0:
            raise OSError(5, "Input/output error")
        return real(descriptor, bytes(data[:take]))

    def no(*arguments: object) -> None:  # noqa: ARG001
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails)
        patch.setattr(os, "ftruncate", no)
        with pytest.raises(OSError, match="Input"):
            writer.write(record("torn"))
    writer.write(record("after"))
    path = writer.seal()
    assert texts(path) == ["before", "after"]
    assert bad(path) == [(3, "checksum")]


def test_a_full_disk_seals_without_a_footer(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(home)
    writer.write(record("x"))
    monkeypatch.setattr(failpoints, "hit", failing("spool.write", 28))
    path = writer.seal(Counts(overflowed=1))
    assert not writer.complete
    with read_segment(path) as segment:
        assert [said["text"] for _, said in segment if isinstance(said, Mapping)] == ["x"]
        assert not segment.complete


def failing(name: str, code: int, times: int | None = None) -> Any:
    """A disk that refuses at a named moment."""
    left = [times]

    def hit(moment: str) -> None:
        if moment == name and left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            raise OSError(code, os.strerror(code))

    return hit


# --------------------------------------------------------------------------------------- adopting


def test_the_dead_are_adopted_and_the_living_are_not(home: Home) -> None:
    alive, dead = SegmentWriter(home), SegmentWriter(home)
    alive.write(record("alive"))
    dead.write(record("dead"))
    dead.abandon()  # what the kernel does with a killed process
    assert [texts(path) for path in adopt_orphans(home)] == [["dead"]]
    assert adopt_orphans(home) == []
    assert open_segments(home) == [alive.path]
    assert texts(alive.seal()) == ["alive"]
    assert len(sealed_segments(home)) == 2


def test_a_torn_tail_costs_its_own_line(home: Home) -> None:
    writer = SegmentWriter(home)
    writer.write(record("whole"))
    writer.write(record("torn"))
    writer.abandon()
    os.truncate(writer.path, writer.size - 5)
    (path,) = adopt_orphans(home)
    assert texts(path) == ["whole"]
    assert bad(path) == [(3, "torn")]


def test_a_last_line_that_lost_only_its_newline_is_whole(home: Home) -> None:
    writer = SegmentWriter(home)
    writer.write(record("x"))
    writer.abandon()
    os.truncate(writer.path, writer.size - 1)
    (path,) = adopt_orphans(home)
    assert texts(path) == ["x"]
    assert bad(path) == []


def test_what_was_refused_is_known_after_a_kill(home: Home) -> None:
    writer = SegmentWriter(home)
    writer.note(Counts(overflowed=3, refused=1, reasons={"bad_meta": 1}))
    writer.write(record("x"))
    writer.abandon()
    (path,) = adopt_orphans(home)
    with read_segment(path) as segment:
        assert len(list(segment)) == 1
        assert not segment.complete
        assert segment.counts == Counts(0, 3, 1, {"bad_meta": 1})


def test_a_file_that_nobody_had_seen_is_cleared_away(home: Home) -> None:
    sealed_with(home, "x")
    hidden = home.spool / f".{keys.new_id()}.new"
    hidden.write_bytes(b"afterpass seg")
    held = home.spool / f".{keys.new_id()}.new"
    with held.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        adopt_orphans(home)
        assert not hidden.exists()
        assert held.exists()


@pytest.mark.parametrize("still_held", [False, True])
def test_an_adopter_that_comes_before_the_lock_costs_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, still_held: bool
) -> None:
    """Between a file's making and its lock it looks like a dead writer's."""
    came: list[Any] = []

    def hit(name: str) -> None:
        if name == "spool.made" and not came:
            if still_held:
                (hidden,) = home.spool.glob(".*.new")
                came.append(hidden.open("rb"))
                fcntl.flock(came[0], fcntl.LOCK_EX)
            else:
                came.append(adopt_orphans(home))

    monkeypatch.setattr(failpoints, "hit", hit)
    writer = SegmentWriter(home)
    assert len(came) == 1
    writer.write(record("x"))
    size = writer.size
    assert size == writer.path.stat().st_size
    writer.seal()
    (path,) = sealed_segments(home)
    assert texts(path) == ["x"]
    assert list(home.spool.glob(".*")) == []


def test_where_no_segment_can_ever_be_locked_it_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def hit(name: str) -> None:
        if name == "spool.made":
            adopt_orphans(home)

    monkeypatch.setattr(failpoints, "hit", hit)
    with pytest.raises(SpoolNotWritable):
        SegmentWriter(home)


def test_an_empty_or_missing_spool_has_nothing_to_adopt(home: Home) -> None:
    assert adopt_orphans(home) == []
    assert sealed_segments(home) == []


def test_a_fork_holds_no_lock_of_its_parent(home: Home) -> None:
    """The child lives on after the parent's segment lost its writer."""
    writer = SegmentWriter(home)
    writer.write(record("x"))
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            writer.write(record("from the child"))
        except ValueError:
            os.write(ready[1], b"refused")
        os.read(done[0], 1)
        os._exit(0)
    assert os.read(ready[0], 7) == b"refused"
    assert adopt_orphans(home) == []  # the child's closing took no lock away
    writer.abandon()
    assert [texts(path) for path in adopt_orphans(home)] == [["x"]]
    os.write(done[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*ready, *done):
        os.close(end)


def test_adopters_do_not_get_into_each_others_way(home: Home) -> None:
    for n in range(40):
        writer = SegmentWriter(home)
        writer.write(record(str(n)))
        writer.abandon()
    with multiprocessing.get_context("fork").Pool(4) as pool:
        adopted = pool.map(adopt_orphans, [home] * 8)
    assert sum(map(len, adopted)) == 40
    assert sorted(text for path in sealed_segments(home) for text in texts(path)) == sorted(
        map(str, range(40))
    )


# ----------------------------------------------------------------------------------------- damage


def test_any_flipped_byte_costs_its_line_at_most(home: Home) -> None:
    path = sealed_with(home, "first", "second", "third")
    whole = path.read_bytes()
    starts = [0, *(at + 1 for at, byte in enumerate(whole) if byte == 0x0A)]
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        hit = sum(start <= at for start in starts) - 1  # 0 is the header, 4 the footer
        with read_segment(path) as segment:
            found = [said["text"] for _, said in segment if isinstance(said, Mapping)]
            assert segment.header.segment_id == UUID(path.stem)
        kept = ["first", "second", "third"]
        if 1 <= hit <= 3:
            assert found in (kept, kept[: hit - 1] + kept[hit:]), at
        else:
            assert found == kept, at


def test_a_missing_line_does_not_take_its_neighbours_along(home: Home) -> None:
    path = sealed_with(home, "first", "second", "third")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"\0" * 4096, *lines[3:]]))
    assert texts(path) == ["first", "third"]
    assert bad(path) == [(3, "checksum")]


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n\n", b"PK\x03\x04 not a segment", os.urandom(5000)])
def test_what_is_no_segment_is_read_as_damage(home: Home, content: bytes) -> None:
    sealed_with(home)
    path = home.inbox / "stray.segment"
    path.write_bytes(content)
    with read_segment(path) as segment:
        assert all(isinstance(said, Bad) for _, said in segment)
        assert segment.header.damaged
        once = segment.header.segment_id
    with read_segment(path) as segment:
        assert segment.header.segment_id == once


def test_lines_that_hold_and_say_nonsense_are_told_apart(home: Home) -> None:
    writer = SegmentWriter(home)
    writer.append([line(b"not json"), line(b"[1]"), line(b"[" * 100_000), line(b'"text"')], rows=0)
    assert bad(writer.seal()) == [(2, "not_json"), (3, "not_object"), (4, "not_json"), (5, "not_object")]


def test_a_segment_of_a_later_version_is_left_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sealed_with(home, "x")
    monkeypatch.setattr("afterpass.store.spool_format.VERSION", 2)
    path.write_bytes(
        header_line(Header(segment_id=UUID(path.stem), version=2, writer="7.0")) + b"who knows\n"
    )
    with pytest.raises(SegmentNewer, match=r"version 2, by afterpass 7\.0"):
        read_segment(path)


def test_a_line_of_fifty_megabytes_is_read(home: Home) -> None:
    text = "0123456789" * 5_000_000
    path = sealed_with(home, "small", text, "small again")
    assert texts(path) == ["small", text, "small again"]


def test_reading_holds_one_line_in_memory(home: Home) -> None:
    path = sealed_with(home, *("x" * 100_000 for _ in range(200)))
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        with read_segment(path) as segment:
            assert sum(1 for _ in segment) == 200
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_file_without_lines_costs_bounded_memory(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afterpass.store.spool_reader.MAX_LINE", 100_000)
    path = sealed_with(home, "x")
    path.write_bytes(path.read_bytes() + b"y" * 1_000_000 + b"\n" + line(json.dumps(record("z")).encode()))
    assert texts(path) == ["x", "z"]
    assert bad(path) == [(4, "too_long")]


# ----------------------------------------------------------------------------------------- rolling


def test_segments_roll_by_size(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # All within one millisecond: they sort as they were made even so.
    monkeypatch.setattr(keys, "time", SimpleNamespace(time_ns=lambda: 1_700_000_000_000_000_000))
    with RollingWriter(home, segment_bytes=1000, settled=True) as writer:
        for n in range(10):
            writer.write(record(f"{n}" * 300))
    assert len(sealed_segments(home)) == len(writer.sealed) == 5
    assert [text[0] for path in sealed_segments(home) for text in texts(path)] == list("0123456789")
    assert all(read_segment(path).header.settled for path in sealed_segments(home))


@pytest.mark.parametrize("moment", ["spool.sync", "spool.seal", "spool.seal.synced", "spool.seal.renamed"])
def test_what_a_disk_did_not_confirm_is_written_again(
    home: Home, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RollingWriter(home)
    writer.append([line(json.dumps(record("one")).encode())], rows=1)
    writer.note(Counts(overflowed=1))
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", failing(moment, 5, times=1))
        with pytest.raises(OSError, match="Input"):
            writer.sync() if moment == "spool.sync" else writer.seal(Counts(overflowed=2))
    assert writer.dirty
    writer.append([line(json.dumps(record("two")).encode())], rows=1)
    writer.seal(Counts(overflowed=2))
    assert not writer.dirty
    adopt_orphans(home)
    read = [read_segment(path) for path in sealed_segments(home)]
    told = [({said["item_id"] for _, said in segment}, segment.counts) for segment in read]  # type: ignore[index]
    assert len(set.union(*(ids for ids, _ in told))) == 2  # twice on disk, once by its id
    assert sum(counts.overflowed for _, counts in told) == 2  # and told once


def test_a_spool_that_was_deleted_in_between_is_made_again(home: Home) -> None:
    writer = RollingWriter(home)
    writer.append([line(json.dumps(record("one")).encode())], rows=1)
    (segment,) = open_segments(home)
    segment.unlink()
    home.inbox.rmdir()
    home.spool.rmdir()
    with pytest.raises(OSError, match="No such file"):
        writer.seal()
    writer.seal()
    assert [texts(path) for path in sealed_segments(home)] == [["one"]]
