"""onnxruntime on the processor: the torch model exported once."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..encoding import Arrays

if TYPE_CHECKING:
    import torch


def convert(module: torch.nn.Module, example: Arrays, target: Path) -> None:
    """Write a module as ONNX with both sides of every input dynamic, atomically.

    Args:
        module: takes the arrays of `example` in order.
    """
    import torch

    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{os.getpid()}-{target.name}")
    names = list(example)
    tensors = tuple(torch.from_numpy(example[name]) for name in names)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tensors,
            str(scratch),
            input_names=names,
            output_names=["logits"],
            dynamic_shapes=tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in names),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    os.replace(scratch, target)


class OnnxBackend:
    """An onnxruntime session.

    Args:
        path: the file that `convert` wrote.
        threads: cores to use.
    """

    name = "onnx"
    parallel = 1
    multiple = 8
    most_tokens: int | None = None

    def __init__(self, path: Path, *, dtype: str, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.dtype = dtype
        self._threads = threads
        self._session: Any = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._names = [port.name for port in self._session.get_inputs()]

    def run(self, batches: Sequence[Arrays]) -> list[NDArray[np.float32]]:
        """Logits of each batch, (rows,)."""
        return [
            np.asarray(self._session.run(None, {name: batch[name] for name in self._names})[0], np.float32)
            for batch in batches
        ]

    def about(self) -> Mapping[str, Any]:
        """Version, type and threads."""
        import onnxruntime

        return {
            "backend": f"onnxruntime {onnxruntime.__version__}",
            "device": "cpu",
            "dtype": self.dtype,
            "threads": self._threads,
        }

    def close(self) -> None:
        """Drop the session."""
        self._session = None
