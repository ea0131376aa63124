"""How much memory an engine gets, from what is free. Arithmetic, so that `plan` and `doctor` can show it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, OutOfMemory

MIB, GIB = 2**20, 2**30

_RUNTIME = int(1.8 * GIB)
"""What an engine's process needs beside weights and cache: measured 1.5 GiB for libraries and buffers."""
_SHARE = 0.5
"""Of what is free once the rest is counted, the cache takes at most this: the machine is not ours alone."""
_TYPICAL = 2560
"""Tokens of a usual request, prompt and reply: the cache is made for `max_in_flight` of these."""

_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": MIB, "GIB": GIB}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What an engine will be given.

    Attributes:
        cache: bytes for keys and values.
        weights: bytes of the model as loaded.
        token: bytes that one token takes in the cache.
        free: bytes that were free when this was worked out.
        sequences: requests of usual length that fit the cache at once.
        why: the reasoning, in a sentence.
    """

    cache: int
    weights: int
    token: int
    free: int
    sequences: int
    why: str

    def about(self) -> dict[str, Any]:
        """For receipts: sizes in MiB."""
        return {
            "kv_cache_mib": self.cache // MIB,
            "weights_mib": self.weights // MIB,
            "free_mib": self.free // MIB,
            "sequences": self.sequences,
            "why": self.why,
        }


def size(
    model: Mapping[str, Any],
    weights: int,
    dtype: str,
    context: int,
    in_flight: int,
    free: int,
    asked: int | None = None,
) -> Sizing:
    """Divide what is free.

    Args:
        model: the model's config.json.
        weights: bytes of its weight files, two bytes a parameter as they are usually stored.
        dtype: number format of weights and cache.
        context: longest request, in tokens.
        in_flight: requests at once.
        free: bytes free now.
        asked: the cache size that the configuration names, in bytes.

    Raises:
        OutOfMemory: not even one request of the full context fits; says how much and what to lower.
    """
    width = _BYTES.get(dtype, 2)
    token = cache_bytes_per_token(model, width)
    loaded = weights * width // max(1, _BYTES.get(str(model.get("dtype", model.get("torch_dtype"))), 2))
    least = token * (context + 128)
    spare = free - loaded - _RUNTIME
    wanted = max(least, token * _TYPICAL * in_flight)
    cache = asked if asked is not None else min(wanted, int(spare * _SHARE))
    if cache < least or spare < cache:
        need = loaded + _RUNTIME + max(least, asked or 0)
        raise OutOfMemory(
            f"the model needs {_gib(need)} ({_gib(loaded)} weights, {_gib(_RUNTIME)} runtime, "
            f"{_gib(max(least, asked or 0))} for keys and values of {context} tokens) "
            f"and {_gib(free)} is free",
            hint="lower max_model_len (the cache for one request shrinks with it) or memory, "
            "name a smaller model, or free memory",
        )
    share = (
        "as configured"
        if asked is not None
        else "as wanted"
        if cache == wanted
        else f"{_SHARE:.0%} of the rest"
    )
    return Sizing(
        cache=cache,
        weights=loaded,
        token=token,
        free=free,
        sequences=max(1, cache // (token * min(_TYPICAL, context))),
        why=f"{_gib(free)} free - {_gib(loaded)} weights - {_gib(_RUNTIME)} runtime = {_gib(spare)}; "
        f"{in_flight} requests of {_TYPICAL} tokens at {token // 1024} KiB each token want {_gib(wanted)}; "
        f"given {_gib(cache)}, {share}",
    )


def cache_bytes_per_token(model: Mapping[str, Any], width: int) -> int:
    """Keys and values of one token over all layers, from a config.json; `width` bytes a number."""
    model = model.get("text_config") or model
    heads = int(model.get("num_attention_heads") or model.get("n_head") or 16)
    hidden = int(model.get("hidden_size") or model.get("n_embd") or 2048)
    kept = int(model.get("num_key_value_heads") or heads)
    head = int(model.get("head_dim") or hidden // heads)
    layers = int(model.get("num_hidden_layers") or model.get("n_layer") or 24)
    return 2 * layers * kept * head * width


def weight_bytes(folder: Path) -> int:
    """Bytes of a folder's weight files."""
    files = [*folder.glob("*.safetensors")] or [*folder.glob("*.bin")]
    return sum(file.stat().st_size for file in files)


def free_memory() -> int:
    """Bytes that can be had without swapping: the machine's, or less where a control group says so."""
    free = _meminfo()
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            bound = int(Path(limit).read_text())
            free = min(free, bound - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return max(free, 0)


def parse_size(text: str) -> int:
    """ "2GiB", "512 MB" or a number of bytes.

    Raises:
        ConfigError: it is neither.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _UNITS:
        raise ConfigError(f"memory = {text!r} is no size", hint='write it as "2GiB" or "512MB"')
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _meminfo() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (OSError, ValueError):
        return 8 * GIB


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
