"""Write docs/cli.md and the reference in docs/configuration.md from the code itself.

`make docs` runs it; a test fails when the pages are not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from afterpass.core import config

DOCS = Path(__file__).resolve().parent
START, END = "<!-- generated: make docs -->", "<!-- end of generated -->"


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, "utf-8")
        print(f"docs: {path.relative_to(DOCS.parent)}")


def pages() -> dict[Path, str]:
    """Every generated page, as it should be."""
    manual = DOCS / "configuration.md"
    head, _, rest = manual.read_text("utf-8").partition(START)
    tail = rest.partition(END)[2]
    reference = "\n".join(configuration_lines())
    return {
        DOCS / "cli.md": "\n".join(cli_lines()) + "\n",
        manual: f"{head}{START}\n\n{reference}\n{END}{tail}",
    }


# --------------------------------------------------------------------------------- the command line


def cli_lines() -> Iterator[str]:
    """docs/cli.md, line by line."""
    yield "# The command line"
    yield ""
    yield f"{START[:-4]} writes this page from the commands' own help. -->"
    yield ""
    yield (
        "Data goes to stdout, everything else to stderr. `--json` prints one JSON document on the last line, "
        'with `"version": 1`. References (`i_...` items, `g_...` groups, `s_...` sweeps) are printed and '
        "accepted everywhere. [Exit codes](operations.md#exit-codes) are the same for all commands."
    )
    yield ""
    yield "| command | what it does |"
    yield "|---|---|"
    for name, command in commands():
        link = name.replace(" ", "-")
        yield f"| [`{name}`](#{link}) | {cell(first_line(command.help or ''))} |"
    for name, command in commands():
        yield from command_lines(name, command)


def command_lines(name: str, command: Any) -> Iterator[str]:
    """One command: what it says of itself, its arguments and options, its examples."""
    yield ""
    yield f"## {name}"
    yield ""
    yield from paragraphs(command.help or "")
    parameters = [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    words = [*([] if len(arguments) == len(parameters) else ["[OPTIONS]"]), *map(argument_name, arguments)]
    if getattr(command, "commands", None):
        words.append("COMMAND [ARGS]")
    yield ""
    yield "```"
    yield " ".join([f"afterpass {name}", *words])
    yield "```"
    if parameters:
        yield ""
        yield "| | |"
        yield "|---|---|"
        for one in parameters:
            yield f"| {parameter_name(one)} | {cell(describe(one))} |"
    above = dict(commands()).get(name.rpartition(" ")[0])
    if command.epilog and not (above and above.epilog == command.epilog):
        yield ""
        yield "```sh"
        yield from example_lines(command.epilog)
        yield "```"


@cache
def commands() -> tuple[tuple[str, Any], ...]:
    """Every command that is not hidden, in the order of the help: (full name, the parser's command)."""

    def inside(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(context()):
            command = group.get_command(context(), name)
            if not command.hidden:
                yield f"{prefix}{name}", command
                if hasattr(command, "list_commands"):
                    yield from inside(f"{prefix}{name} ", command)

    return tuple(inside("", context().command))


def parameter_name(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"`{argument_name(one)}`"
    names = [*one.opts, *one.secondary_opts]
    kind = re.sub(r" range|list\[|\]", "", one.display_type(context()))
    takes = "" if one.is_flag or one.count else f" {kind}"
    again = " (again and again)" if one.multiple else ""
    shown = ", ".join(f"`{name}{takes if name == names[-1] else ''}`" for name in names)
    return shown.replace("|", "\\|") + again


@cache
def context() -> Any:
    """The program's context, which its parts want for describing themselves."""
    from typer.main import get_command

    from afterpass.cli.main import app

    return get_command(app).make_context("afterpass", [], resilient_parsing=True)


def argument_name(one: Any) -> str:
    name = (one.metavar or one.name or "").upper().strip("[]")
    name = f"{name}..." if one.nargs == -1 and not name.endswith("...") else name
    return name if one.required else f"[{name}]"


def describe(one: Any) -> str:
    """An option's help, its default and its environment variable."""
    parts = [plain(getattr(one, "help", None) or "")]
    default = one.default() if callable(one.default) else one.default
    if default not in (None, False, "", (), []) and getattr(one, "show_default", True) and not one.required:
        parts.append(f"Default: `{getattr(default, 'value', default)}`.")
    if getattr(one, "envvar", None):
        parts.append(f"Environment: `{one.envvar if isinstance(one.envvar, str) else one.envvar[0]}`.")
    return " ".join(part for part in parts if part)


def plain(text: str) -> str:
    """Help without its terminal markup."""
    return re.sub(r"\[/?(?:bold|dim|italic|cyan|green|red|yellow|code)[^\]]*\]", "", inspect.cleandoc(text))


def paragraphs(text: str) -> Iterator[str]:
    yield from plain(text.split("\f")[0]).strip().splitlines()


def example_lines(epilog: str) -> Iterator[str]:
    for line in plain(epilog).splitlines():
        if line.strip() and line.strip() != "Examples":
            yield line.strip()


def first_line(text: str) -> str:
    return plain(text).strip().partition("\n\n")[0].replace("\n", " ")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# ------------------------------------------------------------------------------------ configuration


def configuration_lines() -> Iterator[str]:
    """The reference tables of docs/configuration.md."""
    for model, docs in sections():
        yield f"### {docs}"
        yield ""
        yield "| key | values | default | |"
        yield "|---|---|---|---|"
        said = attribute_docs(model)
        for name, field in model.model_fields.items():
            default = "required" if field.default is PydanticUndefined and field.is_required() else ""
            if not default:
                default = f"`{toml(field.get_default(call_default_factory=True))}`"
            yield f"| `{name}` | {cell(values(field.annotation))} | {default} | {cell(said.get(name, ''))} |"
        yield ""


def sections() -> Iterator[tuple[type[BaseModel], str]]:
    """Each section of the file that has keys of its own, and its heading."""
    for one in vars(config).values():
        if not (isinstance(one, type) and issubclass(one, BaseModel)) or one.__module__ != config.__name__:
            continue
        doc = (one.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
        if doc.startswith("`[") and not all(
            issubclass_of_model(field) for field in one.model_fields.values()
        ):
            yield one, doc.rstrip(".")


def issubclass_of_model(field: Any) -> bool:
    """Whether a field holds sections and not values."""
    inner = get_args(field.annotation)[-1:] or (field.annotation,)
    return isinstance(inner[0], type) and issubclass(inner[0], BaseModel)


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """The string under each field in the source."""
    definition = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        before.target.id: inspect.cleandoc(after.value.value)
        for before, after in pairwise(definition.body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def values(annotation: Any) -> str:
    """What a key takes, in words."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{toml(one)}`" for one in get_args(annotation))
    if annotation in (type(None), None):
        return ""
    names = {
        str: "text",
        int: "number",
        float: "number",
        bool: "true, false",
        timedelta: "time",
        dict: "table",
    }
    if annotation in names:
        return names[annotation]
    if get_origin(annotation) is tuple:
        return f"list of {values(get_args(annotation)[0])}"
    if "Mapping" in str(get_origin(annotation)):
        return "table"
    return ", ".join(filter(None, dict.fromkeys(values(one) for one in get_args(annotation))))


def toml(value: Any) -> str:
    """A default as it would stand in the file."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, timedelta):
        return f'"{value.total_seconds():g}s"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    return "{}" if isinstance(value, dict) and not value else str(value)


if __name__ == "__main__":
    sys.exit(main())
