"""Triton's Python backend for an Afterpass scorer; which one, config.pbtxt says."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

if sys.flags.ignore_environment:  # some builds of the backend start Python without reading PYTHONPATH
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]

import numpy as np
import triton_python_backend_utils as pb_utils

from afterpass import rerank
from afterpass.core.config import ScorerConfig
from afterpass.core.types import Pair


class TritonPythonModel:
    """QUERY and DOC, (rows, 1) bytes of UTF-8 -> SCORE, (rows, 1) float32."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the scorer that the parameters name."""
        _check_numpy()
        parameters = json.loads(args["model_config"])["parameters"]
        settings = {name: value["string_value"] for name, value in parameters.items()}
        self._scorer = rerank.load(ScorerConfig.model_validate(settings))

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request; one that holds a pair that cannot be scored is an error alone."""
        texts = [(_column(request, "QUERY"), _column(request, "DOC")) for request in requests]
        flat = [pair for queries, docs in texts for pair in zip(queries, docs, strict=True)]
        logits = self._scores(flat)
        responses, start = [], 0
        for queries, _ in texts:
            rows = logits[start : start + len(queries)]
            start += len(queries)
            responses.append(_response(rows))
        return responses

    def finalize(self) -> None:
        """Drop the weights."""
        self._scorer.close()

    def _scores(self, pairs: list[tuple[str, str]]) -> list[float | str]:
        """Each pair's logit, or what was wrong with it."""
        waiting = [
            Pair(uuid5(NAMESPACE_OID, query), UUID(int=number), query, text)
            for number, (query, text) in enumerate(pairs)
        ][::-1]
        found: list[float | str] = ["no score"] * len(pairs)
        while waiting or self._scorer.pending:
            for _ in range(min(self._scorer.room, len(waiting))):
                self._scorer.submit(waiting.pop())
            for score in self._scorer.step():
                value = score.logit if score.logit is not None else str(score.error)
                found[score.text_hash.int] = value
        return found


def _check_numpy() -> None:
    """A backend built for numpy 1 misreads arrays of numpy 2: every element as the first, or worse."""
    sent = np.arange(4, dtype=np.uint8)
    if not np.array_equal(pb_utils.Tensor("X", sent).as_numpy(), sent):
        raise RuntimeError(
            f"this Triton's Python backend cannot read arrays of numpy {np.__version__}: "
            "put numpy 1.26 first on PYTHONPATH"
        )


def _column(request: Any, name: str) -> list[str]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return [value.decode("utf-8", "replace") for value in tensor.as_numpy().reshape(-1)]


def _response(rows: list[float | str]) -> Any:
    wrong = [row for row in rows if isinstance(row, str)]
    if wrong:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{len(wrong)} pairs: {wrong[0]}"))
    scores = np.array(rows, np.float32).reshape(-1, 1)
    return pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", scores)])
