"""Which backend runs a model on this machine: the fastest that says the same as torch in float32.

What was found out (`trials`) is kept in the cache by machine and model, shown by `afterpass doctor`, and
found out again when the processor, the number of cores or an engine's version changes. Nothing here loads a
model or a model library.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..core import machine
from ..core.config import ScorerConfig
from ..core.paths import cache_folder
from . import identity
from .kinds import Kind, Spec


@dataclass(frozen=True, slots=True)
class Trial:
    """How one way of running a model did.

    Attributes:
        seconds: for the whole probe set, the fastest of its rounds; None where it did not run.
        difference: the largest difference of a logit from torch's in float32.
        tau: Kendall's tau-b with torch's order.
        passed: whether both are within tolerance; `why` says what was wrong where not.
    """

    backend: str
    dtype: str
    seconds: float | None = None
    difference: float | None = None
    tau: float | None = None
    passed: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and all that was tried."""

    backend: str
    dtype: str
    machine: str
    model: str
    trials: tuple[Trial, ...] = field(default=())


def as_json(found: Choice) -> dict[str, Any]:
    """A choice as JSON values, for receipts, `doctor` and the cache."""
    return asdict(found)


def ways(spec: Spec, config: ScorerConfig) -> list[tuple[str, str]]:
    """(backend, dtype) to try, those that are given or can be here at all."""
    if _on_gpu(config):
        every = [("torch", "bfloat16"), ("torch", "float16"), ("torch", "float32")]
    else:
        every = [("torch", "float32")]
        if machine.has_bfloat16():
            every.append(("torch", "bfloat16"))
        if spec.kind is Kind.CHAT:
            pass  # large, and not worth an export on a processor
        elif machine.has("openvino"):
            every.append(("openvino", "float32"))
            if machine.has_bfloat16():
                every.append(("openvino", "bfloat16"))
            if machine.has("nncf") and machine.has_vnni():
                every.append(("openvino", "int8"))
        elif machine.has("onnxruntime") and machine.has("onnxscript"):
            # Never faster than OpenVINO where both were measured, and a minute to export.
            every.append(("onnx", "float32"))
    if config.backend != "auto":
        every = [way for way in every if way[0] == config.backend] or [(config.backend, "float32")]
    if config.dtype != "auto":
        found = [way for way in every if way[1] == config.dtype]
        every = found or [(every[0][0] if config.backend == "auto" else config.backend, config.dtype)]
    return list(dict.fromkeys(every))


def known(spec: Spec, config: ScorerConfig) -> tuple[str, str] | None:
    """The backend and type that scores will come from, without loading anything; None where it is yet to be
    tried out."""
    possible = ways(spec, config)
    if len(possible) == 1:
        return possible[0]
    found = kept(spec, config)
    return (found.backend, found.dtype) if found else None


def _on_gpu(config: ScorerConfig) -> bool:
    if config.device != "auto":
        return not config.device.startswith("cpu")
    return machine.has_nvidia() and config.backend in ("auto", "torch") and machine.torch_for_gpus()


def kept(spec: Spec, config: ScorerConfig) -> Choice | None:
    """The choice made before on this machine for this model, with its trials."""
    try:
        data: Mapping[str, Any] = json.loads(store(spec, config).read_text("utf-8"))
        trials = tuple(Trial(**trial) for trial in data["trials"])
        found = Choice(**{**data, "trials": trials})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    tried = {(trial.backend, trial.dtype) for trial in found.trials}
    # A newer Afterpass may know a way that was not tried then.
    return found if found.machine == machine.identity() and tried == set(ways(spec, config)) else None


def folder() -> Path:
    """Where converted models and choices lie; made where absent."""
    found = cache_folder() / "rerank"
    found.mkdir(parents=True, exist_ok=True)
    return found


def store(spec: Spec, config: ScorerConfig) -> Path:
    """The file of a choice."""
    asked = f"{config.backend}|{config.dtype}|{config.device}|{config.max_length}|{config.threads}"
    mark = hashlib.sha256(f"{asked}|{machine.identity()}".encode()).hexdigest()[:12]
    return cache_folder() / "rerank" / f"choice-{slug(spec)}-{mark}.json"


def slug(spec: Spec) -> str:
    """A model and its revision as a file's name."""
    name = re.sub(r"[^\w.-]+", "--", spec.name)
    return f"{name}@{identity.revision(spec)}" + ("" if spec.kind is not Kind.CHAT else "-chat")
