"""Full, read-only and failing disks under a recorder: counted, said once, tried again, nothing lost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from afterpass.core import failpoints
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.spool import Bad, adopt_orphans, read_segment, sealed_segments

TEXT = "x" * 1000


def stored(home: Home) -> dict[str, str]:
    """All items, adopted ones too; nothing of it may be damaged."""
    adopt_orphans(home)
    found = {}
    for path in sealed_segments(home):
        for _, said in read_segment(path):
            assert not isinstance(said, Bad), (said.reason, said.raw[:80])
            if said["type"] == "item":
                found[said["item_id"]] = said["text"]
    return found


def overflowed(home: Home) -> int:
    total = 0
    for path in sealed_segments(home):
        with read_segment(path) as segment:
            list(segment)
            total += segment.counts.overflowed
    return total


def test_a_disk_that_is_full_for_a_while(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(150_000))
    home = Home(small_disk / "home")
    with Recorder(home, queue_rows=100) as recorder:
        taken = [recorder.record(f"{n} {TEXT}") for n in range(40)]
        assert recorder.flush()
        # The second lot does not fit: first the disk fills, then the queue.
        while (
            item := recorder.record(f"more {TEXT}", wait=0.01)
        ) is not None or not recorder.counts.overflowed:
            taken.append(item)
        for _ in range(20):
            assert recorder.record("refused") is None
        assert not recorder.flush(0.2)
        ballast.unlink()
        assert recorder.flush(60)
        taken.append(recorder.record("room again", wait=True))
        counts = recorder.counts
    assert counts.lost == 0
    assert counts.overflowed > 20
    found = stored(home)
    assert set(filter(None, taken)) <= set(found)
    assert len(found) == counts.accepted == counts.written
    assert overflowed(home) == counts.overflowed
    assert len([entry for entry in caplog.records if "nothing can be written" in entry.message]) == 1


def test_a_disk_that_stays_full_keeps_what_was_acknowledged(small_disk: Path) -> None:
    home = Home(small_disk / "home")
    acknowledged = []
    with Recorder(home, segment_bytes=20_000, queue_rows=50) as recorder:
        while (item := recorder.record(TEXT, wait=1.0)) is not None:
            acknowledged.append(item)
        for _ in range(100):
            recorder.record(TEXT)
    counts = recorder.counts
    assert len(acknowledged) > 100
    found = stored(home)
    assert set(acknowledged) <= set(found)
    assert len(found) + counts.lost == counts.accepted
    assert counts.lost > 0


def test_a_disk_that_is_read_only_for_a_while(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    home = Home(small_disk / "home")
    with Recorder(home) as recorder:
        item = recorder.record("x", wait=0.2)
        assert item is None
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
        assert recorder.flush(60)
    assert list(stored(home).values()) == ["x"]


MOMENTS = sorted(
    {
        name
        for path in (Path(__file__).parents[2] / "store").glob("spool_*.py")
        for name in re.findall(r'failpoints\.hit\("([\w.]+)"\)', path.read_text("utf-8"))
    }
    - {"spool.adopt"}
)


@pytest.mark.parametrize("code", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_any_moment_may_fail_once_or_for_a_while(
    home: Home, moment: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aims = ",".join(f"{moment}@{n}={code}" for n in (1, 2, 4))
    monkeypatch.setattr(failpoints, "hit", failpoints._armed(failpoints.parse(aims), None))
    monkeypatch.setattr("afterpass.hooks.drain._RETRY_FIRST", 0.005)
    acknowledged: list[Any] = []
    with Recorder(home, segment_bytes=3_000) as recorder:
        recorder.record(None)  # type: ignore[arg-type]
        for n in range(12):
            acknowledged.append(recorder.record(f"{n} " + "x" * 500, wait=n % 3 == 0))
        assert recorder.flush()
        acknowledged.append(recorder.record("last"))
        counts = recorder.counts
    assert None not in acknowledged
    found = stored(home)
    assert set(acknowledged) == set(found)
    assert recorder.counts.lost == 0
    assert counts.reasons == {"no_text": 1}
    told = 0
    for path in sealed_segments(home):
        with read_segment(path) as segment:
            assert all(isinstance(said, Mapping) for _, said in segment)
            told += segment.counts.refused
    assert told == 1
