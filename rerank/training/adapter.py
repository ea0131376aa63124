"""Write the trained part as the small file that ships."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..embedded.head import Head

LIMIT = 4 * 2**20
"""The most that the file may have, in bytes."""

_EXACT = ("head.stem",)
_WHOLE = ("cross_bias", "head.center", "head.spread", "head.linear.weight", "head.linear.bias")


def write_adapter(
    path: Path, head: Head, *, cross_bias: Tensor | None = None, lora: Mapping[str, Tensor] | None = None
) -> None:
    """Write head, cross bias and low-rank updates as safetensors; half precision but for the smallest parts.

    Args:
        path: the file; replaced atomically.
        head: with its tables.
        cross_bias: (6, 12); left at its start where not given.
        lora: `layers.I.NAME.lora_a` (rank, in) and `.lora_b` (out, rank), scaled so that b @ a is the update.

    Raises:
        ValueError: the file would be larger than 4 MB.
    """
    from safetensors.torch import save

    tensors = {f"head.{name}": tensor for name, tensor in head.state_dict().items()} | dict(lora or {})
    if cross_bias is not None:
        tensors["cross_bias"] = cross_bias
    stored = {name: _narrow(name, tensor.detach()).contiguous() for name, tensor in sorted(tensors.items())}
    data = save(stored)
    if len(data) > LIMIT:
        raise ValueError(f"the adapter has {len(data)} bytes, more than {LIMIT}")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(data)
    os.replace(scratch, path)


def _narrow(name: str, tensor: Tensor) -> Tensor:
    if name in _EXACT:
        return tensor.to(torch.int16)  # the vocabulary's 30,522 ids fit
    return tensor.float() if name in _WHOLE else tensor.to(torch.float16)
