"""Encode single sides once and put pairs together afterwards.

While no attention crosses, a pair's states are those of its sides encoded alone. So for training the head the
encoder runs once for each query and each text instead of once for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from ..embedded.head import Head
from ..embedded.model import TwoSidedModel, pool
from ..embedded.packing import CLS, PAD, QUERY, SEP, TEXT

JOIN = 4
"""Layers below which nothing is trained and no attention crosses, so that their work is done once a text."""


def tokenizer(folder: Path) -> Tokenizer:
    """The base model's tokenizer, without cutting or padding."""
    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


@dataclass(frozen=True, slots=True)
class Sides:
    """Encoded texts: ids with `[CLS]` and `[SEP]`, states in half precision, and where each one starts.

    `states` are the last layer's; `lower` those after layer `JOIN`, which the second stage starts from.
    """

    ids: NDArray[np.int64]
    states: NDArray[np.float16]
    lower: NDArray[np.float16]
    starts: NDArray[np.int64]

    def __getitem__(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
        part = slice(self.starts[index], self.starts[index + 1])
        return self.ids[part], self.states[part]


class Encoder:
    """The encoder with no attention across, on OpenVINO (twice as fast as torch on AVX2) in float32."""

    def __init__(self, model: TwoSidedModel, threads: int = 2) -> None:
        import openvino

        class States(torch.nn.Module):
            def forward(self, input_ids: Tensor, side_ids: Tensor) -> tuple[Tensor, Tensor]:
                lower = model.attend(model.embed(input_ids, side_ids), side_ids, 0, JOIN)
                return model.attend(lower, side_ids, JOIN), lower

        example = torch.ones((2, 8), dtype=torch.int64)
        with torch.inference_mode():
            graph = openvino.convert_model(States(), example_input=(example, example))
        options = {
            "PERFORMANCE_HINT": "THROUGHPUT",
            "NUM_STREAMS": str(threads),
            "INFERENCE_NUM_THREADS": threads,
        }
        self._compiled = openvino.Core().compile_model(
            graph, "CPU", options | {"INFERENCE_PRECISION_HINT": "f32"}
        )
        self._queue = openvino.AsyncInferQueue(self._compiled, threads)

    def __call__(self, ids: Sequence[Sequence[int]], side: int, *, batch_tokens: int = 2048) -> Sides:
        """Encode token ids (without special tokens) as one side of a pair."""
        lengths = np.array([len(one) + 2 for one in ids])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        all_ids = np.empty(starts[-1], np.int64)
        states = np.empty((starts[-1], 384), np.float16)
        lower = np.empty_like(states)

        def store(request: Any, rows: Sequence[int]) -> None:
            for index, target in enumerate((states, lower)):
                out = request.get_output_tensor(index).data
                for place, row in enumerate(rows):
                    target[starts[row] : starts[row + 1]] = out[place, : lengths[row]]

        self._queue.set_callback(store)
        batch: list[int] = []
        for row in [int(r) for r in np.argsort(lengths, kind="stable")] + [-1]:
            if batch and (row < 0 or lengths[row] * (len(batch) + 1) > batch_tokens):
                width = int(lengths[batch[-1]])
                input_ids = np.full((len(batch), width), PAD, np.int64)
                for place, member in enumerate(batch):
                    input_ids[place, : lengths[member]] = [CLS, *ids[member], SEP]
                    all_ids[starts[member] : starts[member + 1]] = input_ids[place, : lengths[member]]
                side_ids = np.where(np.arange(width) < lengths[batch][:, None], side, 0)
                self._queue.start_async([input_ids, side_ids], list(batch))
                batch = []
            if row >= 0:
                batch.append(row)
        self._queue.wait_all()
        return Sides(all_ids, states, lower, starts)


def means(sides: Sides) -> NDArray[np.float32]:
    """The unit mean vector of each side, (sides, 384)."""
    sums = np.stack([sides[i][1].astype(np.float32).mean(0) for i in range(len(sides.starts) - 1)])
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def pair_features(head: Head, queries: Sides, texts: Sides, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """The head's features of pairs (query index, text index), (pairs, features); batched by length."""
    order = sorted(
        range(len(pairs)),
        key=lambda p: texts.starts[pairs[p][1] + 1] - texts.starts[pairs[p][1]],
    )
    found = None
    for first in range(0, len(order), 48):
        rows = order[first : first + 48]
        parts = [(queries[pairs[row][0]], texts[pairs[row][1]]) for row in rows]
        width = max(len(q[0]) + len(t[0]) for q, t in parts)
        input_ids = torch.zeros((len(rows), width), dtype=torch.int64)
        side_ids = torch.zeros_like(input_ids)
        hidden = torch.zeros((len(rows), width, 384))
        for place, (query, text) in enumerate(parts):
            middle, end = len(query[0]), len(query[0]) + len(text[0])
            input_ids[place, :middle] = torch.from_numpy(query[0])
            input_ids[place, middle:end] = torch.from_numpy(text[0])
            side_ids[place, :middle], side_ids[place, middle:end] = QUERY, TEXT
            hidden[place, :middle] = torch.from_numpy(query[1])
            hidden[place, middle:end] = torch.from_numpy(text[1])
        with torch.inference_mode():
            sides = [pool(hidden, side_ids == side) for side in (QUERY, TEXT)]
            some = head.features(input_ids, side_ids, hidden, *sides)
        if found is None:
            found = torch.empty((len(pairs), some.shape[1]))
        found[torch.tensor(rows)] = some
    assert found is not None
    return found
