"""`afterpass sweep`: one pass, for people, cron and programs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from .options import (
    ConfigOption,
    GroupOption,
    HomeOption,
    JsonOption,
    NamespaceOption,
    RunOption,
    examples,
    home_at,
    load_config,
    parse_duration,
)
from .output import emit, facts, note, span
from .progress import Style

EXAMPLES = examples(
    "# From cron: silent unless something is wrong, and never beyond its window",
    "afterpass sweep --quiet --max-runtime 6h",
    "# One run, now, verdicts only",
    "afterpass sweep --run night-7 --no-summaries",
    "# After a change of the policy: decide again, without any model",
    "afterpass sweep --redecide --group tickets",
)


def sweep(
    now: Annotated[
        bool, typer.Option("--now", help="Wait neither for groups to settle nor for a window.")
    ] = False,
    run: RunOption = None,
    group: GroupOption = None,
    namespace: NamespaceOption = None,
    no_summaries: Annotated[
        bool, typer.Option("--no-summaries", help="Verdicts and extracts; the groups stay due for summaries.")
    ] = False,
    rejudge: Annotated[
        bool, typer.Option("--rejudge", help="Score and decide the chosen groups anew.")
    ] = False,
    redecide: Annotated[
        bool, typer.Option("--redecide", help="Decide the chosen groups anew, from the scores there are.")
    ] = False,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Do over what ended in an error.")
    ] = False,
    max_runtime: Annotated[
        str | None,
        typer.Option(
            "--max-runtime", help='Stop in good order after so long ("90s", "6h").', show_default=False
        ),
    ] = None,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what is wrong.")] = False,
    progress: Annotated[
        Style, typer.Option("--progress", help="How progress is shown on stderr.")
    ] = Style.AUTO,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Judge and summarise what is due, and write it back.

    SIGTERM ends it in good order (exit 0, the rest waits). Exit 3: some items or groups ended in errors;
    69: a model did not start; 75: another sweep or the ledger's holder is in the way.
    """
    from ..core.errors import ConfigError
    from ..sweep import SweepOptions
    from ..sweep import sweep as run_sweep
    from . import progress as drawing

    reopen = [
        name
        for name, wanted in (("rejudge", rejudge), ("redecide", redecide), ("retry_errors", retry_errors))
        if wanted
    ]
    if len(reopen) > 1:
        raise ConfigError("--rejudge, --redecide and --retry-errors exclude each other", hint="name one")
    place = home_at(home)
    settings = load_config(config, place)
    options = SweepOptions(
        now=now,
        run=run,
        group=group,
        namespace=namespace,
        summaries=not no_summaries,
        reopen=reopen[0] if reopen else None,  # type: ignore[arg-type]
        max_runtime=parse_duration(max_runtime, "--max-runtime"),
    )
    with _stopping() as stop:
        drawn = drawing.progress(Style.NONE if quiet and progress is Style.AUTO else progress)
        account = run_sweep(place, settings, options, progress=drawn, stop=stop)
    if json:
        emit(account.as_json())
    elif not quiet:
        show(account.as_json())
    _problems(account.as_json())
    raise typer.Exit(account.exit_code)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM sets; the signal's own handler is back afterwards."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def show(account: dict[str, Any]) -> None:
    """An account for people."""
    items, groups, tokens = account["items"], account["groups"], account["tokens"]
    because = f" ({account['stopped_because']})" if account.get("stopped_because") else ""
    rows: list[tuple[str, object]] = [
        ("sweep", account["sweep"]),
        ("outcome", f"{account['outcome']}{because}"),
        ("home", account["home"]),
        (
            "items",
            f"{items['seen']:,} seen = {items['kept']:,} kept + {items['dropped']:,} dropped "
            f"+ {items['errors']:,} errors",
        ),
        ("saved", f"{items['duplicates']:,} duplicates, {items['cached']:,} cached scores"),
        (
            "groups",
            f"{groups['judged']:,} judged, {groups['summarised']:,} summarised, {groups['skipped']:,} with "
            f"nothing to say, {groups['errors']:,} errors",
        ),
        (
            "tokens",
            f"{tokens['scored']:,} scored, {tokens['prompt']:,} prompt ({tokens['cached_prompt']:,} cached), "
            f"{tokens['output']:,} written",
        ),
        (
            "time",
            ", ".join(f"{name} {span(value)}" for name, value in account["seconds"].items() if value >= 0.05),
        ),
    ]
    if account["engine_share"] is not None:
        rows.append(("in the engines", f"{account['engine_share']:.1%} of the time, loading apart"))
    if waiting := {reason: count for reason, count in account["waiting"].items() if count}:
        rows.append(("not due", waiting))
    facts(rows)


def _problems(account: dict[str, Any]) -> None:
    """What is wrong, on stderr, whatever else is shown."""
    for problem in account["problems"]:
        note(f"afterpass: {problem}")
    if errors := account["items"]["errors"] + account["groups"]["errors"]:
        note(f"afterpass: {errors:,} items or groups ended in errors; `sweep --retry-errors` does them over")
    if account["overflowed"]:
        note(f"afterpass: {account['overflowed']:,} items were refused at the hook for want of room")
    if account["quarantined"]:
        note(f"afterpass: {account['quarantined']:,} lines could not be read: `afterpass quarantine list`")
