"""What a named model is, told from its files alone: a reranker of a kind we can run, or why it is not one.

Reads small JSON files; loads no weights, runs no code of the model's, and asks no network.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..core.config import ScorerConfig
from ..core.errors import ConfigError, ModelNotFound, NotAReranker


class Kind(StrEnum):
    """How a model scores a pair."""

    LEXICAL = "lexical"
    """Ours, without weights."""
    EMBEDDED = "embedded"
    """Ours, two-sided; comes with packages."""
    CLASSIFIER = "classifier"
    """A sequence classifier over (query, text): one label, two (not relevant, relevant), or NLI's three."""
    CHAT = "chat"
    """A causal language model asked to answer "yes" or "no" (Qwen3-Reranker and its like)."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A model that can be loaded.

    Attributes:
        name: for people and keys: the hub name, or a folder's last part.
        folder: where its files lie; None for what comes with us.
        revision: names the weights: a hub commit, or a fingerprint of the folder's files.
        positive: label indices whose logits count for relevance; negative: those that count against. With
            one label and no negative the logit is the label's own.
        yes, no: token ids, for `Kind.CHAT`; None where the tokenizer is to be asked.
        longest: most tokens that the model takes, None where its files do not say.
    """

    kind: Kind
    name: str
    folder: Path | None = None
    revision: str | None = None
    positive: tuple[int, ...] = (0,)
    negative: tuple[int, ...] = ()
    yes: int | None = None
    no: int | None = None
    longest: int | None = None


_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_REMEDY = (
    'name a cross-encoder, such as "embedded" (comes with Afterpass), "cross-encoder/ms-marco-MiniLM-L6-v2", '
    '"BAAI/bge-reranker-v2-m3" or "Qwen/Qwen3-Reranker-0.6B"'
)


def looks_like_path(model: str) -> bool:
    """Whether a name means a folder: it is absolute, starts with a dot or ~, or there is one by that name."""
    return bool(re.match(r"[./~\\]|[A-Za-z]:[\\/]", model)) or model.count("/") > 1 or Path(model).is_dir()


def locate(config: ScorerConfig) -> Path | None:
    """The folder of a path or of a hub name that lies in the hub's cache; None where only the hub has it.

    Raises:
        ModelNotFound: a path that is not there.
    """
    model = config.model
    if looks_like_path(model):
        folder = Path(model).expanduser()
        if not folder.is_dir():
            raise ModelNotFound(
                f"there is no model folder at {folder}",
                hint='name a folder with config.json, or "embedded" for the model that comes with Afterpass',
            )
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise ModelNotFound(
                f"{folder} has neither config.json nor modules.json, so it is no model's folder",
                hint="name the folder that `save_pretrained` wrote",
            )
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, "config.json", revision=config.revision)
    except HFValidationError:
        raise ModelNotFound(
            f"{model!r} is neither a folder nor a name that a hub could know", hint=_REMEDY
        ) from None
    return Path(found).parent if isinstance(found, str) else None


def download(config: ScorerConfig) -> Path:
    """Bring a hub model's files into the hub's cache.

    Raises:
        ModelNotFound: the hub does not know the name, or cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    model = config.model
    try:
        return Path(
            snapshot_download(
                model,
                revision=config.revision,
                ignore_patterns=["*.onnx", "onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.gguf"],
            )
        )
    except GatedRepoError as error:
        raise ModelNotFound(
            f"{model} is gated", hint="accept its terms on its page and set HF_TOKEN"
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        at = f" at revision {config.revision}" if config.revision else ""
        raise ModelNotFound(
            f"the hub knows no model {model!r}{at}", hint="check the name's spelling"
        ) from error
    except Exception as error:  # offline, a proxy's refusal, a full disk: many types, one meaning
        offline = "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else "the hub did not answer"
        raise ModelNotFound(
            f"{model!r} is not in the hub's cache, and {offline} ({type(error).__name__})",
            hint='use "embedded", which needs no hub; or bring the model where there is a network and name '
            "its folder",
        ) from error


def recognise(config: ScorerConfig) -> Spec | None:
    """What `config.model` is; None for a hub model that is not in the cache yet.

    Raises:
        ModelNotFound: a path that is not there.
        NotAReranker: a bi-encoder, a plain language model, a classifier of something else, remote code.
        ConfigError: `max_length` is more than the model takes.
    """
    if config.model == "lexical":
        return Spec(Kind.LEXICAL, "lexical", revision="2")
    if config.model == "embedded":
        return Spec(Kind.EMBEDDED, "embedded", longest=512)
    folder = locate(config)
    if folder is None:
        return None
    spec = examine(folder, config.model)
    if spec.longest is not None and config.max_length > spec.longest:
        raise ConfigError(
            f"max_length = {config.max_length}, and {config.model} takes {spec.longest} tokens at most",
            hint=f"set max_length = {spec.longest} or less; longer texts are read in chunks anyway",
        )
    return spec


def examine(folder: Path, model: str) -> Spec:
    """What the files in a folder are. Raises NotAReranker."""
    what = _read(folder / "config_sentence_transformers.json")
    modules = _read(folder / "modules.json") or []
    names = [str(module.get("type", "")) for module in modules if isinstance(module, dict)]
    said = (what or {}).get("model_type")
    if said in ("SentenceTransformer", "SparseEncoder", "MultiVectorEncoder") or (
        said != "CrossEncoder"
        and any(name.endswith((".Pooling", ".Normalize", ".SpladePooling")) for name in names)
    ):
        raise NotAReranker(
            f"{model} is a bi-encoder: it embeds texts one by one and does not score (query, text) pairs",
            hint=_REMEDY,
        )
    if foreign := [name for name in names if not name.startswith("sentence_transformers.")]:
        raise _remote(model, foreign[0])
    root = folder
    if modules and not (folder / "config.json").is_file():
        root = folder / str(modules[0].get("path", ""))
    config = _read(root / "config.json")
    if not isinstance(config, dict):
        raise NotAReranker(f"{model} has no readable config.json", hint=_REMEDY)
    if config.get("auto_map"):
        raise _remote(model, str(next(iter(dict(config["auto_map"]).values()))))
    spec = Spec(
        Kind.CLASSIFIER,
        model.rstrip("/").rpartition("/")[2] if looks_like_path(model) else model,
        folder=root,
        longest=_longest(root, config),
    )
    architecture = str((config.get("architectures") or ["?"])[0])
    if architecture.endswith("ForSequenceClassification"):
        positive, negative = _labels(config, model)
        return replace(spec, positive=positive, negative=negative)
    if architecture.endswith("ForCausalLM"):
        return _chat(spec, folder, modules, model, architecture, reranks=said == "CrossEncoder")
    raise NotAReranker(
        f"{model} is a {architecture}: it has no head that scores (query, text) pairs",
        hint=_REMEDY,
    )


def _labels(config: Mapping[str, Any], model: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which labels speak for relevance and which against."""
    named = config.get("id2label")
    count = len(named) if named else int(config.get("num_labels") or 2)  # transformers' own default is 2
    if count == 1:
        return (0,), ()
    labels = [str((named or {}).get(str(index), f"LABEL_{index}")).lower() for index in range(count)]
    for index, label in enumerate(labels):
        if label.startswith("entail"):
            return (index,), tuple(other for other in range(count) if other != index)
    plain = ["label_0", "label_1"]
    pairs = (plain, ["0", "1"], ["no", "yes"], ["false", "true"], ["irrelevant", "relevant"])
    if labels in pairs:
        return (1,), (0,)
    if labels[::-1] in pairs[2:]:
        return (0,), (1,)
    raise NotAReranker(
        f"{model} sorts texts into {count} classes ({', '.join(labels[:4])}{', ...' if count > 4 else ''}): "
        "it is a classifier of something else than relevance",
        hint=_REMEDY,
    )


def _chat(
    spec: Spec, folder: Path, modules: Sequence[Any], model: str, architecture: str, *, reranks: bool
) -> Spec:
    for module in modules:
        if str(module.get("type", "")).endswith(".LogitScore"):
            ids = _read(folder / str(module.get("path", "")) / "config.json") or {}
            if ids.get("false_token_id") is None:
                raise NotAReranker(f'{model} names no token for "no"', hint=_REMEDY)
            return replace(spec, kind=Kind.CHAT, yes=int(ids["true_token_id"]), no=int(ids["false_token_id"]))
    if reranks or "rerank" in spec.name.lower():
        return replace(spec, kind=Kind.CHAT)
    raise NotAReranker(
        f"{model} is a {architecture}, a language model that was not trained to rerank",
        hint=f"{_REMEDY}; for summaries name it under [summarize.models]",
    )


def _remote(model: str, code: str) -> NotAReranker:
    return NotAReranker(
        f"{model} brings code of its own ({code}), and Afterpass runs none: trust_remote_code stays off",
        hint=_REMEDY,
    )


def _longest(folder: Path, config: Mapping[str, Any]) -> int | None:
    tokenizer = _read(folder / "tokenizer_config.json") or {}
    limits = [value for value in (tokenizer.get("model_max_length"),) if isinstance(value, int | float)]
    if isinstance(positions := config.get("max_position_embeddings"), int):
        # RoBERTa's family counts positions from its padding id on.
        family = str(config.get("model_type", ""))
        taken = (
            int(config.get("pad_token_id") or 0) + 1 if "roberta" in family or family == "camembert" else 0
        )
        limits.append(positions - taken)
    limits = [limit for limit in limits if 0 < limit < 10**7 and math.isfinite(limit)]
    return int(min(limits)) if limits else None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights and say how to use them, in a stable order."""
    found = [
        path
        for pattern in (*_WEIGHTS, "*.json", "*.jinja", "*.txt", "*.model")
        for path in folder.glob(pattern)
    ]
    return sorted(set(found))
