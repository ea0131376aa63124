"""What this machine can do, told without loading any model library."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

_FLAGS = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2")


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 in hardware; without it, bfloat16 is many times slower."""
    return bool({"amx_bf16", "avx512_bf16"} & set(processor()[1]))


def has_vnni() -> bool:
    """Whether the processor has instructions for int8; without them int8 is slower than float32."""
    return bool({"amx_int8", "avx512_vnni", "avx_vnni"} & set(processor()[1]))


def has_nvidia() -> bool:
    """Whether an NVIDIA driver is there; torch says later whether it can be used."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def torch_for_gpus() -> bool:
    """Whether the torch that is installed was built for more than the processor."""
    try:
        return "+cpu" not in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False


def has(package: str) -> bool:
    """Whether a package could be imported; imports nothing."""
    return find_spec(package) is not None


def identity() -> str:
    """What a measured choice of scoring backend holds for: processor, cores, and the engines' versions."""
    name, flags = processor()
    versions = []
    for package in ("torch", "openvino", "onnxruntime", "nncf"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    parts = [name, " ".join(flags), f"{usable_cores()} cores", "nvidia" if has_nvidia() else "", *versions]
    return "; ".join(part for part in parts if part)
