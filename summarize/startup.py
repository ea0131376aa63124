"""How an engine would be started: compiled or eager, and how much memory.

Loads neither torch nor vLLM, so that `plan` and `doctor` show what a sweep is going to do, and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import machine
from ..core.config import SummarizerConfig
from . import models, sizing

COMPILE_FROM = 1000
"""Prompts from which compiling pays: it starts later and writes faster (benchmarks/startup.py measures both,
docs/summaries.md has the figures)."""
_SMALLEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """The choices.

    Attributes:
        eager: not compiled; `why` says why, or why not.
        dtype, context: of the model.
        memory: on a CPU, how the cache is sized; None where the engine sizes itself by the GPU's free memory.
    """

    eager: bool
    why: str
    dtype: str
    context: int
    memory: sizing.Sizing | None

    @property
    def words(self) -> str:
        """In a sentence, for people."""
        memory = f"; memory: {self.memory.why}" if self.memory else ""
        return f"{'eager' if self.eager else 'compiled'} ({self.why}), {self.dtype}{memory}"

    def about(self) -> Mapping[str, Any]:
        """For receipts; JSON values."""
        memory = {"memory": self.memory.about()} if self.memory else {}
        return {
            "dtype": self.dtype,
            "context": self.context,
            "enforce_eager": self.eager,
            "eager_why": self.why,
            **memory,
        }


def choose(
    config: SummarizerConfig, folder: Path, prompts: int | None, *, on_cpu: bool | None = None
) -> Startup:
    """Work out how the model in `folder` would be started for so many prompts (None: few).

    Args:
        on_cpu: what the engine's own platform says; without it, whether there is an NVIDIA driver.

    Raises:
        OutOfMemory: the model does not fit what is free.
    """
    context = models.context_length(config)
    dtype = models.dtype(config)
    eager, why = _eager(config, prompts)
    memory = None
    if on_cpu if on_cpu is not None else not machine.has_nvidia():
        # A small job needs no large cache, whose pages would all be touched, and so taken, at once.
        wanted = min(config.max_in_flight, max(_SMALLEST, prompts)) if prompts else config.max_in_flight
        memory = sizing.size(
            json.loads((folder / "config.json").read_text("utf-8")),
            sizing.weight_bytes(folder),
            dtype,
            context,
            wanted,
            sizing.free_memory(),
            sizing.parse_size(config.memory) if config.memory else None,
        )
    return Startup(eager=eager, why=why, dtype=dtype, context=context, memory=memory)


def foresee(config: SummarizerConfig, prompts: int | None) -> Startup | None:
    """How a section's engine would be started; None where it needs no model here, or has it not yet.

    Raises:
        ModelNotFound, ConfigError: the section cannot work.
        OutOfMemory: the model does not fit what is free.
    """
    if models.kind(config) != "vllm":
        return None
    if config.model != models.EMBEDDED:
        folder = models.located(config)
    else:
        from . import embedded

        folder = embedded.location() if embedded.prepared() else None
    return choose(config, folder, prompts) if folder is not None else None


def _eager(config: SummarizerConfig, prompts: int | None) -> tuple[bool, str]:
    if config.enforce_eager != "auto":
        return config.enforce_eager, "as configured"
    count = "few" if prompts is None else f"{prompts:,}"
    eager = (prompts or 0) < COMPILE_FROM
    return eager, f"{count} prompts, and compiling pays from {COMPILE_FROM:,}"
