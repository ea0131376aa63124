"""Encode single sides once and put pairs together afterwards.

Below the first layer in which attention crosses, a pair's states are those of its sides encoded alone. So the
lower layers run once for each query and each text instead of once for each pair; only the upper ones and the
head see pairs. The scores are the same up to rounding (a test holds it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from ..embedded.model import LAYERS, SCALE, SHIFT, TwoSidedModel, pool
from ..embedded.packing import CLS, PAD, QUERY, SEP, TEXT

JOIN = 4
"""The first layer that the second stage trains and lets attention cross in."""

Pairs = Sequence[tuple[int, int]]


def tokenizer(folder: Path) -> Tokenizer:
    """The base model's tokenizer, without cutting or padding."""
    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


def token_ids(tokens: Tokenizer, texts: Sequence[str], most: int) -> list[list[int]]:
    """The first `most` ids of each text, without special tokens."""
    return [found.ids[:most] for found in tokens.encode_batch_fast(list(texts), add_special_tokens=False)]


def first_open_layer(model: TwoSidedModel) -> int:
    """The first layer in which attention crosses; 6 where none does."""
    opened = (model.cross_bias > -100).any(1).nonzero()
    return int(opened[0]) if len(opened) else LAYERS


@dataclass(frozen=True, slots=True)
class Sides:
    """Encoded texts: ids with `[CLS]` and `[SEP]`, states (half precision) and where each text starts."""

    ids: NDArray[np.int64]
    states: NDArray[np.float16]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
        part = slice(self.starts[index], self.starts[index + 1])
        return self.ids[part], self.states[part]

    def length(self, index: int) -> int:
        """Tokens of one text."""
        return int(self.starts[index + 1] - self.starts[index])

    def means(self) -> NDArray[np.float32]:
        """The unit mean vector of each text, (texts, 384)."""
        sums = np.stack([self[i][1].astype(np.float32).mean(0) for i in range(len(self))])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)


class Encoder:
    """Layers up to some ones, with no attention across, in float32 on OpenVINO (on AVX2 twice as fast)."""

    def __init__(self, model: TwoSidedModel, stops: Sequence[int] = (LAYERS,), threads: int = 2) -> None:
        import openvino

        class States(torch.nn.Module):
            def forward(self, input_ids: Tensor, side_ids: Tensor) -> tuple[Tensor, ...]:
                found, hidden, done = [], model.embed(input_ids, side_ids), 0
                for stop in stops:
                    hidden = model.attend(hidden, side_ids, done, stop)
                    found.append(hidden)
                    done = stop
                return tuple(found)

        example = torch.ones((2, 8), dtype=torch.int64)
        with torch.inference_mode():
            graph = openvino.convert_model(States(), example_input=(example, example))
        options = {
            "PERFORMANCE_HINT": "THROUGHPUT",
            "NUM_STREAMS": str(threads),
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self._stops = len(stops)
        compiled = openvino.Core().compile_model(graph, "CPU", options)
        self._queue = openvino.AsyncInferQueue(compiled, threads)

    def __call__(self, ids: Sequence[Sequence[int]], side: int, *, batch_tokens: int = 2048) -> list[Sides]:
        """Encode token ids (without special tokens) as one side of a pair; one result for each stop."""
        lengths = np.array([len(one) + 2 for one in ids], np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        all_ids = np.empty(starts[-1], np.int64)
        states = [np.empty((starts[-1], 384), np.float16) for _ in range(self._stops)]

        def store(request: Any, rows: Sequence[int]) -> None:
            for index, target in enumerate(states):
                out = request.get_output_tensor(index).data
                for place, row in enumerate(rows):
                    target[starts[row] : starts[row + 1]] = out[place, : lengths[row]]

        self._queue.set_callback(store)
        for rows in by_length(lengths, batch_tokens):
            width = int(lengths[rows].max())
            input_ids = np.full((len(rows), width), PAD, np.int64)
            for place, row in enumerate(rows):
                input_ids[place, : lengths[row]] = [CLS, *ids[row], SEP]
                all_ids[starts[row] : starts[row + 1]] = input_ids[place, : lengths[row]]
            side_ids = np.where(np.arange(width) < lengths[rows][:, None], side, 0)
            self._queue.start_async([input_ids, side_ids], rows)
        self._queue.wait_all()
        return [Sides(all_ids, one, starts) for one in states]


def by_length(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[list[int]]:
    """Rows in batches of similar length whose padded size stays within `batch_tokens`."""
    batch: list[int] = []
    for row in np.argsort(lengths, kind="stable").tolist():
        if batch and lengths[row] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def assemble(queries: Sides, texts: Sides, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """`input_ids`, `side_ids` (pairs, tokens) and states (pairs, tokens, 384) of pairs of indices."""
    width = max(queries.length(q) + texts.length(t) for q, t in pairs)
    input_ids = torch.zeros((len(pairs), width), dtype=torch.int64)
    side_ids = torch.zeros_like(input_ids)
    hidden = torch.zeros((len(pairs), width, 384))
    for place, (q, t) in enumerate(pairs):
        middle, end = queries.length(q), queries.length(q) + texts.length(t)
        for side, part, (ids, states) in (
            (QUERY, slice(0, middle), queries[q]),
            (TEXT, slice(middle, end), texts[t]),
        ):
            input_ids[place, part] = torch.from_numpy(ids)
            side_ids[place, part] = side
            hidden[place, part] = torch.from_numpy(states)
    return input_ids, side_ids, hidden


@torch.inference_mode()
def scores(
    model: TwoSidedModel, queries: Sides, texts: Sides, pairs: Pairs, *, join: int, batch_tokens: int = 6000
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits (pairs,), cosines (pairs,) and, where the model has a head, its features (pairs, features).

    Args:
        queries, texts: states after layer `join`, below which no attention may cross.
    """
    logits, cosines = torch.empty(len(pairs)), torch.empty(len(pairs))
    features: Tensor | None = None
    lengths = np.array([queries.length(q) + texts.length(t) for q, t in pairs], np.int64)
    for rows in by_length(lengths, batch_tokens):
        input_ids, side_ids, hidden = assemble(queries, texts, [pairs[row] for row in rows])
        hidden = model.attend(hidden, side_ids, join)
        query, text = (pool(hidden, side_ids == side) for side in (QUERY, TEXT))
        cosines[rows] = (query * text).sum(1)
        logits[rows] = SCALE * cosines[rows] + SHIFT
        if model.head is not None:
            some = model.head.features(input_ids, side_ids, hidden, query, text)
            logits[rows] += model.head.combine(some, query, text)
            if features is None:
                features = torch.empty((len(pairs), some.shape[1]))
            features[rows] = some
    return logits, cosines, features
