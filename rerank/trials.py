"""Trying out the ways to run a model: each must give float32's order and nearly its logits; the fastest
wins."""

from __future__ import annotations

import copy
import logging
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core import machine, wheels
from ..core.config import ScorerConfig
from ..core.errors import EngineMissing
from . import batches, choice, identity
from .backends import Backend
from .choice import Choice, Trial
from .encoding import Arrays, Encoding, Ids
from .kinds import Spec

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

log = logging.getLogger("afterpass.rerank")

MAX_DIFFERENCE = 0.1
"""The largest difference of a logit from float32's that a backend may show on the probe set."""
MIN_TAU = 0.99
"""Kendall's tau-b between its order of the probe set and float32's, at least."""

_PLAIN = ("torch", "float32")
_WIDTH_STEP = 16
_ROWS_EACH = 6
_ROUNDS = 3


def choose(
    spec: Spec,
    config: ScorerConfig,
    module: torch.nn.Module,
    tokenizer: Tokenizer,
    encoding: Encoding,
) -> Choice:
    """Try the ways out and remember the fastest that passes. Takes seconds to minutes, once."""
    with wheels.locked(choice.folder() / ".lock"):
        if before := choice.kept(spec, config):  # another process did it while this one waited
            return before
        log.info("trying out which backend runs %s fastest here, once", spec.name)
        found = _try(spec, config, module, tokenizer, encoding)
        identity.write_json(choice.store(spec, config), choice.as_json(found))
    return found


def start(
    spec: Spec,
    config: ScorerConfig,
    module: torch.nn.Module,
    encoding: Encoding,
    tokenizer: Tokenizer,
    way: tuple[str, str],
) -> Backend:
    """A backend, converted where need be.

    Raises:
        EngineMissing: its package is not installed.
    """
    name, dtype = way
    threads = config.threads or machine.usable_cores()
    if name == "torch":
        from .backends.pytorch import TorchBackend

        device = device_of(config)
        return TorchBackend(module, encoding.inputs, dtype=dtype, device=device, threads=threads)
    package = {"openvino": "openvino", "onnx": "onnxruntime"}[name]
    if not machine.has(package):
        raise EngineMissing(
            f'backend = "{name}" needs the package {package}',
            hint=f'pip install {package}, or use backend = "auto"',
        )
    folder = choice.folder() / choice.slug(spec)
    example = encoding.collate([_some(3), _some(5)], [_some(20), _some(11)], 20 + 5 + encoding.specials)
    with wheels.locked(choice.folder() / f".{choice.slug(spec)}.lock"):
        if name == "onnx":
            from .backends import onnx

            exported = folder / "model.onnx"
            if not exported.exists():
                onnx.convert(module, example, exported)
            return onnx.OnnxBackend(exported, dtype=dtype, threads=threads)
        from .backends import openvino

        plain = folder / "openvino.xml"
        if not plain.exists():
            openvino.convert(module, example, plain)
        if dtype == "int8":
            quantised = folder / "openvino-int8.xml"
            if not quantised.exists():
                openvino.quantise(plain, _samples(tokenizer, encoding, config.max_length), quantised)
            return openvino.OpenVINOBackend(quantised, dtype=dtype, threads=threads)
    return openvino.OpenVINOBackend(plain, dtype=dtype, threads=threads)


def probe(
    tokenizer: Tokenizer, encoding: Encoding, max_length: int
) -> tuple[list[tuple[Ids, Ids]], list[int]]:
    """Pairs of query and text ids from Python's own help pages, of every width in use, and their lengths.

    Returns:
        Rows (query ids, text ids), `_ROWS_EACH` for each multiple of 16 tokens up to `max_length`, half of
        them a few tokens short of it; and each row's length with special tokens.
    """
    from pydoc_data.topics import topics

    pages = [re.sub(r"\s+", " ", text) for _, text in sorted(topics.items()) if len(text) > 2000]
    encoded = [
        np.array(page.ids, np.int32)
        for page in tokenizer.encode_batch([page[:12_000] for page in pages], add_special_tokens=False)
    ]
    queries = [ids[:size] for ids, size in zip(encoded, _cycle((4, 7, 12, 20)), strict=False)]
    rows: list[tuple[Ids, Ids]] = []
    number = 0
    for width in range(encoding.specials + 16, max_length + 1, _WIDTH_STEP):
        for short in range(_ROWS_EACH):
            query = queries[number % len(queries)][: max(2, (width - encoding.specials) // 3)]
            # Every other text is of the query's own page, so that logits spread from low to high.
            page = encoded[(number + (number % 2) * 7) % len(encoded)]
            room = width - encoding.specials - len(query) - (short % 2) * (short + 1)
            at = (number * 37) % max(1, len(page) - room)
            rows.append((query, page[at : at + max(1, room)]))
            number += 1
    return rows, [len(query) + len(text) + encoding.specials for query, text in rows]


def compare(reference: NDArray[np.float32], found: NDArray[np.float32]) -> tuple[float, float]:
    """The largest difference and Kendall's tau-b (pairs that float32 itself leaves within 0.001 count as
    ties)."""
    from scipy.stats import kendalltau

    if not np.isfinite(found).all():
        return math.inf, 0.0
    test: Any = kendalltau(np.round(reference, 3), np.round(found, 3))
    tau = float(test.statistic)
    return float(np.abs(reference - found).max()), tau if math.isfinite(tau) else 1.0


def score_rows(
    backend: Backend, encoding: Encoding, rows: Sequence[tuple[Ids, Ids]], lengths: Sequence[int], budget: int
) -> NDArray[np.float32]:
    """Logits of rows through a backend, in the rows' order."""
    planned = batches.plan(lengths, budget, backend.multiple, most_tokens=backend.most_tokens)
    arrays = [
        encoding.collate([rows[i][0] for i in chosen], [rows[i][1] for i in chosen], width)
        for width, chosen in planned
    ]
    logits = np.empty(len(rows), np.float32)
    logits[[i for _, chosen in planned for i in chosen]] = np.concatenate(backend.run(arrays))
    return logits


def device_of(config: ScorerConfig) -> str:
    """The torch device that `config.device` means here."""
    if config.device != "auto":
        return config.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _try(
    spec: Spec, config: ScorerConfig, module: torch.nn.Module, tokenizer: Tokenizer, encoding: Encoding
) -> Choice:
    rows, lengths = probe(tokenizer, encoding, min(config.max_length, 512))
    plain = start(spec, config, module, encoding, tokenizer, _PLAIN)
    reference = score_rows(plain, encoding, rows, lengths, config.batch_tokens)
    running: dict[tuple[str, str], Backend] = {}
    trials: dict[tuple[str, str], Trial] = {}
    for way in choice.ways(spec, config):
        try:
            own = copy.deepcopy(module) if way[0] == "torch" else module  # torch changes weights in place
            backend = plain if way == _PLAIN else start(spec, config, own, encoding, tokenizer, way)
            found = score_rows(backend, encoding, rows, lengths, config.batch_tokens)
        except Exception as error:
            trials[way] = Trial(*way, why=f"{type(error).__name__}: {error}"[:300])
            continue
        difference, tau = compare(reference, found)
        passed = difference <= MAX_DIFFERENCE and tau >= MIN_TAU
        why = "" if passed else f"differs from float32 by up to {difference:.3g}, tau {tau:.3f}"
        trials[way] = Trial(*way, None, round(difference, 6), round(tau, 5), passed, why)
        running[way] = backend
    seconds = dict.fromkeys(running, math.inf)
    for _ in range(_ROUNDS):  # in turn, so that other work on the machine troubles all alike
        for way, backend in running.items():
            begun = time.perf_counter()
            score_rows(backend, encoding, rows, lengths, config.batch_tokens)
            seconds[way] = min(seconds[way], time.perf_counter() - begun)
    for backend in running.values():
        if backend is not plain:
            backend.close()
    results = [
        replace(trial, seconds=round(seconds[way], 4) if way in seconds else None)
        for way, trial in trials.items()
    ]
    good = [trial for trial in results if trial.passed and trial.seconds is not None]
    best = min(good, key=lambda t: t.seconds or math.inf) if good else Trial("torch", "float32")
    return Choice(best.backend, best.dtype, machine.identity(), spec.name, tuple(results))


def _samples(tokenizer: Tokenizer, encoding: Encoding, max_length: int) -> list[Arrays]:
    """Every other row of the probe set, alone, to take the ranges of activations from."""
    rows, lengths = probe(tokenizer, encoding, min(max_length, 512))
    return [
        encoding.collate([rows[i][0]], [rows[i][1]], batches.padded(lengths[i], _WIDTH_STEP))
        for i in range(0, len(rows), 2)
    ]


def _some(count: int) -> Ids:
    return np.arange(1000, 1000 + count, dtype=np.int32)


def _cycle(values: Sequence[int]) -> Iterator[int]:
    while True:
        yield from values
