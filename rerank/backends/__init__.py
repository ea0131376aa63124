"""What runs a model: the same arrays in, the same logits out, within a stated tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..encoding import Arrays


class Backend(Protocol):
    """A model, ready to run.

    Attributes:
        name: as `ScorerConfig.backend` names it.
        dtype: what the weights are: "float32", "bfloat16", "float16", "int8".
        parallel: how many batches it wants at a time to keep the machine full.
        multiple: widths that it likes are multiples of it.
        most_tokens: padded tokens beyond which a batch only gets slower; None where more never hurt.
    """

    name: str
    dtype: str
    parallel: int
    multiple: int
    most_tokens: int | None

    def run(self, batches: Sequence[Arrays]) -> list[NDArray[np.float32]]:
        """Logits of each batch, (rows,). Raises whatever the engine raises; the caller tries rows alone."""
        ...

    def about(self) -> Mapping[str, Any]:
        """How it was set up; JSON values only."""
        ...

    def close(self) -> None:
        """Give back memory and threads. Safe to call twice."""
        ...
