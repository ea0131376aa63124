"""Summaries: from kept items to a short text in which every point has its source.

Nothing heavy is imported until it is used: vLLM only in `load`, and there only for a section that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import EngineError
from ..core.seams import Summarizer
from . import support
from .extracts import LABEL, extract, extracts
from .job import GroupJob
from .models import check_config, context_length, model_key, passages_at_once, token_counter
from .prompts import check_templates, prompt_hash
from .startup import Startup, foresee
from .tokens import TokenCounter

if TYPE_CHECKING:
    from ..core.config import SummarizePolicy, SummarizerConfig

__all__ = [
    "LABEL",
    "GroupJob",
    "Startup",
    "TokenCounter",
    "check_config",
    "check_policy",
    "context_length",
    "extract",
    "extracts",
    "foresee",
    "load",
    "model_key",
    "passages_at_once",
    "prompt_hash",
    "support",
    "token_counter",
]


def load(config: SummarizerConfig, *, prompts: int | None = None) -> Summarizer:
    """Start the engine that a section names.

    Args:
        config: the section.
        prompts: how many are expected: decides whether compiling is worth its start-up; None means few.

    Raises:
        ConfigError, ModelNotFound: the section cannot work.
        EngineMissing: the engine's package is not installed.
        OutOfMemory: it needs more than is free.
        EngineError: it did not start for another reason.
    """
    from . import models

    check_config(config)
    engine = models.kind(config)
    if engine == models.EXTRACTIVE:
        from .extractive import Extractive

        return Extractive(config)
    if engine == "openai":
        from .openai_server import OpenAIServer

        return OpenAIServer(config)
    if engine == "vllm":
        from .vllm_engine import VllmEngine

        return VllmEngine.start(config, prompts=prompts)
    raise EngineError(f"no engine is called {engine!r}")


def check_policy(policy: SummarizePolicy) -> None:
    """Refuse a policy whose templates or schema are wrong, before anything is loaded.

    Raises:
        ConfigError: with what is wrong and where.
    """
    from .schema import own_schema

    own_schema(policy)
    check_templates(policy)
