"""`afterpass verify`: a sample is judged again and held against what stands, per part."""

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
from .output import emit, line, span, table

CHANGED = 4

EXAMPLES = examples(
    "afterpass verify",
    "# After an upgrade: scores and decisions only, of more pairs",
    "afterpass verify --sample 500 --no-summaries",
    "afterpass verify --json | jq .state",
)


def verify(
    sample: Annotated[int, typer.Option("--sample", min=1, help="So many pairs, and prompts, at most.")] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Another number takes another sample.")] = 0,
    no_summaries: Annotated[
        bool, typer.Option("--no-summaries", help="Scores and decisions only; no language model.")
    ] = False,
    run: RunOption = None,
    group: GroupOption = None,
    namespace: NamespaceOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Judge a sample again and say whether it comes out the same, within noise, or changed (exit 4).

    The models and policies of today judge it, each twice: what the two runs differ by is noise. Nothing is
    written to the ledger.
    """
    from ..core.types import Selection
    from ..sweep import verify as judge_again
    from ..sweep.compare import State
    from .progress import Style, progress

    place = home_at(home)
    found = judge_again(
        place,
        load_config(config, place),
        sample=sample,
        seed=seed,
        summaries=not no_summaries,
        selection=Selection(run=run, group=group, namespace=namespace),
        progress=progress(Style.AUTO if sys.stderr.isatty() else Style.NONE),
    )
    document = found.as_json()
    if json:
        emit(document)
    else:
        _show(document)
    if found.state is State.CHANGED:
        raise typer.Exit(CHANGED)


def _show(found: dict[str, Any]) -> None:
    scores, decisions, replies = found["scores"], found["decisions"], found["replies"]
    table(
        ["part", "state", "compared", "equal", "what differs", "two runs of today"],
        [
            [
                "scores", scores["state"], scores["pairs"], scores["exact"],
                f"{scores['largest']:.2g} at most, {scores['mean']:.2g} in the mean",
                f"{scores['noise_largest']:.2g} at most, {scores['noise_mean']:.2g} in the mean",
            ],
            [
                "decisions", decisions["state"], decisions["items"],
                decisions["items"] - decisions["differ"],
                f"{decisions['decisions_differ']} decisions, {decisions['differ']} with ranks",
                f"{decisions['noise']} with ranks",
            ],
            [
                "replies", replies["state"], replies["prompts"], replies["exact"],
                f"{replies['prompts'] - replies['exact']} replies"
                + ("" if replies["alike"] is None else f", {replies['alike']:.0%} of their words in common"),
                f"{replies['noise']} replies",
            ],
        ],
    )  # fmt: skip
    for part in ("scores", "decisions", "replies"):
        for why in found[part]["why"]:
            line(f"{part}: {why}")
        if found[part].get("errors"):
            line(f"{part}: {found[part]['errors']} gave a result then and an error now")
    if found["changed"]:
        line()
        table(
            ["item", "group", "was", "is"],
            ([one["item"], one["group"], one["was"], one["is"]] for one in found["changed"]),
        )
    line(f"{found['state']} ({found['groups']} groups, {span(found['seconds'])})")
