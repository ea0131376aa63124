"""Named moments at which a test can make the process die or a system call fail.

Free when `AFTERPASS_FAILPOINT` is unset: `hit` is then an empty function. A specification is

    NAME[@N]=ACTION[,NAME[@N]=ACTION...]

where N counts the hits of that name in this process (1 is the first; `@*` means each) and ACTION is `kill`
(SIGKILL to ourselves, as the kernel's OOM killer would), `stop` (SIGSTOP) or the name of an errno
(`ENOSPC`, `EIO`, `EROFS`), which is raised as an OSError. `AFTERPASS_FAILPOINT_LOG` names a file that gets
one line for every action taken, written before it is.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping


def parse(specification: str) -> dict[tuple[str, int | None], str]:
    """(name, which hit or None for each) -> action.

    Raises:
        ValueError: the specification cannot be read.
    """
    found: dict[tuple[str, int | None], str] = {}
    for part in filter(None, specification.split(",")):
        where, equals, action = part.partition("=")
        name, _, number = where.strip().partition("@")
        if not equals or not (action in ("kill", "stop") or hasattr(errno, action)):
            raise ValueError(f"{part!r} is no failpoint: want NAME[@N]=kill|stop|ERRNO")
        found[name, None if number == "*" else int(number or 1)] = action
    return found


def _nothing(name: str) -> None:
    """No failpoint is armed."""


def _armed(actions: Mapping[tuple[str, int | None], str], log: str | None) -> Callable[[str], None]:
    hits: Counter[str] = Counter()
    lock = threading.Lock()

    def hit(name: str) -> None:
        with lock:
            hits[name] += 1
            count = hits[name]
        action = actions.get((name, count)) or actions.get((name, None))
        if action is None:
            return
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"{name} {count} {action}\n")
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            code: int = getattr(errno, action)
            raise OSError(code, f"{os.strerror(code)} (failpoint {name})")

    return hit


def _from_environment() -> Callable[[str], None]:
    specification = os.environ.get("AFTERPASS_FAILPOINT")
    if not specification:
        return _nothing
    return _armed(parse(specification), os.environ.get("AFTERPASS_FAILPOINT_LOG"))


hit: Callable[[str], None] = _from_environment()
"""Call it at a moment worth a name: `failpoints.hit("spool.seal.renamed")`."""
