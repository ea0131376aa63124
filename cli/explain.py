"""`afterpass explain`: the whole story of an item, a group or a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, examples
from .output import cell, emit, facts, line, one_line, printable
from .reading import reading, verdict_json

if TYPE_CHECKING:
    from ..store.ledger import Ledger

SHOWN = 20

EXAMPLES = examples(
    "afterpass explain i_3f9c02d41a77",
    "afterpass explain g_a81b5c3d9e10",
    "# A group's name does, too",
    "afterpass explain tickets --json",
)


def explain(
    ref: Annotated[str, typer.Argument(help="i_..., g_..., s_..., a whole id, or a group's name.")],
    text: Annotated[
        bool, typer.Option("--text", help="An item's whole text, not its excerpt alone.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Tell where something came from, how it was judged, by what, why, and what became of it."""
    with reading(home, config) as ledger:
        story = dict(ledger.explain(ref))
        for group in story.get("groups", [story] if story["kind"] == "group" else []):
            group |= _judged(ledger, group["group"])
        if story["kind"] == "sweep":
            from .history import sweep_json

            story = {"kind": "sweep", **sweep_json(ledger.sweep(ref))}
    if json:
        emit(story)
        return
    match story["kind"]:
        case "item":
            _item(story, text)
        case "groups":
            for group in story["groups"]:
                _group(group)
        case "group":
            _group(story)
        case _:
            from .history import show_sweep

            show_sweep(story)


def _judged(ledger: Ledger, group: str) -> dict[str, Any]:
    """What was kept of a group, best first, and the first of what was not; excerpts and reasons."""
    kept = [verdict_json(row, text=False) for row in ledger.verdicts(group=group, keep=True, text=False)]
    rest = ledger.verdicts(group=group, keep=False, text=False, limit=SHOWN)
    return {"kept": kept, "not_kept": [verdict_json(row, text=False) for row in rest]}


def _item(story: dict[str, Any], whole: bool) -> None:
    origin, group = story["origin"], story["group"]
    line(f"{story['item']}  {story['state']}")
    _section("origin")
    facts((f"  {name}", value) for name, value in origin.items() if value not in (None, [], {}, 0))
    _section("judged in")
    facts([(f"  {name}", group[name]) for name in ("group", "name", "query", "policy", "items")])
    if story["verdict"]:
        _section("verdict")
        _verdict(story["verdict"])
    for score in story["scores"]:
        _section(f"score under {score['model_key']}")
        known = ("logit", "chunks", "tokens", "share_read", "flags", "error", "sweep")
        facts((f"  {name}", score.get(name)) for name in known if score.get(name) not in (None, []))
        if score["excerpt"]:
            place = f"characters {score['excerpt_start']} to {score['excerpt_end']} of {story['chars']}"
            line(f"  excerpt ({place})")
            _indented(score["excerpt"], 1200)
    if story["same_text"]:
        _section("same text in this group")
        for twin in story["same_text"]:
            told = ", ".join(f"{name} {twin[name]}" for name in ("run_id", "agent", "step") if twin[name])
            line(f"  {twin['item']}  {told}")
    if summary := story["summary"]:
        _section(f"summary ({summary['status']}{', stale' if summary['stale'] else ''})")
        for point in summary["points"]:
            line(f"  - {point['text']}")
        if not summary["cited"]:
            line("  no point of it cites this item")
    if story["earlier_verdicts"]:
        _section("earlier verdicts")
        for verdict in story["earlier_verdicts"]:
            _verdict(verdict)
            line()
    if story["text_pruned"]:
        _section("text")
        line("  was pruned: it can be judged again only by the scores there are, and quoted no more")
    elif whole:
        _section("text")
        _indented(story["text"], None)


def _verdict(verdict: dict[str, Any]) -> None:
    from ..core.keys import parse_reference

    known = (
        "decision",
        "reason",
        "rank",
        "logit",
        "probability",
        "model_key",
        "policy_hash",
        "sweep",
        "started",
    )
    facts((f"  {name}", verdict.get(name)) for name in known if verdict.get(name) is not None)
    if twin := verdict.get("duplicate_of"):
        parsed = parse_reference(str(twin))
        line(f"  follows the verdict of i_{parsed[1][-12:] if parsed else twin}")


def _group(story: dict[str, Any]) -> None:
    line(f"{story['group']}  {story['state']}")
    facts(
        (f"  {name}", story[name])
        for name in (
            "name",
            "namespace",
            "query",
            "policy",
            "items",
            "chars",
            "closed",
            "due_at",
            "priority",
            "deadline",
        )
        if story.get(name) is not None
    )
    _section("came from")
    for source in story["sources"]:
        told = ", ".join(f"{name} {source[name]}" for name in ("run", "agent", "kind") if source[name])
        line(f"  {source['items']:,} items: {told}")
    for judgement in story["judgements"]:
        _section(f"judged in {judgement['sweep']}")
        known = ("started", "outcome", "items", "kept", "dropped", "errors", "model_key", "policy_hash")
        facts((f"  {name}", judgement[name]) for name in known)
    excerpts = {row["item"]: row["excerpt"] or "" for row in story["kept"]}
    for name, rows in (("kept", story["kept"]), ("not kept", story["not_kept"])):
        if rows:
            _section(name)
        for row in rows:
            logit = "     -" if row["logit"] is None else f"{row['logit']:6.2f}"
            excerpt = one_line(row["excerpt"] or "", 70)
            line(f"  {row['item']} {logit}  {row['reason']}  {excerpt}")
    for kind, found in (("summary", story["summaries"]), ("earlier summary", story["earlier_summaries"])):
        for summary in found:
            _summary(kind, summary, excerpts)


def _summary(kind: str, summary: dict[str, Any], excerpts: dict[str, str]) -> None:
    from uuid import UUID

    from ..core.keys import reference

    marks = [summary["status"], *(["stale"] if summary["stale"] else [])]
    _section(f"{kind} of {summary['sweep']} ({', '.join(marks)})")
    if summary["reason"]:
        line(f"  {summary['reason']}")
    for point in summary["points"]:
        line(f"  - {point['text']}{_marks(point)}")
        for item in point["items"]:
            ref = reference("i", UUID(item))
            line(f"      {ref}  {one_line(excerpts.get(ref, ''), 90)}".rstrip())
    if not summary["points"] and summary["text"]:
        _indented(summary["text"], None)
    made = ("model_key", "calls", "levels", "left_out", "finish_reason", "written_at")
    facts((f"  {name}", summary[name]) for name in made if summary[name] not in (None, 0))


def _marks(point: dict[str, Any]) -> str:
    support = f"support {cell(point['support'])}" if point["support"] is not None else ""
    told = [*point["marks"], *([support] if support else [])]
    return f"  [{', '.join(told)}]" if told else ""


def _section(title: str) -> None:
    line()
    line(title)


def _indented(text: str, most: int | None) -> None:
    shown = text if most is None or len(text) <= most else text[:most] + " ..."
    for row in printable(shown).split("\n"):
        line(f"    {row.rstrip()}")
