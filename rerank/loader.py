"""A scorer by name: what it is, whether it can be used, and the thing itself, loaded."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.config import ScorerConfig
from ..core.errors import ConfigError, EngineError, EngineMissing, ModelNotFound
from ..core.paths import cache_folder
from . import choice, identity
from .choice import Choice
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
        ConfigError: lengths that leave no room.
    """
    recognise(config)


def model_key(config: ScorerConfig) -> str | None:
    """The judgement key that `load` will score under, without loading torch.

    None where it is not known before loading: a hub model that is not in the cache yet, `backend = "auto"`
    on a machine that has not chosen yet, or a Triton server whose newest version is to be taken.

    Raises:
        ModelNotFound, NotAReranker, ConfigError: as `check`.
    """
    spec = recognise(config)
    if spec is None:
        return None
    if spec.kind is Kind.LEXICAL:
        return identity.key(spec, config, backend="python", dtype="-")
    if config.backend == "triton":
        from . import remote

        return remote.key(spec, config)
    way = choice.known(spec, config)
    return identity.key(spec, config, backend=way[0], dtype=way[1]) if way else None


def load(config: ScorerConfig) -> Scorer:
    """Load a scorer, ready to be fed.

    Raises:
        ModelNotFound, NotAReranker, ConfigError: as `check`, and a hub that does not answer.
        EngineMissing: a backend's package is not installed.
        EngineError: a Triton server is not there, or does not serve the model.
    """
    check(config)
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
    if config.backend == "triton":
        from . import remote

        return remote.load(spec, config, cache_folder())
    return _cross_encoder(spec, config, cache_folder())


def prepare(config: ScorerConfig) -> Choice | None:
    """Make a model ready ahead of time: bring its files and find out which backend runs it fastest here.

    `load` does the same when first needed; this spares the first sweep the wait.

    Returns:
        What was tried and chosen; None where there was nothing to choose.

    Raises:
        As `load`.
    """
    load(config).close()
    spec = recognise(config)
    return choice.kept(spec, config) if spec and config.backend != "triton" else None


def _cross_encoder(spec: Spec, config: ScorerConfig, cache: Path) -> Scorer:
    try:
        from . import modules
    except ImportError as error:
        raise EngineMissing(
            f"scoring with {config.model!r} needs torch: {error}",
            hint='install the models\' packages (see the README), or use model = "lexical"',
        ) from error
    from . import trials
    from .cross_encoder import CrossEncoder
    from .reading import Reader
    from .runner import Local

    # From here on the revision is what the weights had when they were read: files may change at any time.
    read = replace(spec, revision=identity.revision(spec, cache))
    module, tokenizer, encoding = modules.build(read, cache)
    if identity.revision(spec, cache) != read.revision:
        raise EngineError(
            f"the files of {config.model!r} changed while it was being loaded",
            hint="call it again when they are all there",
        )
    spec = read
    if config.max_length - config.query_length - encoding.specials < config.chunk_overlap + 8:
        raise ConfigError(
            f"{config.model} spends {encoding.specials} tokens on its prompt: max_length = "
            f"{config.max_length} leaves no room for query_length = {config.query_length} and "
            f"chunk_overlap = {config.chunk_overlap}",
            hint="set max_length = 512 or more for this model",
        )
    way = choice.known(spec, config)
    if way is None:
        chosen = trials.choose(spec, config, module, tokenizer, encoding)
        way = chosen.backend, chosen.dtype
    running = trials.start(spec, config, module, encoding, tokenizer, way)
    reader = Reader(
        tokenizer,
        encoding,
        max_length=config.max_length,
        query_length=config.query_length,
        overlap=config.chunk_overlap,
        max_chunks=config.max_chunks,
    )
    return CrossEncoder(
        Local(running, encoding),
        reader,
        key=identity.key(spec, config, backend=way[0], dtype=way[1], cache=cache),
        batch_tokens=config.batch_tokens,
        details=_details(spec, config, cache),
    )


def _details(spec: Spec, config: ScorerConfig, cache: Path) -> dict[str, Any]:
    told = {"model": config.model, "kind": spec.kind.value, "revision": identity.revision(spec, cache)}
    kept = choice.kept(spec, config)
    return {**told, "chosen": choice.as_json(kept)} if kept else told
