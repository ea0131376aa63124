"""OpenVINO on the processor: the torch model converted once, several batches in flight.

Used directly: optimum's OpenVINO package needs an older transformers than vLLM.
"""

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
    """Write a module as OpenVINO's IR with both sides of every input dynamic, atomically.

    Args:
        module: takes the arrays of `example` in order.
        target: the `.xml` file; its weights lie beside it as `.bin`.
    """
    import openvino
    import torch

    names = list(example)
    tensors = tuple(torch.from_numpy(example[name]) for name in names)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        model = openvino.convert_model(
            module, example_input=tensors, input=[((-1, -1), openvino.Type.i64) for _ in names]
        )
    for name, parameter in zip(names, model.inputs, strict=True):
        parameter.get_tensor().set_names({name})
    store(model, target)


def quantise(source: Path, samples: Sequence[Arrays], target: Path) -> None:
    """Int8 weights and activations of a converted model (nncf), ranges taken from `samples`."""
    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.ERROR)
    model = openvino.Core().read_model(str(source))
    names = [port.any_name for port in model.inputs]
    rows = [{name: np.asarray(sample[name]) for name in names} for sample in samples]
    quantised = nncf.quantize(
        model,
        nncf.Dataset(rows),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(rows),
        fast_bias_correction=True,
    )
    store(quantised, target)


def store(model: Any, target: Path) -> None:
    """Save under the final name only when whole."""
    import openvino

    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{os.getpid()}-{target.name}")
    openvino.save_model(model, str(scratch), compress_to_fp16=False)
    os.replace(scratch.with_suffix(".bin"), target.with_suffix(".bin"))
    os.replace(scratch, target)


class OpenVINOBackend:
    """A compiled model behind a queue of as many requests as there are streams.

    Args:
        path: the `.xml` that `convert` or `quantise` wrote.
        dtype: "float32", "bfloat16" (where the processor has it) or "int8" (the file says so).
        threads: cores to use.
    """

    name = "openvino"

    def __init__(self, path: Path, *, dtype: str, threads: int) -> None:
        import openvino

        self.dtype = dtype
        self._threads = threads
        streams = max(1, threads)
        core = openvino.Core()
        compiled = core.compile_model(
            str(path),
            "CPU",
            {
                "PERFORMANCE_HINT": "THROUGHPUT",
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": streams,
                "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bfloat16" else "f32",
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._names = [port.any_name for port in compiled.inputs]
        self._queue: Any = openvino.AsyncInferQueue(compiled, streams)
        self._streams = streams
        # In float32 the activations of more tokens leave the cache (1,024 by 1,536 are 6 MB), and wider
        # steps only pad more; bfloat16's matrix units want both.
        small = dtype == "float32"
        self.multiple = 8 if small else 16
        self.most_tokens: int | None = 1024 if small else None
        self.parallel = (4 if small else 2) * streams

    def run(self, batches: Sequence[Arrays]) -> list[NDArray[np.float32]]:
        """Logits of each batch, (rows,); batches run side by side."""
        results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(batches)

        def take(request: Any, index: int) -> None:
            results[index] = np.array(request.get_output_tensor(0).data, np.float32).reshape(-1)

        self._queue.set_callback(take)
        for index, batch in enumerate(batches):
            self._queue.start_async({name: batch[name] for name in self._names}, index)
        self._queue.wait_all()
        return results

    def about(self) -> Mapping[str, Any]:
        """Version, type, threads and streams."""
        import openvino

        return {
            "backend": f"openvino {openvino.__version__}",
            "device": "cpu",
            "dtype": self.dtype,
            "threads": self._threads,
            "streams": self._streams,
        }

    def close(self) -> None:
        """Drop the compiled model."""
        self._queue = None
