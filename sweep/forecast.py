"""What a sweep would do now, what it would cost, and why the rest waits.

Moves what agents spooled into the ledger, so that it is seen; runs no model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from .. import rerank, summarize
from ..core.config import Config
from ..core.errors import AfterpassError
from ..core.keys import reference
from ..core.paths import Home
from ..core.types import DueGroup
from ..store.ledger import GroupKey, Ledger
from .account import VERSION
from .context import Context, now
from .options import DEFAULT, SweepOptions
from .progress import Progress, Silent
from .schedule import Schedule

PAGE_GROUPS = 1000
SHOWN_GROUPS = 20
SAMPLE_TEXTS = 400
PROMPT_OVERHEAD_TOKENS = 150
"""Instructions and marks around a group's items, by the default templates."""

WHY_WAITING = {
    "unsettled": "items arrived within `store.settle`; --now does not wait, afterpass.close() ends the wait",
    "no_query": "nothing to judge against: give query= to record(), --query or --map query=PATH to import",
    "unknown_policy": "their policy is not in the configuration",
    "nothing_new": "judged, and nothing arrived since",
}


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One due group, as shown."""

    group: str
    name: str | None
    query: str
    policy: str
    items: int
    chars: int
    priority: int
    deadline: str | None
    why: str


@dataclass(slots=True)
class Plan:
    """A forecast. Tokens are counted on a sample and scaled; seconds come from earlier sweeps' rates.

    Attributes:
        judge: groups, items, chars, pairs (unique and new), duplicates, cached, tokens.
        write: groups, prompt_tokens, output_tokens (at most).
        seconds: per phase, None where no earlier sweep tells the rate.
        cost: seconds times `schedule.price_per_hour`, None where either is unknown.
        engines: for each language model that will be loaded, how it would be started now and why.
        waiting: groups that are not due, by reason; `why` says what each reason means.
        first: the first due groups, in order.
    """

    home: str
    judge: dict[str, int] = field(default_factory=dict)
    write: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float | None] = field(default_factory=dict)
    cost: float | None = None
    window: str = "any time"
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    first: list[GroupLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether a sweep would find nothing to do."""
        return not (self.judge["groups"] or self.write["groups"])

    def as_json(self) -> dict[str, Any]:
        """The contract of `afterpass plan --json`."""
        return {"version": VERSION, **asdict(self)}


def plan(
    home: Home, config: Config, options: SweepOptions = DEFAULT, *, progress: Progress | None = None
) -> Plan:
    """Read what is due and forecast it.

    Beside a process that only reads the ledger, the spool's new items stay where they are and a note says so.

    Raises:
        LedgerBusy: another process writes to the ledger, so that nobody can read it.
        ConfigError, StoreError: as their names say.
    """
    context = Context(home, config, options, progress or Silent())
    result = Plan(str(home.root))
    report = context.door.ingest()
    if report.waiting:
        result.notes.append(f"some of the spool is not counted: {'; '.join(report.waiting)}")
    moment = now()
    schedule = Schedule.of(config.schedule)
    if schedule.windows:
        closes = schedule.closes(moment)
        result.window = f"open until {closes.isoformat()}" if closes else "closed now"
    with context.ledger() as ledger:
        _judge(context, ledger, result)
        _write(context, ledger, result)
        result.waiting = ledger.waiting(
            policies=list(config.policy), now=moment, settle=context.settle, selection=options.selection
        )
        result.why = {
            reason: WHY_WAITING.get(reason, "") for reason, count in result.waiting.items() if count
        }
        _forecast(ledger, config, result)
    context.progress.finish()
    return result


def _judge(context: Context, ledger: Ledger, result: Plan) -> None:
    total = dict.fromkeys(("groups", "items", "chars", "pairs", "duplicates", "cached", "tokens"), 0)
    for model, policies in _by_model((n, p.rerank.model) for n, p in context.config.policy.items()):
        try:
            key = rerank.model_key(context.config.rerank.models[model])
        except AfterpassError as error:
            result.notes.append(f"{model}: {error.message}; {error.hint}")
            key = None
        seen: list[GroupKey] = []
        while groups := ledger.due_groups(
            policies=policies,
            now=now(),
            settle=context.settle,
            selection=context.options.selection,
            sweep_id=context.sweep_id,
            limit=PAGE_GROUPS,
            without=seen,
        ):
            seen += [group.key for group in groups]
            work = ledger.pairs_to_score(groups, key or "")
            sample = ledger.texts([pair.text_hash for pair in work.pairs[:SAMPLE_TEXTS]])
            chars = sum(pair.chars + pair.query_chars for pair in work.pairs)
            total["groups"] += len(groups)
            total["items"] += sum(group.items for group in groups)
            total["chars"] += sum(group.chars for group in groups)
            total["pairs"] += len(work.pairs)
            total["duplicates"] += work.duplicates
            total["cached"] += work.cached
            total["tokens"] += _scaled(context.config, sample, chars)
            result.first += [_line(g, "new items") for g in groups[: SHOWN_GROUPS - len(result.first)]]
        if key is None and seen:
            result.notes.append(
                f"{model}: what is cached is known once its backend was chosen by a first sweep"
            )
    result.judge = total


def _write(context: Context, ledger: Ledger, result: Plan) -> None:
    total = dict.fromkeys(("groups", "prompt_tokens", "output_tokens"), 0)
    policies = context.config.policy
    if context.options.summaries:
        judged = ledger.due_summaries(
            policies=[name for name, policy in policies.items() if policy.summarize.enabled],
            selection=context.options.selection,
            limit=1_000_000,
            sweep_id=context.sweep_id,
        )
        for group in judged:
            _add_prompt(total, context.config, group)
        result.first += [
            _line(g, "judged, no summary yet") for g in judged[: SHOWN_GROUPS - len(result.first)]
        ]
        if result.judge["groups"]:  # what is judged first is summarised after
            share = result.judge["chars"] / result.judge["groups"]
            policy = next(iter(policies.values())).summarize
            total["groups"] += result.judge["groups"]
            per_group = min(policy.input_tokens, int(share / 4)) + PROMPT_OVERHEAD_TOKENS
            total["prompt_tokens"] += result.judge["groups"] * per_group
            total["output_tokens"] += result.judge["groups"] * policy.max_tokens
        _engines(context, result, total["groups"])
    result.write = total


def _engines(context: Context, result: Plan, prompts: int) -> None:
    config = context.config
    used = {policy.summarize.model for policy in config.policy.values() if policy.summarize.enabled}
    for name in sorted(used) if prompts else ():
        try:
            chosen = summarize.foresee(config.summarize.models[name], prompts)
        except AfterpassError as error:
            result.notes.append(f"{name}: {error.message}; {error.hint}")
        else:
            if chosen is not None:
                result.engines[name] = {"words": chosen.words, **chosen.about()}


def _add_prompt(total: dict[str, int], config: Config, group: DueGroup) -> None:
    policy = config.policy[group.policy].summarize
    total["groups"] += 1
    total["prompt_tokens"] += min(policy.input_tokens, group.chars // 4) + PROMPT_OVERHEAD_TOKENS
    total["output_tokens"] += policy.max_tokens


def _forecast(ledger: Ledger, config: Config, result: Plan) -> None:
    rates = _rates(ledger)
    result.seconds = {
        "score": _over(result.judge["tokens"], rates.get("score")),
        "summarise": _over(result.write["output_tokens"], rates.get("summarise")),
    }
    known = [seconds for seconds in result.seconds.values() if seconds is not None]
    if len(known) < len(result.seconds) and not result.is_empty:
        result.notes.append("no earlier sweep of this home tells this machine's rates: time is not forecast")
    elif config.schedule.price_per_hour is not None:
        result.cost = round(sum(known) / 3600 * config.schedule.price_per_hour, 4)


def _rates(ledger: Ledger) -> dict[str, float]:
    """Tokens a second, loading apart, of the newest sweep that has each."""
    rates: dict[str, float] = {}
    for row in ledger.history(limit=20):
        tokens: Mapping[str, int] = row.account.get("tokens", {})
        seconds: Mapping[str, float] = row.account.get("seconds", {})
        for phase, count, spent in (
            ("score", tokens.get("scored", 0), seconds.get("score_engine", 0)),
            ("summarise", tokens.get("output", 0), seconds.get("summarise_engine", 0)),
        ):
            if count and spent:
                rates.setdefault(phase, count / spent)
    return rates


def _over(tokens: int, rate: float | None) -> float | None:
    return 0.0 if not tokens else round(tokens / rate, 1) if rate else None


def _scaled(config: Config, sample: Mapping[UUID, str], chars: int) -> int:
    """Tokens of `chars` characters, by counting a sample of the very texts."""
    read = sum(len(text) for text in sample.values())
    if not read:
        return 0
    counter = summarize.token_counter(next(iter(config.summarize.models.values())))
    counted = sum(counter(text) for text in sample.values())
    return round(chars * counted / read)


def _by_model(named: Iterable[tuple[str, str]]) -> list[tuple[str, Sequence[str]]]:
    models: dict[str, list[str]] = {}
    for policy, model in named:
        models.setdefault(model, []).append(policy)
    return list(models.items())


def _line(group: DueGroup, why: str) -> GroupLine:
    return GroupLine(
        reference("g", group.group_id), group.name, group.query, group.policy, group.items, group.chars,
        group.priority, group.deadline.isoformat() if group.deadline else None, why,
    )  # fmt: skip
