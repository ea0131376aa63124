"""The `afterpass` command: its commands, loaded when they are called, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from . import errors


class Entry(NamedTuple):
    """A command in the overview: the module with it, its heading and what it does (its docstring's start)."""

    module: str
    panel: str
    help: str


_LOOP, _READ, _LEARN, _HOUSE = "The loop", "Reading", "Learning from labels", "Keeping house"

# The overview is written here so that `--help` and completion need not load every command's module.
# A test holds it equal to what the commands say of themselves.
ENTRIES = {
    "demo": Entry(
        "demo.command",
        _LOOP,
        "Run the whole loop on real input, in a few minutes, in a home of its own that is kept.",
    ),
    "record": Entry("record", _LOOP, "Record what stdin brings: one text, or with --jsonl one item a line."),
    "import": Entry("import_", _LOOP, "Bring files into the ledger; importing a file again adds nothing."),
    "plan": Entry(
        "plan", _LOOP, "Show what is due, what it would cost, and why the rest is not due. Runs no model."
    ),
    "sweep": Entry("sweep", _LOOP, "Judge and summarise what is due, and write it back."),
    "verdicts": Entry("verdicts", _READ, "List the current verdicts, best first within each group."),
    "summaries": Entry(
        "summaries",
        _READ,
        "List the current summaries; stale ones (made from earlier verdicts) and extracts are marked.",
    ),
    "explain": Entry(
        "explain",
        _READ,
        "Tell where something came from, how it was judged, by what, why, and what became of it.",
    ),
    "history": Entry("history", _READ, "The sweeps there were; one of them; what changed between two."),
    "verify": Entry(
        "verify",
        _READ,
        "Judge a sample again and say whether it comes out the same, within noise, or changed (exit 4).",
    ),
    "export": Entry(
        "export",
        _READ,
        "Write the current verdicts and summaries to files; each appears whole or not at all.",
    ),
    "label": Entry(
        "label", _LEARN, "Ask about judged items, one by one, and add each answer to a file at once."
    ),
    "calibrate": Entry("calibrate", _LEARN, "Learn from labels what a logit means on your data."),
    "status": Entry(
        "status", _HOUSE, "Show what waits, since when, and how the last sweep ended. Alarms end with exit 4."
    ),
    "doctor": Entry(
        "doctor",
        _HOUSE,
        "Look at versions, folders, locks, spool, ledger, memory and models; exit 1 where something fails.",
    ),
    "models": Entry("models", _HOUSE, "The models that the configuration names."),
    "config": Entry("config", _HOUSE, "The configuration that counts now: show it, check it."),
    "quarantine": Entry("quarantine", _HOUSE, "What could not become an item: list, show, retry, drop."),
    "prune": Entry("prune", _HOUSE, "Remove groups that are old and done with, and what was made of them."),
    "erase": Entry(
        "erase",
        _HOUSE,
        "Erase the items of which all that is given holds, and what was made from them, in every file.",
    ),
    "backup": Entry(
        "backup",
        _HOUSE,
        "Copy ledger, spool, outbox, configuration and calibrations, and read the copy back.",
    ),
    "restore": Entry("restore", _HOUSE, "Check a backup, file by file and row by row, and bring it back."),
}


class _Lazy(MutableMapping[str, Any]):
    """Commands by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _load(name, ENTRIES[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


class _Commands(TyperGroup):
    """Loads commands when they are called, and runs them with every failure reported in one way."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Lazy()

    def invoke(self, ctx: Any) -> Any:
        with errors.reported():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        loaded = self.commands
        self.commands = {
            name: TyperCommand(name=name, help=entry.help, rich_help_panel=entry.panel)
            for name, entry in ENTRIES.items()
        }
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = loaded


def _load(name: str, entry: Entry) -> Any:
    from .options import command

    module = import_module(f".{entry.module}", __package__)
    made = getattr(module, "app", None)
    if made is None:
        made = typer.Typer(add_completion=False)
        command(made, name, module.EXAMPLES)(getattr(module, entry.module.rpartition(".")[0] or entry.module))
    loaded = typer.main.get_command(made)
    loaded.name = name
    return loaded


app = typer.Typer(
    cls=_Commands,
    name="afterpass",
    help="Judge in one off-peak pass what LLM agents produced: rerank, summarise, verdicts in DuckDB.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"afterpass {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point."""
    app(prog_name="afterpass")
