"""A scorer by name: what it is, whether it can be used, and the thing itself, loaded."""

from __future__ import annotations

import logging
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.config import ScorerConfig
from ..core.errors import ConfigError, EngineMissing, ModelNotFound
from ..core.paths import cache_folder
from . import identity
from .kinds import Kind, Spec, download, recognise

if TYPE_CHECKING:
    from ..core.seams import Scorer

log = logging.getLogger("afterpass.rerank")


def check(config: ScorerConfig) -> None:
    """Refuse what cannot work before anything is loaded. Reads small files at most; no network, no torch.

    A hub model that is not in the hub's cache passes: `load` brings it or says why not.

    Raises:
        ModelNotFound: a path that is not there.
        NotAReranker: a bi-encoder, a plain language model, a classifier of something else, remote code.
        ConfigError: lengths that leave no room, a Triton backend without a url.
    """
    if config.backend == "triton":
        if not config.url:
            raise ConfigError('backend = "triton" needs a url', hint='set url = "localhost:8001", say')
        return
    recognise(config)


def model_key(config: ScorerConfig) -> str | None:
    """The judgement key that `load` will score under, without loading torch.

    None where it is not known before loading: a hub model that is not in the cache yet, or `backend = "auto"`
    on a machine that has not chosen yet.

    Raises:
        ModelNotFound, NotAReranker, ConfigError: as `check`.
    """
    if config.backend == "triton":
        from .backends.triton import key

        return key(config)
    spec = recognise(config)
    if spec is None:
        return None
    if spec.kind is Kind.LEXICAL:
        return identity.key(spec, config, backend="python", dtype="-")
    backend, dtype = settled(spec, config)
    if backend is None or dtype is None:
        return None
    return identity.key(spec, config, backend=backend, dtype=dtype)


def load(config: ScorerConfig) -> Scorer:
    """Load a scorer, ready to be fed.

    Raises:
        ModelNotFound, NotAReranker, ConfigError: as `check`, and a hub that does not answer.
        EngineMissing: a backend's package is not installed.
    """
    check(config)
    if config.backend == "triton":
        from .backends.triton import TritonScorer

        return TritonScorer(config)
    spec = recognise(config)
    if spec is None:
        download(config)
        spec = recognise(config)
        if spec is None:
            raise ModelNotFound(
                f"{config.model} was downloaded and has no config.json", hint="name another model"
            )
    if spec.kind is Kind.LEXICAL:
        from .lexical import LexicalScorer

        return LexicalScorer()
    return _cross_encoder(spec, config, cache_folder())


def _cross_encoder(spec: Spec, config: ScorerConfig, cache: Path) -> Scorer:
    try:
        from . import modules
        from .backends.pytorch import TorchBackend
    except ImportError as error:
        raise EngineMissing(
            f"scoring with {config.model!r} needs torch: {error}",
            hint='install the models\' packages (see the README), or use model = "lexical"',
        ) from error
    from .cross_encoder import CrossEncoder
    from .reading import Reader

    module, tokenizer, encoding = modules.build(spec, cache)
    if config.max_length - config.query_length - encoding.specials < config.chunk_overlap + 8:
        raise ConfigError(
            f"{config.model} spends {encoding.specials} tokens on its prompt: max_length = "
            f"{config.max_length} leaves no room for query_length = {config.query_length} and "
            f"chunk_overlap = {config.chunk_overlap}",
            hint="set max_length = 512 or more for this model",
        )
    device = _device(config)
    backend, dtype = settled(spec, config)
    backend, dtype = backend or "torch", dtype or "float32"
    running = TorchBackend(module, encoding.inputs, dtype=dtype, device=device, threads=config.threads)
    reader = Reader(
        tokenizer,
        encoding,
        max_length=config.max_length,
        query_length=config.query_length,
        overlap=config.chunk_overlap,
        max_chunks=config.max_chunks,
    )
    return CrossEncoder(
        running,
        encoding,
        reader,
        key=identity.key(spec, config, backend=backend, dtype=dtype, cache=cache),
        batch_tokens=config.batch_tokens,
        details={"model": config.model, "kind": spec.kind.value, "revision": identity.revision(spec, cache)},
    )


def settled(spec: Spec, config: ScorerConfig) -> tuple[str | None, str | None]:
    """Backend and type where they are given or follow from the machine; None where they must be tried out."""
    backend = None if config.backend == "auto" else config.backend
    dtype = None if config.dtype == "auto" else config.dtype
    if backend is None:
        backend = "torch"
    if dtype is None:
        dtype = "bfloat16" if has_amx() else "float32"
    return backend, dtype


def _device(config: ScorerConfig) -> str:
    if config.device != "auto":
        return config.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def has_amx() -> bool:
    """Whether the processor multiplies bfloat16 matrices in hardware (Linux tells)."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
