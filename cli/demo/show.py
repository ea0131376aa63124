"""What the demo puts on the screen."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...summarize.extracts import LABEL
from ...summarize.replies import NOTHING_SAID
from ...summarize.support import NO_POINT_PASSED
from ..output import line, one_line, printable, span
from ..summaries import told

if TYPE_CHECKING:
    from ...core.config import Config
    from ...core.paths import Home
    from .command import Swept
    from .result import Answered, Result

EXCERPT = 88


def say(text: str) -> None:
    """A line of the story."""
    line(text)
    sys.stdout.flush()


def heading(text: str) -> None:
    """What comes next."""
    say("")
    if sys.stdout.isatty():
        sys.stdout.write(f"\x1b[1m{printable(text)}\x1b[0m\n")
    else:
        say(f"== {text}")


def opening(home: Home, config: Config, quick: bool) -> None:
    """What is about to happen, and how large the models are."""
    from ...core.paths import cache_folder
    from ...rerank.embedded.weights import prepared
    from ...summarize import embedded

    say(f"home: {home.root} (kept)")
    policy = config.policy["default"]
    scorer = config.rerank.models[policy.rerank.model].model
    writer = config.summarize.models[policy.summarize.model].model
    scorer_size = _size(scorer, prepared(cache_folder()))
    writer_size = _size(writer, embedded.location() if embedded.prepared() else None)
    say(f"reranker: {scorer}{scorer_size}")
    say(f"language model: {'none (--quick)' if quick else f'{writer}{writer_size}'}")


def _size(model: str, embedded: Path | None) -> str:
    folder = embedded if model == "embedded" else Path(model)
    if folder is None or not folder.is_dir():
        return ""
    count = sum(map(_parameters, folder.glob("*.safetensors")))
    small = "; small, so that it runs anywhere" if 0 < count < 1e9 else ""
    return f" ({count / 1e6:,.0f} million parameters{small})" if count else ""


def _parameters(path: Path) -> int:
    """How many numbers a safetensors file holds, by its header."""
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def recorded(counts: dict[str, int]) -> None:
    """What the agents recorded."""
    told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    say(f"recorded through the hook: {sum(counts.values()):,} passages ({told})")


def killed(swept: Swept, home: Home) -> None:
    """What the killed sweep left behind."""
    from datetime import UTC, datetime

    from ...store.ledger import Ledger

    if not swept.killed:
        say("it was done before it could be killed")
        return
    with Ledger.open(home.ledger, read_only=True) as ledger:
        status = ledger.status(datetime.now(UTC))
    say(
        f"kill -9 after {span(swept.seconds)} ({swept.at}); "
        f"its processes were gone {swept.gone_after:.1f} s later."
    )
    say(
        f"What it had committed stands: {status['scores']:,} scores, "
        f"verdicts on {status['groups']['judged']} groups."
    )


def outcome(found: Result, config: Config, quick: bool) -> None:
    """Each question, then the figures."""
    for answered in found.questions:
        _question(answered)
    heading("What it comes to")
    policy = config.policy["default"]
    total, budget = len(found.questions), policy.decide.top_k
    say(f"right answers among what the agents found   {found.answers_found:>3} of {total}")
    say(f"right answers kept (at most {budget} a question)    {found.answers_kept:>3} of {total}")
    say(f"BM25 alone, same items, as many kept        {found.answers_kept_bm25:>3} of {total}")
    chars = found.characters
    kept = chars["recorded"] / chars["kept"] if chars["kept"] else 0.0
    told = f"{chars['recorded']:,} characters recorded, {chars['kept']:,} kept"
    say(f"to read: {told} ({kept:.1f} times shorter)")
    if chars["summaries"]:
        shorter = chars["recorded"] / chars["summaries"]
        word = "extracts" if quick else "summaries"
        say(f"         {chars['summaries']:,} in {word} ({shorter:.1f} times shorter)")
    if failed := found.groups["no_point_passed"]:
        say(
            f"in {failed} of {total} groups no point of the model's passed its check: extracts stand in there"
        )


def _question(answered: Answered) -> None:
    from ...core.keys import reference

    heading(answered.question.text)
    numbers: dict[Any, int] = {}
    for row in answered.verdicts:
        if row.decision != "keep" or row.duplicate_of is not None:
            continue
        numbers[row.item_id] = row.rank or 0
        right = "  <- a right answer" if answered.is_answer(row) else ""
        logit = f"{row.logit:6.2f}" if row.logit is not None else "     -"
        symbol = row.meta.get("symbol", "")
        say(f"  {row.rank or '-':>2} {logit}  {symbol}  ({row.item_ref}){right}")
        say(f"             {one_line(_after_title(row.excerpt or ''), EXCERPT)}")
    _dropped(answered)
    _summary(answered, numbers, reference)


def _after_title(excerpt: str) -> str:
    """A passage without its first line, which names what it documents and stands there already."""
    return excerpt.partition("\n\n")[2] or excerpt


def _dropped(answered: Answered) -> None:
    dropped = [row for row in answered.verdicts if row.decision != "keep"]
    reasons = Counter("duplicate" if row.duplicate_of is not None else row.reason for row in dropped)
    told = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in reasons.most_common())
    best = next((row for row in dropped if row.duplicate_of is None and row.logit is not None), None)
    near = f"; the best of them {best.meta.get('symbol')} at {best.logit:.2f}" if best is not None else ""
    say(f"  dropped {len(dropped)}: {told}{near}")
    missed = next((row for row in dropped if answered.is_answer(row)), None)
    if missed is not None and not answered.kept:
        rank = f", rank {missed.rank}" if missed.rank else ""
        say(f"  missed: {missed.meta.get('symbol')} was among them{rank}")


def _summary(answered: Answered, numbers: dict[Any, int], reference: Any) -> None:
    summary = answered.summary
    if summary is None:
        say("  no summary yet")
        return
    if summary.status == "extract" or NO_POINT_PASSED in summary.reason:
        failed = f"none of the model's {len(summary.points)} points passed the check"
        why = failed if NO_POINT_PASSED in summary.reason else summary.reason
        say(f"  extracts, not a summary ({why}):")
        for text in [row for row in summary.text.splitlines() if row.strip() != LABEL][:3]:
            say(f"    {one_line(text, EXCERPT)}")
        return
    say(f"  summary{f' ({summary.status}: {summary.reason})' if summary.status != 'done' else ''}:")
    for point in summary.points:
        if NOTHING_SAID in point.marks:
            continue
        sources = ", ".join(
            f"[{numbers[item]}]" if item in numbers else reference("i", item) for item in point.items
        )
        marked = f"  ({noticed})" if (noticed := told(point.marks)) else ""
        say(f"    - {one_line(point.text, 300)} {sources or '[no source found]'}{marked}")


def receipt(found: Result, first: Swept, second: Swept, recorded: dict[str, int]) -> None:
    """Items, pairs, tokens, seconds and rates, as measured."""
    heading("The receipt")
    items, account = found.items, second.account
    say(
        f"items      {items['seen']:,} seen = {items['kept']:,} kept + {items['dropped']:,} dropped "
        f"+ {items['errors']:,} errors; {sum(recorded.values()):,} were recorded"
    )
    pairs, tokens, seconds = account["pairs"], account["tokens"], account["seconds"]
    again = f"{account['items']['cached']:,} scores and {account['replies_cached']:,} replies"
    say(
        f"pairs      {found.scores:,} scored in all for {items['seen']:,} items: {items['duplicates']:,} "
        f"duplicates were saved; {again} of the killed sweep were used again"
    )
    say(
        f"tokens     the second sweep: {tokens['scored']:,} scored, {tokens['prompt']:,} prompt, "
        f"{tokens['output']:,} written"
    )
    told = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items() if value >= 0.1)
    say(f"seconds    killed after {first.seconds:.1f} s; the second {second.seconds:.1f} s ({told})")
    rates = []
    if seconds.get("score_engine"):
        rates.append(f"{pairs['scored'] / seconds['score_engine']:,.0f} pairs/s")
        rates.append(f"{tokens['scored'] / seconds['score_engine']:,.0f} tokens/s scored")
    if seconds.get("summarise_engine"):
        rates.append(f"{tokens['output'] / seconds['summarise_engine']:,.0f} tokens/s written")
    if rates:
        say(f"rates      {', '.join(rates)}")
    for name, about in account.get("models", {}).items():
        say(f"model      {name}: {about.get('key', '')}")


def closing(home: Home) -> None:
    """What to do next."""
    from .command import lines_for_your_own

    heading("Look further, or try a file of your own")
    say(f"  afterpass explain 'question 01' --home {home.root}")
    for text in lines_for_your_own(home):
        say(f"  {text}")
