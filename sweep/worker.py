"""A model's process: `python -m afterpass.sweep.worker CONNECTION LIFELINE`, started by `engine_process`.

Two processes, in truth. The first is a guard: it forks the second, which loads the model, and waits. When
the sweep ends in whatever way, kill -9 included, its end of the lifeline closes and the guard kills every
descendant, also those that an engine started (they come to the guard when orphaned: it is their subreaper).
When the model's process ends, the guard clears what it left behind and ends too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

LIFE_CHECK_S = 0.1
HEARTBEAT_S = 1.0

_PACKAGE = __spec__.name.partition(".")[0]
LOADERS = {"scorer": f"{_PACKAGE}.rerank:load", "summarizer": f"{_PACKAGE}.summarize:load"}
"""What loads each kind of engine; any other kind is taken as "module:function" itself."""


def main() -> None:
    """Guard and model process; the guard never ends before its descendants are gone."""
    connection, lifeline = int(sys.argv[1]), int(sys.argv[2])
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        os.close(lifeline)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        work(Connection(connection))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # the engine is closed; taking torch and its like apart would cost seconds
    os.close(connection)
    sys.exit(guard(child, lifeline))


def guard(child: int, lifeline: int) -> int:
    """Wait for the sweep's or the model's end, then leave no descendant behind. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = 0
    while True:
        readable, _, _ = select.select([lifeline], [], [], LIFE_CHECK_S)
        if readable:  # nothing is ever written: readable means that the other end is closed
            break
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
    while living := _descendants(os.getpid()):
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)
    return code if code >= 0 else 128 - code


def work(connection: Connection) -> None:
    """Load the engine that the first message names, then take requests and send results until told to end.

    Messages in: ("load", kind, config, extra), ("submit", [requests]), ("end",).
    Messages out: ("ready", key, about, seconds, capacity), ("results", [results], capacity, busy_seconds),
    ("failed", error).
    """
    _, kind, config, extra = connection.recv()
    try:
        began = time.perf_counter()
        engine = _load(kind, config, extra)
        connection.send(
            ("ready", engine.key, dict(engine.about()), time.perf_counter() - began, _capacity(engine))
        )
        _serve(connection, engine)
        engine.close()
    except EOFError:
        return  # the sweep is gone
    except BaseException as error:
        import traceback

        traceback.print_exc()
        with contextlib.suppress(OSError):
            connection.send(("failed", _portable(error)))
        sys.exit(1)


def _serve(connection: Connection, engine: Any) -> None:
    busy = 0.0
    last_sent = time.perf_counter()
    ending = False
    while not ending or engine.pending:
        while not ending and connection.poll(0 if engine.pending else None):
            message = connection.recv()
            if message[0] == "end":
                ending = True
            else:
                for request in message[1]:
                    engine.submit(request)
        if not engine.pending:
            continue
        began = time.perf_counter()
        results = engine.step()
        now = time.perf_counter()
        busy += now - began
        if results or now - last_sent > HEARTBEAT_S:
            connection.send(("results", results, _capacity(engine), busy))
            last_sent = now


def _capacity(engine: Any) -> int:
    return int(engine.pending + engine.room)


def _load(kind: str, config: Any, extra: dict[str, Any]) -> Any:
    module, _, function = LOADERS.get(kind, kind).partition(":")
    return getattr(importlib.import_module(module), function)(config, **extra)


def _portable(error: BaseException) -> BaseException:
    """The error itself where it survives the way to the sweep, else an EngineError with its words."""
    from ..core.errors import AfterpassError, EngineError

    if isinstance(error, AfterpassError):
        return error
    return EngineError(
        f"the engine failed: {type(error).__name__}: {error}", hint="its log has the whole traceback"
    )


def _prctl(option: int, value: int) -> None:
    # Linux only; elsewhere the lifeline alone does the work.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _descendants(root: int) -> list[int]:
    """All living descendants of `root`, read from /proc (zombies apart)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                # "pid (command, which may hold anything) state ppid ..."
                state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


if __name__ == "__main__":
    main()
