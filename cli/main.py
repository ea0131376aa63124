"""The `afterpass` command: its commands and what holds for all of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import (
    config,
    doctor,
    errors,
    explain,
    export,
    history,
    import_,
    models,
    plan,
    quarantine,
    record,
    status,
    summaries,
    sweep,
    verdicts,
)
from .demo import command as demo
from .options import command

_LOOP = "The loop"
_READ = "Reading"
_HOUSE = "Keeping house"


class _Commands(TyperGroup):
    """Runs a command with every failure reported in one way."""

    def invoke(self, ctx: Any) -> Any:
        with errors.reported():
            return super().invoke(ctx)


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


def _add(panel: str, module: Any, name: str, function: Any) -> None:
    command(app, name, module.EXAMPLES, panel=panel)(function)


_add(_LOOP, demo, "demo", demo.demo)
_add(_LOOP, record, "record", record.record)
_add(_LOOP, import_, "import", import_.import_)
_add(_LOOP, plan, "plan", plan.plan)
_add(_LOOP, sweep, "sweep", sweep.sweep)
_add(_READ, verdicts, "verdicts", verdicts.verdicts)
_add(_READ, summaries, "summaries", summaries.summaries)
_add(_READ, explain, "explain", explain.explain)
app.add_typer(history.app, name="history", rich_help_panel=_READ)
_add(_READ, export, "export", export.export)
_add(_HOUSE, status, "status", status.status)
_add(_HOUSE, doctor, "doctor", doctor.doctor)
app.add_typer(models.app, name="models", rich_help_panel=_HOUSE)
app.add_typer(config.app, name="config", rich_help_panel=_HOUSE)
app.add_typer(quarantine.app, name="quarantine", rich_help_panel=_HOUSE)


def main() -> None:
    """The entry point."""
    app(prog_name="afterpass")
