"""`afterpass plan`: what a sweep would do, what it would cost, and why the rest waits."""

from __future__ import annotations

import sys
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
)
from .output import emit, facts, line, note, span, table

EXAMPLES = examples("afterpass plan", "afterpass plan --now --run night-7", "afterpass plan --json")


def plan(
    now: Annotated[
        bool, typer.Option("--now", help="As if nothing had to settle and a window was open.")
    ] = False,
    run: RunOption = None,
    group: GroupOption = None,
    namespace: NamespaceOption = None,
    no_summaries: Annotated[bool, typer.Option("--no-summaries", help="Verdicts only.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what is due, what it would cost, and why the rest is not due. Runs no model."""
    from ..sweep import SweepOptions
    from ..sweep import plan as forecast
    from .progress import Style, progress

    place = home_at(home)
    result = forecast(
        place,
        load_config(config, place),
        SweepOptions(now=now, run=run, group=group, namespace=namespace, summaries=not no_summaries),
        progress=progress(Style.AUTO if sys.stderr.isatty() else Style.NONE),
    ).as_json()
    if json:
        emit(result)
    else:
        _show(result)


def _show(plan: dict[str, Any]) -> None:
    judge, write = plan["judge"], plan["write"]
    facts(
        [
            ("home", plan["home"]),
            ("window", plan["window"]),
            ("to judge", f"{judge.get('groups', 0):,} groups, {judge.get('items', 0):,} items"),
            (
                "to score",
                f"{judge.get('pairs', 0):,} pairs, about {judge.get('tokens', 0):,} tokens "
                f"({judge.get('duplicates', 0):,} duplicates and {judge.get('cached', 0):,} cached left out)",
            ),
            (
                "to summarise",
                f"{write.get('groups', 0):,} groups, about {write.get('prompt_tokens', 0):,} tokens in, "
                f"at most {write.get('output_tokens', 0):,} out",
            ),
            *((f"engine {name}", engine["words"]) for name, engine in plan["engines"].items()),
            *(
                (f"time to {name}", "not known yet" if seconds is None else f"about {span(seconds)}")
                for name, seconds in plan["seconds"].items()
            ),
            *([("cost", f"{plan['cost']:.4f}")] if plan.get("cost") is not None else []),
        ]
    )
    if plan["first"]:
        line()
        rows = (
            [g["group"], g["name"], g["items"], g["priority"], g["deadline"], g["why"], g["query"]]
            for g in plan["first"]
        )
        table(
            ["group", "name", "items", "priority", "deadline", "why due", "query"],
            rows,
            wide=["query", "name"],
        )
    waiting = {reason: count for reason, count in plan["waiting"].items() if count}
    if waiting:
        line()
        rows = ([reason, count, plan["why"].get(reason, "")] for reason, count in waiting.items())
        table(["not due", "groups", "why"], rows, wide=["why"])
    for text in plan["notes"]:
        note(text)
