"""Real vLLM in a model's process, with a trap: a prompt that holds `POISON` kills it once it is at work."""

from __future__ import annotations

import os
import signal
from typing import Any

from afterpass.core.types import Prompt, Reply
from afterpass.summarize.vllm_engine import VllmEngine

POISON = "this-prompt-is-poison"


class Trapped(VllmEngine):
    """Dies while a poisoned request is in flight, as an engine does on what its kernels cannot take."""

    def submit(self, request: Prompt) -> None:
        super().submit(request)
        self._poisoned = getattr(self, "_poisoned", False) or POISON in request.messages[-1]["content"]

    def step(self) -> list[Reply]:
        done = super().step()
        if getattr(self, "_poisoned", False):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def about(self) -> dict[str, Any]:
        return {**super().about(), "pid": os.getpid()}


def load(config: Any, prompts: int | None = None) -> VllmEngine:
    return Trapped.start(config, prompts=prompts)


def load_with_core(config: Any, prompts: int | None = None) -> VllmEngine:
    """The engine's core in a process of its own, as vLLM does by default."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    return Trapped.start(config, prompts=prompts)
