"""`afterpass config`: what counts now, and whether it holds."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, command, examples, home_at, load_config
from .output import emit, line

if TYPE_CHECKING:
    from ..core.config import Config

EXAMPLES = examples(
    "# Every key with its value, as a file to start from",
    "afterpass config show > my.toml",
    "afterpass config check my.toml",
)

app = typer.Typer(
    help="The configuration that counts now: show it, check it.", no_args_is_help=True, epilog=EXAMPLES
)


@command(app, "show", EXAMPLES)
def show(json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Print every key with the value that counts (flag, AFTERPASS_* variable, file, default), as TOML."""
    place = home_at(home)
    values = load_config(config, place).model_dump()
    if json:
        emit({"home": place.root, "file": _source(config, place), "config": values})
        return
    line(f"# home: {place.root}")
    line(f"# file: {_source(config, place)}")
    for text in toml(values):
        line(text)


@command(app, "check", EXAMPLES)
def check(
    file: Annotated[Path | None, typer.Argument(help="A file to check instead of the home's.")] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Check a configuration whole: keys, values, names that must meet, models, templates, windows."""
    place = home_at(home)
    source = file or config
    problems = problems_of(load_config(source, place))
    if json:
        emit({"file": _source(source, place), "ok": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            line(f"{problem['where']}: {problem['message']}")
            line(f"  -> {problem['hint']}" if problem["hint"] else "")
    else:
        line(f"{_source(source, place)} is in order")
    if problems:
        raise typer.Exit(1)


def problems_of(config: Config) -> list[dict[str, str]]:
    """What would go wrong when it is used: where, what, and what to do. Loads no model."""
    from .. import rerank, summarize
    from ..core.errors import AfterpassError
    from ..sweep.schedule import Schedule

    checks: list[tuple[str, Any, Any]] = [
        *((f"rerank.models.{name}", rerank.check, model) for name, model in config.rerank.models.items()),
        *(
            (f"summarize.models.{name}", summarize.check_config, model)
            for name, model in config.summarize.models.items()
        ),
        *(
            (f"policy.{name}.summarize", summarize.check_policy, policy.summarize)
            for name, policy in config.policy.items()
        ),
        ("schedule", Schedule.of, config.schedule),
    ]
    problems = []
    for where, checking, value in checks:
        try:
            checking(value)
        except AfterpassError as error:
            problems.append({"where": where, "message": error.message, "hint": error.hint})
    return problems


def toml(values: Mapping[str, Any], path: str = "") -> list[str]:
    """A mapping as the lines of a TOML document; what is None stands as a comment, as TOML has no null."""
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping) or not value}
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping) and value}
    lines = ["", f"[{path}]"] if path and plain else []
    for key, value in plain.items():
        lines.append(f"# {_key(key)} =" if value is None else f"{_key(key)} = {_value(value)}")
    for key, value in tables.items():
        lines += toml(value, f"{path}.{_key(key)}" if path else _key(key))
    return lines


def _key(key: str) -> str:
    return (
        key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json_module.dumps(key)
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json_module.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, timedelta):
        return f'"{value.total_seconds():g}s"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(inner) for inner in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    return str(value)


def _source(config: Path | None, home: Any) -> str:
    from ..core.config import source_file

    return str(source_file(config, home))
