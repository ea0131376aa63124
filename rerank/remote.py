"""Scoring by a Triton server: texts are cleaned, cut and matched here as ever; a row is one chunk's text."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from ..core.clean import clean
from ..core.config import ScorerConfig
from ..core.errors import EngineError
from ..core.types import Pair
from . import identity
from .backends.triton import Served, Triton, TritonWire
from .cross_encoder import CrossEncoder
from .encoding import embedded, plain
from .kinds import Kind, Spec
from .reading import Reader
from .runner import Planned

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_QUERIES = 4096
_QUICK = 5.0


@dataclass(frozen=True)
class TextLayout:
    """Stands for the layout that the server makes: only its length counts here."""

    specials: int = 4
    lead: str = ""


class Remote:
    """A model on a Triton server, given texts: a row is a query and a chunk of a text.

    Args:
        url, protocol: for `about`.
        tokenizer: the one that the reader cuts with.
        query_length: tokens of a query that are sent.
    """

    parallel = 1
    multiple = 1
    most_tokens: int | None = None

    def __init__(
        self, triton: Triton, url: str, protocol: str, tokenizer: Tokenizer, *, query_length: int
    ) -> None:
        self._triton = triton
        self._where = {"url": url, "protocol": protocol}
        self._tokenizer = tokenizer
        self._query_length = query_length
        self._asked: OrderedDict[UUID, str] = OrderedDict()
        self._seconds = 0.0
        self.specials = TextLayout().specials
        self.most_rows = triton.served.max_batch

    def logits(self, planned: Sequence[Planned]) -> Sequence[Any]:
        """See `runner.Runner`."""
        started = time.perf_counter()
        try:
            return [
                self._triton.infer(
                    [self._query(job.pair) for job, _ in rows],
                    [clean(job.pair.text[slice(*job.excerpts[chunk])]).text for job, chunk in rows],
                )
                for _, rows in planned
            ]
        finally:
            self._seconds += time.perf_counter() - started

    def about(self) -> Mapping[str, Any]:
        """Where, what, and how often a request was sent again."""
        served = self._triton.served
        return {
            "backend": "triton",
            "device": "server",
            "dtype": "float32",
            **self._where,
            "model_name": served.name,
            "model_version": served.version,
            "max_batch": served.max_batch,
            "retries": self._triton.retries,
            "model_seconds": round(self._seconds, 3),
        }

    def close(self) -> None:
        """Close the connection."""
        self._triton.close()

    def _query(self, pair: Pair) -> str:
        """The query's text as far as its budget reaches."""
        known = self._asked.get(pair.query_hash)
        if known is None:
            known = clean(pair.query).text
            offsets = np.array(self._tokenizer.encode(known, add_special_tokens=False).offsets).reshape(-1, 2)
            if len(offsets) > self._query_length:
                known = known[: int(offsets[self._query_length - 1, 1])]
            self._asked[pair.query_hash] = known
            if len(self._asked) > _QUERIES:
                self._asked.popitem(last=False)
        return known


def key(spec: Spec, config: ScorerConfig) -> str | None:
    """The judgement key; None where the server must say its version and does not answer at once."""
    if config.model_version:
        return _key(spec, config, config.model_version)
    try:
        triton = _connect(config, min(config.timeout.total_seconds(), _QUICK))
    except EngineError:
        return None
    triton.close()
    return _key(spec, config, triton.served.version)


def load(spec: Spec, config: ScorerConfig, cache: Path) -> CrossEncoder:
    """A scorer on a server. Raises EngineError where the server or the model is not there."""
    triton = _connect(config, config.timeout.total_seconds())
    tokenizer = _tokenizer(spec, cache)
    reader = Reader(
        tokenizer,
        TextLayout(),
        max_length=config.max_length,
        query_length=config.query_length,
        overlap=config.chunk_overlap,
        max_chunks=config.max_chunks,
    )
    return CrossEncoder(
        Remote(triton, str(config.url), config.protocol, tokenizer, query_length=config.query_length),
        reader,
        key=_key(spec, config, triton.served.version, cache),
        batch_tokens=config.batch_tokens,
        details={"model": config.model, "kind": "triton", "revision": _at(triton.served)},
    )


def _connect(config: ScorerConfig, timeout: float) -> Triton:
    url, name = str(config.url), str(config.model_name)
    return Triton(TritonWire(url, config.protocol, timeout), url, name, config.model_version or "")


def _at(served: Served) -> str:
    return f"{served.name}@{served.version}"


def _key(spec: Spec, config: ScorerConfig, version: str, cache: Path | None = None) -> str:
    own = identity.key(spec, config, backend="triton", dtype="-", cache=cache)
    return f"triton:{config.model_name}@{version}/{own}"


def _tokenizer(spec: Spec, cache: Path) -> Tokenizer:
    """The tokenizer whose tokens cut texts."""
    if spec.kind is Kind.EMBEDDED:
        from .embedded import prepare

        return embedded(prepare(cache))[0]
    from tokenizers import Tokenizer as Class

    assert spec.folder is not None
    try:
        return plain(Class.from_file(str(spec.folder / "tokenizer.json")))
    except Exception as error:
        raise EngineError(
            f"{spec.folder} has no tokenizer.json that can be read, so texts cannot be cut",
            hint='name a model with a fast tokenizer, or model = "embedded"',
        ) from error
