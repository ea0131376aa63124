"""What the processor can do, told without loading any model library."""

from __future__ import annotations

import platform
import sys
from functools import cache
from pathlib import Path

_FLAGS = ("amx_bf16", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2")


@cache
def processor() -> tuple[str, tuple[str, ...]]:
    """The processor's name and those of its abilities that matter for matrices (Linux tells)."""
    name = platform.processor() or platform.machine()
    flags: tuple[str, ...] = ()
    if sys.platform == "linux":
        try:
            for line in Path("/proc/cpuinfo").read_text().splitlines():
                label, _, value = line.partition(":")
                if label.strip() == "model name":
                    name = value.strip()
                elif label.strip() == "flags":
                    words = set(value.split())
                    flags = tuple(flag for flag in _FLAGS if flag in words)
                    break
        except OSError:
            pass
    return name, flags


def has_nvidia() -> bool:
    """Whether an NVIDIA driver is there; torch says later whether it can be used."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 in hardware; without it, bfloat16 is many times slower."""
    return bool({"amx_bf16", "avx512_bf16"} & set(processor()[1]))
