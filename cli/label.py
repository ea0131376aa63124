"""`afterpass label`: a small loop on the terminal that writes labels."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import ConfigOption, HomeOption, examples, home_at, load_config
from .output import line, note, printable
from .reading import reading

if TYPE_CHECKING:
    from ..rerank.labels import Label
    from ..store.results import VerdictRow

EXAMPLES = examples(
    "# Whole groups at random, for a promise",
    "afterpass label --for guarantee --out random.jsonl --by me",
    "# The most useful items, for probabilities",
    "afterpass label --for model --out labels.jsonl --by me --count 100",
)

SHOWN = 1500


class Purpose(StrEnum):
    """What labels are wanted for."""

    GUARANTEE = "guarantee"
    MODEL = "model"


def label(
    purpose: Annotated[
        Purpose,
        typer.Option("--for", help="guarantee: whole groups at random. model: items that teach most."),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The file that labels are added to.", show_default=False)
    ],
    by: Annotated[str, typer.Option("--by", help="Who labels.", show_default=False)],
    policy: Annotated[str, typer.Option("--policy", help="Groups of this policy.")] = "default",
    count: Annotated[int, typer.Option("--count", min=1, help="Groups, or items, to ask about.")] = 60,
    seed: Annotated[int, typer.Option("--seed", help="Of the draw.")] = 0,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Ask about judged items, one by one, and add each answer to a file at once.

    y relevant, n not, m more of the text, s skip (not for a promise, which needs whole groups), q stop.
    Started again it goes on where it stopped.
    """
    from ..core.errors import InputError
    from .labelled import read_labels

    settings = load_config(config, home_at(home))
    if policy not in settings.policy:
        raise InputError(f"there is no policy {policy!r}", hint=f"known: {', '.join(settings.policy)}")
    if by == "model" or by.startswith("model:"):
        note("labels made by a model do not count for a promise")
    done = (
        {(one.group, one.item) for one in read_labels(out)} if out.exists() and out.stat().st_size else set()
    )
    with reading(home, config) as ledger:
        groups: dict[str, list[VerdictRow]] = defaultdict(list)
        for row in ledger.verdicts(text=False):
            if row.policy == policy:
                groups[row.group_ref].append(row)
    groups = {
        name: rows for name, rows in groups.items() if not any("text_pruned" in row.flags for row in rows)
    }
    chosen = list(_chosen(purpose, groups, count, seed, done))
    if not chosen:
        note("nothing is left to label: sweep more, or raise --count")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    left_open = out.exists() and out.read_bytes()[-1:] not in (b"", b"\n")
    with out.open("a", encoding="utf-8") as file:
        if left_open:  # an editor takes the last line's end away
            file.write("\n")
        for number, row in enumerate(chosen, start=1):
            with reading(home, config) as ledger:  # for a moment only: sweeps go on meanwhile
                (whole,) = ledger.verdicts(item=row.item_ref, group=row.group_ref, limit=1).to_list()
            answer = _ask(whole, f"{number} of {len(chosen)}", skippable=purpose is Purpose.MODEL)
            if answer is None:
                break
            if answer != "s":
                file.write(_label(row, answer == "y", purpose, by).line() + "\n")
                file.flush()
    note(f"labels are in {out}")


def _chosen(
    purpose: Purpose,
    groups: dict[str, list[VerdictRow]],
    count: int,
    seed: int,
    done: set[tuple[str, str]],
) -> Iterator[VerdictRow]:
    """What to ask about, in order."""
    if purpose is Purpose.GUARANTEE:
        # A group once begun is finished, whatever came since: one that is labelled in part backs no promise.
        drawn = sorted({group for group, _ in done if group in groups})
        left_over = sorted(set(groups) - set(drawn))
        drawn += random.Random(seed).sample(left_over, min(max(0, count - len(drawn)), len(left_over)))
        yield from (
            row
            for group in drawn
            for row in sorted(groups[group], key=lambda row: row.seq)
            if row.reason != "empty" and (group, row.item_ref) not in done
        )
        return
    # Around where keep turns to drop an item teaches most; a third goes anywhere, to hold the curve's ends.
    ranked = [row for rows in groups.values() for row in rows if row.rank and row.logit is not None]
    left = [row for row in ranked if (row.group_ref, row.item_ref) not in done]
    kept = sorted(row.logit for row in ranked if row.decision == "keep" and row.logit is not None)
    edge = kept[len(kept) // 10] if kept else 0.0
    near = sorted(left, key=lambda row: abs((row.logit or 0.0) - edge))[: count - count // 3]
    taken = {(row.group_ref, row.item_ref) for row in near}
    rest = [row for row in left if (row.group_ref, row.item_ref) not in taken]
    yield from _shuffled([*near, *random.Random(seed).sample(rest, min(count // 3, len(rest)))], seed)


def _shuffled(rows: Iterable[VerdictRow], seed: int) -> list[VerdictRow]:
    found = list(rows)
    random.Random(seed).shuffle(found)
    return found


def _ask(row: VerdictRow, where: str, *, skippable: bool) -> str | None:
    """ "y", "n" or "s"; None to stop."""
    text = row.text or ""
    line(f"\n[{where}] {printable(row.query or '')}")
    line(printable(text[:SHOWN]) + (" ..." if len(text) > SHOWN else ""))
    while True:
        answer = (
            typer.prompt("relevant? y/n/m/" + ("s/q" if skippable else "q"), err=True).strip().lower()[:1]
        )
        if answer == "q":
            return None
        if answer == "m":
            line(printable(text[SHOWN:]))
        elif answer in ("y", "n") or (answer == "s" and skippable):
            return str(answer)


def _label(row: VerdictRow, relevant: bool, purpose: Purpose, by: str) -> Label:
    from ..rerank import labels

    drawn = labels.AT_RANDOM if purpose is Purpose.GUARANTEE else labels.USEFUL
    return labels.Label(group=row.group_ref, item=row.item_ref, relevant=relevant, drawn=drawn, by=by)
