"""Configuration: one TOML file is a whole one; frozen models that refuse what they do not know.

What counts, strongest first: a flag, an `AFTERPASS_*` variable, the file, the default. The file is the one
named by `--config` or `AFTERPASS_CONFIG`, else `config.toml` in the home, else `configs/embedded.toml`.
A file only says what differs: the defaults below stand for the rest.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from .errors import ConfigError
from .paths import Home

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(value: object) -> object:
    """A timedelta from "60s", "5m", "26h", "90d" or a number of seconds; anything else as it came."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([\d.]+)\s*(ms|s|m|h|d)?\s*", value)):
        return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    return value


Duration = Annotated[timedelta, BeforeValidator(duration)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _none(cls, data: object) -> object:
        """TOML knows no null: "none" stands for it, so that a file can take a limit away."""
        if not isinstance(data, Mapping):
            return data
        return {key: None if value == "none" else value for key, value in data.items()}


class StoreConfig(_Section):
    """`[store]`: the spool, the ledger and how patient to be with others."""

    settle: Duration = timedelta(seconds=60)
    """A group is due once it has been quiet for so long (or was closed)."""
    durability: Literal["segment", "record"] = "segment"
    """fsync at seal, or after each record."""
    queue_rows: int = Field(default=10_000, ge=1)
    """Items that may wait in an agent's memory; past it the newest are refused and counted."""
    queue_bytes: int = Field(default=64 * 2**20, ge=1)
    """The same in bytes."""
    segment_bytes: int = Field(default=8 * 2**20, ge=1)
    """A segment is sealed once it is so large ..."""
    segment_age: Duration = timedelta(seconds=5)
    """... or so old."""
    busy_timeout: Duration = timedelta(seconds=30)
    """How long to wait for a ledger that another process holds."""
    outbox_bytes: int = Field(default=2**30, ge=1)
    """What results may wait on disk while another process holds the ledger."""
    export: bool = True
    """Keep Parquet beside the ledger, for readers at any time."""


class ScorerConfig(_Section):
    """`[rerank.models.NAME]`: a named scorer."""

    model: str
    """One of "embedded", a local folder, or a hub name."""
    revision: str | None = None
    """A hub model's commit or tag."""
    backend: Literal["auto", "torch", "onnx", "openvino", "triton"] = "auto"
    """What runs the model; "auto" takes the best one present, "triton" is a server at `url`."""
    url: str | None = None
    """A Triton server's address, such as "127.0.0.1:8000"; `model` then only cuts texts by its tokens."""
    protocol: Literal["http", "grpc"] = "http"
    """How to speak to the Triton server."""
    model_name: str | None = None
    """The name by which the Triton server knows the model."""
    model_version: str | None = None
    """Its version there; the newest that is served where not given."""
    timeout: Duration = timedelta(seconds=60)
    """How long to wait for the Triton server's answer to a batch."""
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = "auto"
    """The weights' precision; logits are float32 always."""
    device: str = "auto"
    """One of "cpu", "cuda" or "cuda:1"; "auto" takes a GPU where there is one."""
    max_length: int = Field(default=256, ge=16)
    """Tokens of query and text together."""
    query_length: int = Field(default=64, ge=4)
    """Tokens at most of the query; a longer one is cut and flagged."""
    chunk_overlap: int = Field(default=64, ge=0)
    """Tokens that two chunks of a long text share."""
    max_chunks: int = Field(default=32, ge=1)
    """Chunks read of one text; past it they are chosen by the query's words, and the share read is kept."""
    batch_tokens: int = Field(default=4096, ge=16)
    """Tokens in a batch at most, padding included; a backend that is faster with fewer takes fewer."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of the processor; all cores where not given."""

    @model_validator(mode="after")
    def _served(self) -> ScorerConfig:
        if self.backend == "triton" and not (self.url and self.model_name):
            raise ValueError('backend = "triton" needs url and model_name')
        if self.backend != "triton" and (self.url or self.model_name or self.model_version):
            raise ValueError('url, model_name and model_version need backend = "triton"')
        return self

    @model_validator(mode="after")
    def _room_for_text(self) -> ScorerConfig:
        if self.max_length - self.query_length - 4 <= self.chunk_overlap:
            raise ValueError("max_length must exceed query_length + chunk_overlap by more than 4 tokens")
        return self


class SummarizerConfig(_Section):
    """`[summarize.models.NAME]`: a named language model."""

    model: str
    """One of "embedded", a local folder, a hub name, or with `url` the name that the server knows."""
    revision: str | None = None
    """A hub model's commit or tag."""
    backend: Literal["vllm", "openai"] = "vllm"
    """vLLM in a process of its own, or any server that speaks OpenAI's interface, at `url`."""
    url: str | None = None
    """The server's address up to and with "/v1"."""
    api_key_env: str | None = None
    """The environment variable that holds the server's key; the key itself never stands in a file."""
    dtype: str = "auto"
    """The weights' precision."""
    max_model_len: int | None = Field(default=None, ge=256)
    """The context in tokens; the model's own where not given."""
    memory: str | None = None
    """KV-cache size such as "2GiB"; sized from what is free where not given."""
    max_in_flight: int = Field(default=64, ge=1)
    """Requests that the engine is given at once."""
    passages_at_once: int | None = Field(default=None, ge=1)
    """Passages in one prompt at most: a small model does better on one than on five. Where not given, one for
    the embedded model, and as many as fit for any other."""
    enforce_eager: bool | Literal["auto"] = "auto"
    """false compiles the model first, which pays for large jobs; "auto" chooses by the size of the job."""
    engine: Mapping[str, Any] = Field(default_factory=dict)
    """Any other argument of the engine, passed on as it is."""
    concurrency: int = Field(default=8, ge=1)
    """Requests at once, for `backend = "openai"`."""
    timeout: Duration = timedelta(seconds=300)
    """How long to wait for the server's answer."""


class RerankPolicy(_Section):
    """`[policy.NAME.rerank]`."""

    model: str = "embedded"
    """A name from `[rerank.models]`."""


class DecidePolicy(_Section):
    """`[policy.NAME.decide]`: from scores to keep and drop. Needs no model call."""

    top_k: int | None = Field(default=5, ge=0)
    """Keep at most so many of a group; "none" keeps all that pass the thresholds."""
    min_logit: float | None = None
    """Drop what scores below."""
    min_probability: float | None = Field(default=None, ge=0, le=1)
    """Drop what is less probably relevant; needs a calibration."""
    max_miss: float | None = Field(default=None, gt=0, lt=1)
    """Drop below the threshold that `afterpass calibrate` found for this share, while its promise holds."""
    min_keep: int = Field(default=0, ge=0)
    """Keep at least so many of the best, whatever the thresholds say."""
    keep_share: float | None = Field(default=None, ge=0, le=1)
    """Keep at most this share of a group (rounded up)."""
    near_duplicates: float | None = Field(default=None, gt=0, le=1)
    """Jaccard similarity from which two texts of a group count as one; "none" joins equal texts only."""


class SummarizePolicy(_Section):
    """`[policy.NAME.summarize]`."""

    enabled: bool = True
    """false gives verdicts only."""
    model: str = "embedded"
    """A name from `[summarize.models]`."""
    input_tokens: int = Field(default=6000, ge=64)
    """Tokens of kept items that a group may bring; past the model's context they are read by map-reduce."""
    max_tokens: int = Field(default=768, ge=16)
    """What the largest reply may need at one token a character; a usual one takes about a third."""
    max_points: int = Field(default=4, ge=1, le=50)
    """Points in a summary at most."""
    per_item: bool = False
    """One output for each kept item instead of one for the group."""
    language: str | None = None
    """"the items' own" where not given."""
    system: str | None = None
    """Jinja2 templates; the defaults live in `summarize/templates`."""
    item: str | None = None
    """The template of one item."""
    note: str | None = None
    """The template for one passage by itself, where a model reads one at a time."""
    map: str | None = None
    """The template of a part's question, where a group is read in parts."""
    reduce: str | None = None
    """The template that asks for the whole from the parts."""
    example: bool = True
    """Show the model one worked example first: small ones need it, and the engine reads it once for all."""
    output_schema: Mapping[str, Any] | str | None = None
    """A JSON schema, or "package.module:PydanticModel"."""
    temperature: float = Field(default=0.0, ge=0)
    """0 takes the most probable token each time."""
    seed: int = 0
    """Of the sampling, where the temperature is above 0."""
    min_support: float | None = -1.0
    """The logit that a point needs against a cited item; "none" leaves points unchecked."""
    check_model: str | None = None
    """Another scorer for the check (an NLI cross-encoder); the policy's own where not given."""


class Policy(_Section):
    """`[policy.NAME]`: the rules of judgement."""

    rerank: RerankPolicy = RerankPolicy()
    decide: DecidePolicy = DecidePolicy()
    summarize: SummarizePolicy = SummarizePolicy()


class ScheduleConfig(_Section):
    """`[schedule]`: when to run. Apart from the policies, so that a new window changes no judgement."""

    windows: tuple[str, ...] = ()
    """"22:00-06:00", or with days "Mon-Fri 22:00-06:00"; none means any time."""
    timezone: str = "UTC"
    """In which the windows are read, such as "Europe/Berlin"."""
    max_runtime: Duration | None = None
    """A sweep stops in good order after so long; the rest waits."""
    price_per_hour: float | None = Field(default=None, ge=0)
    """What an hour of this machine costs, in any currency; `plan` and the account multiply by it."""


class RerankConfig(_Section):
    """`[rerank]`."""

    models: Mapping[str, ScorerConfig] = Field(
        default_factory=lambda: {"embedded": ScorerConfig(model="embedded")}
    )


class SummarizeConfig(_Section):
    """`[summarize]`."""

    models: Mapping[str, SummarizerConfig] = Field(
        default_factory=lambda: {"embedded": SummarizerConfig(model="embedded")}
    )


class Config(_Section):
    """A whole configuration."""

    store: StoreConfig = StoreConfig()
    rerank: RerankConfig = RerankConfig()
    summarize: SummarizeConfig = SummarizeConfig()
    policy: Mapping[str, Policy] = Field(default_factory=lambda: {"default": Policy()})
    schedule: ScheduleConfig = ScheduleConfig()

    @model_validator(mode="after")
    def _names_meet(self) -> Config:
        for name, policy in self.policy.items():
            wanted: list[tuple[str, str, Mapping[str, object]]] = [
                (f"policy.{name}.rerank.model", policy.rerank.model, self.rerank.models),
                (f"policy.{name}.summarize.model", policy.summarize.model, self.summarize.models),
            ]
            if policy.summarize.check_model:
                wanted.append(
                    (f"policy.{name}.summarize.check_model", policy.summarize.check_model, self.rerank.models)
                )
            for where, model, known in wanted:
                if model not in known:
                    raise ValueError(
                        f"{where} names {model!r}, and there is no such model{nearest(model, known)}"
                    )
        return self


def nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """What to add to "unknown": "; did you mean 'x'?" where something known is close, else what is known."""
    names = list(known)
    if close := difflib.get_close_matches(word, names, n=1):
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(sorted(names)) or 'none'}"


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    home: Home | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """Read the configuration that counts.

    Args:
        path: a file to read instead of the home's or the default.
        home: whose `config.toml` to read where no path is given.
        environment: `AFTERPASS_CONFIG` names a file; `AFTERPASS_STORE__SETTLE=5s` sets one value
            (sections and keys joined by two underscores).

    Raises:
        ConfigError: not there, not TOML, an unknown key (the nearest known one is named) or a bad value.
    """
    source = source_file(path, home, environment)
    try:
        data = tomllib.loads(source.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration at {source}", hint="name a file that exists") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{source} cannot be read as TOML: {error}", hint="mend the line it names"
        ) from error
    for name, value in environment.items():
        if name.startswith("AFTERPASS_") and "__" in name:
            _set(data, name.removeprefix("AFTERPASS_").lower().split("__"), value)
    return parse(data, source=str(source))


def parse(data: Mapping[str, Any], *, source: str = "configuration") -> Config:
    """Validate a mapping as a configuration; errors name `source` and every wrong key at once."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors(include_url=False)]
        raise ConfigError(
            f"{source} is not a valid configuration:\n" + "\n".join(f"  {line}" for line in lines),
            hint="`afterpass config show` prints what counts now, with every key",
        ) from error


def default_file() -> Path:
    """`configs/embedded.toml`, as installed."""
    return Path(str(resources.files(__name__.split(".")[0]) / "configs" / "embedded.toml"))


def source_file(
    path: str | os.PathLike[str] | None = None,
    home: Home | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """The file that `load` reads."""
    if given := path or environment.get("AFTERPASS_CONFIG"):
        return Path(given).expanduser()
    if home is not None and home.config.exists():
        return home.config
    return default_file()


def _set(data: dict[str, Any], keys: list[str], value: str) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
    try:
        data[keys[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        data[keys[-1]] = value


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{where}: unknown key{nearest(str(problem['loc'][-1]), _known(problem['loc'][:-1]))}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _known(location: tuple[Any, ...]) -> list[str]:
    """The keys of the section at `location`; a named model's or policy's name is skipped on the way."""
    model: Any = Config
    for part in location:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:  # a name in a mapping: go on with what it maps to
            continue
        model = field.annotation
        if getattr(model, "__origin__", None) is not None:
            model = model.__args__[-1]
    return list(model.model_fields)
