"""Flags that several commands share, so that they read and behave alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from datetime import timedelta

    from ..core.config import Config
    from ..core.paths import Home

Function = TypeVar("Function", bound=Callable[..., Any])

_WHERE = "Where things lie"

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="AFTERPASS_HOME",
        help="Folder of ledger, spool and configuration.",
        show_default=False,
        rich_help_panel=_WHERE,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="AFTERPASS_CONFIG",
        help="A configuration file to use instead of the home's.",
        show_default=False,
        rich_help_panel=_WHERE,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Really; without it, only what would go is shown.")]
JsonOption = Annotated[bool, typer.Option("--json", help='One JSON document on one line, with "version": 1.')]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", help="Only this group: its name, or g_... .", show_default=False),
]
RunOption = Annotated[
    str | None,
    typer.Option("--run", help="Only groups with an item of this run.", show_default=False),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", help="Only this namespace.", show_default=False),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many rows.", show_default=False)
]


def examples(*lines: str) -> str:
    """The examples under a command's help; a line starting with `#` explains the next one."""
    return "\n".join(["Examples", *(f"  {line}" for line in lines)])


def command(
    app: typer.Typer, name: str, examples: str, *, panel: str | None = None
) -> Callable[[Function], Function]:
    """Register a function as a command: its docstring is the help, each paragraph folded to one line."""

    def register(function: Function) -> Function:
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        return app.command(name, help=text, epilog=examples, rich_help_panel=panel)(function)

    return register


def home_at(home: Path | None) -> Home:
    """The home that a command works in."""
    from ..core.paths import Home

    return Home.at(home)


def load_config(config: Path | None, home: Home) -> Config:
    """The configuration that counts for a command in `home`."""
    from ..core.config import load

    return load(config, home=home)


def parse_duration(text: str | None, flag: str) -> timedelta | None:
    """ "90s", "5m", "26h", "7d" as a timedelta.

    Raises:
        InputError: something else, naming the flag.
    """
    from datetime import timedelta

    from ..core.config import duration
    from ..core.errors import InputError

    if text is None:
        return None
    value = duration(text)
    if not isinstance(value, timedelta):
        raise InputError(
            f"{flag} {text!r} is no length of time", hint='write it like "90s", "5m", "26h" or "7d"'
        )
    return value
