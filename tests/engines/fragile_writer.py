"""A summarizer that dies, hangs or devours memory on command, loaded by name in a model's process.

What a prompt's question begins with is the command; any other prompt is answered with sentences (extractive).
"""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from pathlib import Path
from typing import Any

from afterpass.core.types import Prompt, Reply
from afterpass.summarize.extractive import Extractive

_COMMAND = re.compile(r"^Question: (die|raise|hang|devour)( once (?P<mark>\S+))?", re.M)


class FragileWriter(Extractive):
    """Does what it is told; with `once FILE` only where the file is not there yet, and leaves it."""

    def _answer(self, prompt: Prompt) -> Reply:
        found = _COMMAND.search(prompt.messages[-1]["content"])
        if found and not (found["mark"] and Path(found["mark"]).exists()):
            if found["mark"]:
                Path(found["mark"]).touch()
            fail(found[1])
        return super()._answer(prompt)


def fail(how: str) -> None:
    match how:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise RuntimeError("no such luck")
        case "devour":
            devour()
    time.sleep(3600)


def devour() -> None:
    """Run out of memory: of this process's own limit, not of the machine's."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 64 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    held = []
    while True:
        held.append(bytearray(8 * 2**20))


def load(config: Any, prompts: int | None = None) -> FragileWriter:
    assert prompts is not None
    return FragileWriter(config)
