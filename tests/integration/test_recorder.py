"""record(), flush() and close(): into real segments, from threads, coroutines, forks and exits."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import afterpass
from afterpass.core import failpoints
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.spool import Bad, Counts, adopt_orphans, open_segments, read_segment, sealed_segments

TEXT = "x" * 2000


@pytest.fixture
def recorder(home: Home) -> Iterator[Recorder]:
    with Recorder(home) as recorder:
        yield recorder


def records(home: Home) -> list[Mapping[str, Any]]:
    """All that is sealed, and nothing of it damaged."""
    found: list[Mapping[str, Any]] = []
    for path in sealed_segments(home):
        for _, said in read_segment(path):
            assert not isinstance(said, Bad), said
            found.append(said)
    return found


def texts(home: Home) -> list[str]:
    return [record["text"] for record in records(home) if record["type"] == "item"]


def told(home: Home) -> tuple[int, dict[str, int]]:
    """Overflowed and refused, as the segments tell it."""
    overflowed, reasons = 0, dict[str, int]()
    for path in sealed_segments(home):
        with read_segment(path) as segment:
            list(segment)
            counts: Counts = segment.counts
        overflowed += counts.overflowed
        for reason, count in counts.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return overflowed, reasons


def eventually(true: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# ------------------------------------------------------------------------------ one thread, one item


def test_what_is_flushed_is_in_the_inbox(recorder: Recorder) -> None:
    ids = [recorder.record(f"result {n}", query="q", run="r") for n in range(100)]
    assert recorder.flush()
    found = records(recorder.home)
    assert [record["item_id"] for record in found] == ids
    assert [record["text"] for record in found] == [f"result {n}" for n in range(100)]
    assert recorder.counts.written == recorder.counts.accepted == 100
    assert open_segments(recorder.home) == []
    assert recorder.flush()  # nothing new: no new segment either
    assert len(sealed_segments(recorder.home)) == 1


def test_a_waited_for_item_is_on_disk_before_its_segment_is_sealed(recorder: Recorder) -> None:
    item_id = recorder.record("x", wait=True)
    (path,) = open_segments(recorder.home)
    with read_segment(path) as segment:
        assert [said["item_id"] for _, said in segment] == [item_id]  # type: ignore[index]


def test_segments_are_sealed_by_age_and_by_size(home: Home) -> None:
    with Recorder(home, segment_age=0.05) as recorder:
        recorder.record("by age")
        assert eventually(lambda: texts(home) == ["by age"])
    with Recorder(home, segment_bytes=10_000, segment_age=1000) as recorder:
        for _ in range(20):
            recorder.record(TEXT)
        assert eventually(lambda: len(texts(home)) > 10)
    assert len(texts(home)) == 21


def test_nothing_recorded_makes_no_file(home: Home) -> None:
    with Recorder(home) as recorder:
        assert recorder.flush()
    assert not home.spool.exists()


def test_closing_is_written_after_what_it_closes_and_seals(recorder: Recorder) -> None:
    recorder.record("x", run="r")
    recorder.close(run="r")
    assert eventually(lambda: len(records(recorder.home)) == 2)
    item, close = records(recorder.home)
    assert (item["text"], close["type"], close["run"]) == ("x", "close", "r")
    assert datetime.fromisoformat(close["at"]).tzinfo is not None


def test_a_fifty_megabyte_text_goes_through(recorder: Recorder) -> None:
    text = "0123456789\n" * 5_000_000
    assert recorder.record(text) is not None
    assert recorder.record("after it") is not None
    assert recorder.flush(120)
    assert texts(recorder.home) == [text, "after it"]


# --------------------------------------------------------------------------------- what is refused


def test_what_makes_no_sense_is_counted_said_once_and_told(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bad: Any = None
    for _ in range(3):
        assert recorder.record(bad) is None
        assert recorder.record("x", meta={"a": object()}) is None
    recorder.close()
    assert recorder.record("good") is not None
    assert recorder.flush()
    reasons = {"no_text": 3, "bad_meta": 3, "wrong_type: close() wants run= or group=": 1}
    assert recorder.counts.reasons == reasons
    assert recorder.counts.refused == 7
    assert told(recorder.home) == (0, reasons)
    assert len(caplog.records) == 3
    assert texts(recorder.home) == ["good"]


def test_only_refusals_are_told_too(home: Home) -> None:
    with Recorder(home) as recorder:
        recorder.record(None)  # type: ignore[arg-type]
    assert told(home) == (0, {"no_text": 1})
    assert texts(home) == []


def test_values_that_fight_back_do_not_reach_the_caller(recorder: Recorder) -> None:
    class Rude(dict[str, Any]):
        def __len__(self) -> int:
            raise RuntimeError("no")

        __bool__ = __iter__ = __len__  # type: ignore[assignment]

    assert recorder.record("x", meta=Rude(a=1)) is None
    assert recorder.counts.refused == 1


def test_after_the_end_nothing_is_taken(recorder: Recorder) -> None:
    recorder.record("x")
    assert recorder.shutdown()
    assert recorder.record("y") is None
    assert recorder.counts.reasons == {"shut_down": 1}
    assert recorder.shutdown()
    assert texts(recorder.home) == ["x"]


def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Writes wait until the event is set."""
    go = threading.Event()
    monkeypatch.setattr(failpoints, "hit", lambda name: name == "spool.append" and go.wait(60))
    return go


def test_a_full_queue_refuses_the_newest_and_counts(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go = slow_disk(monkeypatch)
    with Recorder(home, queue_rows=50) as recorder:
        taken = [recorder.record(str(n)) is not None for n in range(200)]
        count = sum(taken)
        assert 50 <= count < 100  # the queue, and what the thread had in hand
        assert taken == [True] * count + [False] * (200 - count)
        assert recorder.counts.overflowed == 200 - count
        go.set()
        assert recorder.flush()
        assert recorder.record("room again") is not None
    assert texts(home) == [*map(str, range(count)), "room again"]
    assert told(home) == (200 - count, {})
    assert len([entry for entry in caplog.records if "queue is full" in entry.message]) == 1


def test_a_queue_is_bounded_in_bytes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    go = slow_disk(monkeypatch)
    with Recorder(home, queue_bytes=100_000) as recorder:
        recorder.record("first")
        time.sleep(0.2)  # the thread has it in hand
        assert recorder.record("y" * 1_000_000) is not None  # alone, one may be larger than the queue
        assert recorder.record("z" * 1000) is None
        go.set()
    assert len(texts(home)) == 2


def test_a_caller_may_choose_to_wait_for_room(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    go = slow_disk(monkeypatch)
    with Recorder(home, queue_rows=10, block=0.05) as recorder:
        while recorder.record("x") is not None:
            pass
        assert recorder.counts.overflowed == 1
        go.set()
    with Recorder(home, queue_rows=10, block=60) as patient:
        assert all(patient.record("y") is not None for _ in range(500))
    assert texts(home).count("y") == 500


# ------------------------------------------------------------------------------------- redaction


def test_redaction_comes_before_anything_is_written(home: Home) -> None:
    def redact(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if "poison" in item["text"]:
            raise KeyError("secret-in-exception")
        if "never" in item["text"]:
            return None
        return {**item, "text": item["text"].replace("secret", "***"), "query": None}

    with Recorder(home, redact=redact) as recorder:
        assert recorder.record("my secret", query="secret?", wait=True) is not None
        assert recorder.record("secret never", wait=True) is None
        assert recorder.record("secret poison", wait=True) is None
        assert recorder.record("plain") is not None
    assert texts(home) == ["my ***", "plain"]
    assert recorder.counts.reasons == {"redacted": 1, "redaction_failed: KeyError": 1}
    for path in sealed_segments(home):
        assert b"secret" not in path.read_bytes()


# --------------------------------------------------------------------------------- disks that fail


class Disk:
    """A disk that refuses at some of its moments, for as long as wanted."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.code = 28

    def hit(self, name: str) -> None:
        if name in self.broken:
            raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("moment", ["spool.create", "spool.append", "spool.seal.synced", "spool.sync"])
def test_a_disk_that_fails_and_recovers_loses_nothing(
    home: Home, moment: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    disk.broken = {moment}
    monkeypatch.setattr(failpoints, "hit", disk.hit)
    with Recorder(home) as recorder:
        ids = [recorder.record(f"{n}") for n in range(30)]
        if moment == "spool.sync":
            assert recorder.record("waited for", wait=0.3) is None
        else:
            assert not recorder.flush(0.3)
        assert eventually(lambda: "nothing can be written" in caplog.text)  # the disk was met, however late
        disk.broken = set()
        assert recorder.flush()
    adopt_orphans(home)
    assert set(ids) <= {record["item_id"] for record in records(home)}
    assert recorder.counts.lost == 0
    assert len([entry for entry in caplog.records if "nothing can be written" in entry.message]) == 1


def test_a_disk_that_fails_to_the_end_is_counted(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    disk.broken = {"spool.create"}
    monkeypatch.setattr(failpoints, "hit", disk.hit)
    with Recorder(home, queue_rows=20) as recorder:
        for n in range(60):
            recorder.record(str(n))
        started = time.monotonic()
        assert not recorder.shutdown()
        assert time.monotonic() - started < 10
    counts = recorder.counts
    assert counts.accepted == counts.lost
    assert counts.accepted + counts.overflowed == 60
    assert "are lost" in caplog.text


def test_a_home_that_cannot_be_made_troubles_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with Recorder(tmp_path / "file" / "home") as recorder:
        assert recorder.record("x") is not None  # taken: the folder may come to be
        assert recorder.record("y", wait=0.2) is None
    assert recorder.counts.lost == 2


# ---------------------------------------------------------------------------- threads and coroutines


def test_many_threads_record_and_flush_at_once(recorder: Recorder) -> None:
    flushed: list[bool] = []

    def work(name: int) -> None:
        for n in range(200):
            assert recorder.record(f"{name}-{n}") is not None
            if n % 50 == 49:
                flushed.append(recorder.flush())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(flushed)
    found = texts(recorder.home)
    assert sorted(found) == sorted(f"{name}-{n}" for name in range(8) for n in range(200))
    for name in range(8):  # each thread's own order is kept
        assert [text for text in found if text.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(200)]


def test_a_loop_goes_on_while_the_disk_does_not(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    go = slow_disk(monkeypatch)

    async def agent() -> int:
        turns = 0
        for n in range(100):
            recorder.record(str(n))
            await asyncio.sleep(0)
            turns += 1
        flush = asyncio.create_task(asyncio.to_thread(recorder.flush))
        for _ in range(10):
            await asyncio.sleep(0)
            turns += 1
        assert not flush.done()
        go.set()
        assert await flush
        return turns

    with Recorder(home) as recorder:
        assert asyncio.run(agent()) == 110
    assert len(texts(home)) == 100


def test_a_signal_handler_may_record_in_the_middle_of_a_record(recorder: Recorder) -> None:
    def handler(*_: object) -> None:
        recorder.record("from the handler")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for n in range(2000):
            recorder.record(str(n))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert recorder.flush()
    found = texts(recorder.home)
    assert [text for text in found if text != "from the handler"] == [str(n) for n in range(2000)]


# -------------------------------------------------------------------------------- forks and children


def test_a_forks_child_starts_afresh(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    go = slow_disk(monkeypatch)
    for n in range(20):
        recorder.record(f"parent {n}")
    child = os.fork()  # with items queued, and the thread in the middle of a write
    if child == 0:
        go.set()
        ok = recorder.counts.accepted == 0 and recorder.record("child", wait=True) is not None
        ok = ok and recorder.flush()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    assert recorder.flush()
    assert sorted(texts(recorder.home)) == sorted(["child", *(f"parent {n}" for n in range(20))])


def test_forks_in_the_middle_of_everything(recorder: Recorder) -> None:
    stop = threading.Event()

    def busy() -> None:
        n = 0
        while not stop.is_set():
            recorder.record(f"busy {n}")
            n += 1
            if n % 100 == 0:
                recorder.flush()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for n in range(10):
        child = os.fork()
        if child == 0:
            ok = recorder.record(f"child {n}") is not None and recorder.flush()
            os._exit(0 if ok else 1)
        children.append(child)
        time.sleep(0.01)
    codes = [os.waitpid(child, 0)[1] for child in children]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 10
    assert recorder.flush()
    assert adopt_orphans(recorder.home) == []
    found = texts(recorder.home)
    assert sorted(text for text in found if text.startswith("child")) == [f"child {n}" for n in range(10)]
    assert len(found) == 10 + recorder.counts.written
    assert len({record["item_id"] for record in records(recorder.home)}) == len(found)


def record_one(n: int) -> str | None:
    return afterpass.record(f"from {n}", run="pool")


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_multiprocessings_children_write_what_they_have_at_their_end(home: Home, how: str) -> None:
    """They leave through os._exit, and without atexit."""
    context = multiprocessing.get_context(how)
    processes = [context.Process(target=record_one, args=(n,)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert None not in list(pool.map(record_one, range(3, 8)))
    assert sorted(texts(home)) == [f"from {n}" for n in range(8)]
    assert open_segments(home) == []


def python(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )


def test_the_end_of_the_interpreter_writes_what_there_is(home: Home, tmp_path: Path) -> None:
    done = python(
        "import atexit, sys, threading, afterpass\n"
        "atexit.register(lambda: afterpass.record('from atexit, at the very end'))\n"
        "import afterpass.hooks.recorder\n"
        "atexit.register(lambda: afterpass.record('from atexit'))\n"
        "thread = threading.Thread(target=lambda: afterpass.record('from a thread'))\n"
        "afterpass.record('first')\n"
        "thread.start()\n"
        "sys.exit(3)\n",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert set(texts(home)) == {"first", "from a thread", "from atexit", "from atexit, at the very end"}
    assert open_segments(home) == []


def test_an_uncaught_exception_loses_nothing(home: Home, tmp_path: Path) -> None:
    done = python("import afterpass\nafterpass.record('x')\nraise ValueError('bye')\n", tmp_path)
    assert done.returncode == 1
    assert "bye" in done.stderr
    assert texts(home) == ["x"]


def test_a_kill_leaves_what_was_acknowledged(home: Home, tmp_path: Path) -> None:
    done = python(
        "import os, signal, afterpass\n"
        "afterpass.record('acknowledged', wait=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL
    adopt_orphans(home)
    assert texts(home) == ["acknowledged"]


# --------------------------------------------------------------------------------- the module's own


def test_the_modules_recorder_follows_the_home_until_one_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from afterpass.hooks import record as module

    for name in ("a", "b"):
        monkeypatch.setenv("AFTERPASS_HOME", str(tmp_path / name))
        assert afterpass.record(f"to {name}") is not None
        assert afterpass.flush()
        assert texts(Home(tmp_path / name)) == [f"to {name}"]
    try:
        chosen = afterpass.configure(tmp_path / "chosen", durability="record", queue_rows=7)
        assert chosen.settings.queue_rows == 7
        afterpass.record("to the chosen")
        afterpass.close(group="g")
        assert afterpass.flush()
        assert texts(Home(tmp_path / "chosen")) == ["to the chosen"]
        assert module.counts().written == 1
    finally:
        chosen.shutdown()
        monkeypatch.setattr(module, "_recorder", None)
        monkeypatch.setattr(module, "_configured", False)


def test_a_clock_that_steps_back_changes_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real, real_ns = time.time, time.time_ns
    with Recorder(home, segment_age=0.05) as recorder:
        recorder.record("before")
        monkeypatch.setattr(time, "time", lambda: real() - 86400)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() - 86400 * 10**9)
        recorder.record("after")
        assert eventually(lambda: sorted(texts(home)) == ["after", "before"])
        assert recorder.record("later", wait=True) is not None


def test_logging_that_fails_does_not_reach_the_caller(recorder: Recorder) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
            raise RuntimeError("broken handler")

    handler = Broken()
    logging.getLogger("afterpass").addHandler(handler)
    try:
        assert recorder.record(None) is None  # type: ignore[arg-type]
    finally:
        logging.getLogger("afterpass").removeHandler(handler)
