"""What gives rows their logits: a model in this process, or one on a server (`remote`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .backends import Backend
from .encoding import Encoding
from .reading import Job

Row = tuple[Job, int]
"""A job and the number of its chunk."""

Planned = tuple[int, list[Row]]
"""A batch: its padded width and its rows."""


class Runner(Protocol):
    """What a scorer asks of whatever runs the model.

    Attributes:
        parallel: how many batches it wants at a time.
        multiple: widths that it likes are multiples of it.
        most_tokens: padded tokens beyond which a batch only gets slower; None where more never hurt.
    """

    parallel: int
    multiple: int
    most_tokens: int | None

    @property
    def most_rows(self) -> int | None:
        """Rows of a batch at most; None where only the token budget counts."""
        ...

    @property
    def specials(self) -> int:
        """Tokens of a row beside the query's and the text's."""
        ...

    def logits(self, planned: Sequence[Planned]) -> Sequence[Any]:
        """Logits of each batch, (rows,).

        Raises:
            EngineError: the engine is gone. Anything else: these batches failed, and are tried in parts.
        """
        ...

    def about(self) -> Mapping[str, Any]:
        """How it was set up, and the seconds spent in the model; JSON values only."""
        ...

    def close(self) -> None:
        """Give back memory, threads and connections. Safe to call twice."""
        ...


class Local:
    """A backend in this process, given arrays."""

    most_rows = None

    def __init__(self, backend: Backend, encoding: Encoding) -> None:
        self._backend = backend
        self._encoding = encoding
        self._seconds = 0.0
        self.parallel = backend.parallel
        self.multiple = backend.multiple
        self.most_tokens = backend.most_tokens

    @property
    def specials(self) -> int:
        return self._encoding.specials

    def logits(self, planned: Sequence[Planned]) -> Sequence[Any]:
        arrays = []
        for width, rows in planned:
            texts = [job.text[slice(*job.read[chunk])] for job, chunk in rows]
            arrays.append(self._encoding.collate([job.query for job, _ in rows], texts, width))
        started = time.perf_counter()
        try:
            return self._backend.run(arrays)
        finally:
            self._seconds += time.perf_counter() - started

    def about(self) -> Mapping[str, Any]:
        return {**self._backend.about(), "model_seconds": round(self._seconds, 3)}

    def close(self) -> None:
        self._backend.close()
