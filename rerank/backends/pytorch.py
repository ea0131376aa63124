"""PyTorch: runs every kind, on the processor or a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..encoding import Arrays

if TYPE_CHECKING:
    import torch


class TorchBackend:
    """A torch module that takes the encoding's arrays in order and gives logits (rows,)."""

    name = "torch"
    parallel = 1
    multiple = 8
    most_tokens: int | None = None

    def __init__(
        self, module: torch.nn.Module, inputs: Sequence[str], *, dtype: str, device: str, threads: int | None
    ) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        self.dtype = dtype
        self._torch = torch
        self._device = torch.device(device)
        self._inputs = tuple(inputs)
        self._module: Any = module.to(self._device, getattr(torch, dtype)).eval()

    def run(self, batches: Sequence[Arrays]) -> list[NDArray[np.float32]]:
        """Logits of each batch, (rows,)."""
        torch = self._torch
        results = []
        with torch.inference_mode():
            for batch in batches:
                tensors = [torch.from_numpy(batch[name]).to(self._device) for name in self._inputs]
                results.append(self._module(*tensors).float().cpu().numpy())
        return results

    def about(self) -> Mapping[str, Any]:
        """Device, type and threads."""
        torch = self._torch
        device = str(self._device)
        if self._device.type == "cuda":
            device = torch.cuda.get_device_name(self._device)
        return {
            "backend": f"torch {torch.__version__}",
            "device": device,
            "dtype": self.dtype,
            "threads": torch.get_num_threads(),
        }

    def close(self) -> None:
        """Drop the weights."""
        self._module = None
