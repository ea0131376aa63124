"""What a sweep writes, as values: a `Commit` is one transaction's worth of Arrow tables and a few facts.

Every write of a sweep goes through `apply`. So the same value can be applied to the ledger now, or be parked
in the outbox as a file and applied when the ledger is free; applying it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..core import failpoints
from ..core.keys import new_id
from ..core.types import DueGroup, Reply, Score, Summary, SummaryStatus, Verdict
from .columns import column, float32, keys_table, table, to_json, uuids
from .ledger_file import LedgerFile
from .sqlfiles import sql

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Commit:
    """One transaction's worth of results.

    Attributes:
        kind: which function of `APPLY` writes it.
        facts: JSON values (ids and times as strings).
        tables: what SQL sees under these names.
    """

    kind: str
    sweep_id: UUID
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    commit_id: UUID = field(default_factory=new_id)


def apply(file: LedgerFile, commit: Commit) -> int:
    """Write a commit inside the caller's transaction; returns what its kind counts."""
    with file.with_tables(**commit.tables):
        counted = APPLY[commit.kind](file, commit)
    failpoints.hit(f"commit.{commit.kind}")
    return counted


# ------------------------------------------------------------------------------------------ sweep


def start_sweep(sweep_id: UUID, config: Mapping[str, Any], started: datetime) -> Commit:
    """A sweep begins; whichever came before without an end was killed."""
    return Commit("start_sweep", sweep_id, {"config": config, "started": started.isoformat()})


def _start_sweep(file: LedgerFile, commit: Commit) -> int:
    file.rows(sql("commit.mark_killed"), {"sweep": commit.sweep_id})
    file.rows(
        sql("commit.start_sweep"),
        {
            "sweep": commit.sweep_id,
            "started": datetime.fromisoformat(commit.facts["started"]),
            "config": to_json(commit.facts["config"]),
        },
    )
    return 1


def end_sweep(sweep_id: UUID, outcome: str, account: Mapping[str, Any], ended: datetime) -> Commit:
    """A sweep ended, well or not."""
    return Commit("end_sweep", sweep_id, {"outcome": outcome, "account": account, "ended": ended.isoformat()})


def _end_sweep(file: LedgerFile, commit: Commit) -> int:
    file.rows(
        sql("commit.end_sweep"),
        {
            "sweep": commit.sweep_id,
            "outcome": commit.facts["outcome"],
            "account": to_json(commit.facts["account"]),
            "ended": datetime.fromisoformat(commit.facts["ended"]),
        },
    )
    return 1


# ----------------------------------------------------------------------------------------- scores


def scores(sweep_id: UUID, model_key: str, done: Sequence[Score]) -> Commit:
    """Scores of one model. A logit that is no finite number becomes an error: it must never rank."""
    logits = [float32(score.logit) if score.error is None else None for score in done]
    errors = [
        score.error or (None if logit is not None else f"no finite logit: {score.logit}")
        for score, logit in zip(done, logits, strict=True)
    ]
    incoming = table(
        {
            "ord": column(range(len(done)), "int64"),
            "query_hash": uuids(score.query_hash for score in done),
            "text_hash": uuids(score.text_hash for score in done),
            "logit": column(logits, "float32"),
            "excerpt_start": column((score.excerpt_start for score in done), "int32"),
            "excerpt_end": column((score.excerpt_end for score in done), "int32"),
            "chunks": column((score.chunks for score in done), "int32"),
            "tokens": column((score.tokens for score in done), "int32"),
            "share_read": column((score.share_read for score in done), "float32"),
            "flags": column((list(score.flags) or None for score in done), "strings"),
            "error": column(errors, "string"),
        }
    )
    return Commit("scores", sweep_id, {"model_key": model_key}, {"incoming": incoming})


def _scores(file: LedgerFile, commit: Commit) -> int:
    rows = int(commit.tables["incoming"].num_rows)
    # Verdicts that waited with them name scores by number: they keep the numbers that they were shown under.
    start = max(file.rows(sql("commit.numbers"))[0][1], commit.facts.get("start", 0))
    file.rows(sql("commit.take_scores"), {"next": start + rows})
    file.rows(
        sql("commit.insert_scores"),
        {"start": start, "sweep": commit.sweep_id, "model_key": commit.facts["model_key"]},
    )
    return rows


# --------------------------------------------------------------------------------------- verdicts


def verdicts(
    sweep_id: UUID,
    model_key: str,
    judged: Sequence[tuple[DueGroup, Sequence[Verdict]]],
    policy_hash: Mapping[str, UUID],
) -> Commit:
    """Groups' verdicts, each group with up to which item it was judged."""
    flat = [(place, verdict) for place, (_, mine) in enumerate(judged) for verdict in mine]
    groups = keys_table([group.key for group, _ in judged])
    groups = groups.append_column("ord", column(range(len(judged)), "int64"))
    groups = groups.append_column("last_seq", column((group.last_seq for group, _ in judged), "int64"))
    groups = groups.append_column("policy_hash", uuids(policy_hash.get(group.policy) for group, _ in judged))
    incoming = table(
        {
            "ord": column((place for place, _ in flat), "int64"),
            "seq": column((verdict.seq for _, verdict in flat), "int64"),
            "decision": column((str(verdict.decision) for _, verdict in flat), "string"),
            "reason": column((verdict.reason for _, verdict in flat), "string"),
            "rank": column((verdict.rank for _, verdict in flat), "int32"),
            "logit": column((float32(verdict.logit) for _, verdict in flat), "float32"),
            "probability": column((float32(verdict.probability) for _, verdict in flat), "float64"),
            "duplicate_of": column((verdict.duplicate_of for _, verdict in flat), "int64"),
            "score_seq": column((verdict.score_seq for _, verdict in flat), "int64"),
        }
    )
    return Commit("verdicts", sweep_id, {"model_key": model_key}, {"judged": groups, "incoming": incoming})


def _verdicts(file: LedgerFile, commit: Commit) -> int:
    sweep = {"sweep": commit.sweep_id}
    written = int(file.rows(sql("commit.groups_not_judged_by"), sweep)[0][0])
    if written:
        file.rows(sql("commit.insert_verdicts"), {**sweep, "model_key": commit.facts["model_key"]})
        file.rows(sql("commit.mark_judged"), sweep)
        file.rows(sql("commit.take_change"))
    return written


# ---------------------------------------------------------------------------------------- replies


def replies(sweep_id: UUID, model_key: str, done: Sequence[tuple[UUID, int, Reply]]) -> Commit:
    """What a language model said: (prompt_hash, level, reply)."""
    incoming = table(
        {
            "prompt_hash": uuids(prompt_hash for prompt_hash, _, _ in done),
            "level": column((level for _, level, _ in done), "int32"),
            "text": column((reply.text for _, _, reply in done), "string"),
            "finish_reason": column((reply.finish_reason for _, _, reply in done), "string"),
            "prompt_tokens": column((reply.prompt_tokens for _, _, reply in done), "int32"),
            "cached_tokens": column((reply.cached_tokens for _, _, reply in done), "int32"),
            "output_tokens": column((reply.output_tokens for _, _, reply in done), "int32"),
            "error": column((reply.error for _, _, reply in done), "string"),
        }
    )
    return Commit("replies", sweep_id, {"model_key": model_key}, {"incoming": incoming})


def _replies(file: LedgerFile, commit: Commit) -> int:
    file.rows(
        sql("commit.insert_replies"), {"sweep": commit.sweep_id, "model_key": commit.facts["model_key"]}
    )
    return int(commit.tables["incoming"].num_rows)


# -------------------------------------------------------------------------------------- summaries


def summaries(sweep_id: UUID, done: Sequence[tuple[DueGroup, Sequence[Summary]]]) -> Commit:
    """Groups' summaries. Extracts are shown, and leave their group due for a real one."""
    flat = [(place, summary) for place, (_, mine) in enumerate(done) for summary in mine]
    groups = keys_table([group.key for group, _ in done])
    groups = groups.append_column("ord", column(range(len(done)), "int64"))
    groups = groups.append_column("judged_seq", column((group.judged_seq for group, _ in done), "int64"))
    groups = groups.append_column("judged_sweep", uuids(group.judged_sweep for group, _ in done))
    extract = column(
        (not mine or any(summary.status is SummaryStatus.EXTRACT for summary in mine) for _, mine in done),
        "bool",
    )
    groups = groups.append_column("extract", extract)
    incoming = table(
        {
            "ord": column((place for place, _ in flat), "int64"),
            "item_seq": column((summary.item_seq for _, summary in flat), "int64"),
            "status": column((str(summary.status) for _, summary in flat), "string"),
            "text": column((summary.text for _, summary in flat), "string"),
            "points": column((to_json([asdict(p) for p in summary.points]) for _, summary in flat), "string"),
            "output": column(
                (None if summary.output is None else to_json(summary.output) for _, summary in flat), "string"
            ),
            "reason": column((summary.reason for _, summary in flat), "string"),
            "model_key": column((summary.model_key for _, summary in flat), "string"),
            "finish_reason": column((summary.finish_reason for _, summary in flat), "string"),
            "prompt_tokens": column((summary.prompt_tokens for _, summary in flat), "int32"),
            "output_tokens": column((summary.output_tokens for _, summary in flat), "int32"),
            "left_out": column((summary.left_out for _, summary in flat), "int32"),
            "calls": column((summary.calls for _, summary in flat), "int32"),
            "levels": column((summary.levels for _, summary in flat), "int32"),
        }
    )
    now = datetime.now(UTC).isoformat()
    return Commit("summaries", sweep_id, {"now": now}, {"done": groups, "incoming": incoming})


def _summaries(file: LedgerFile, commit: Commit) -> int:
    groups = int(commit.tables["done"].num_rows)
    start = file.rows(sql("commit.numbers"))[0][2]
    file.rows(sql("commit.take_summaries"), {"n": groups})
    numbered = {"sweep": commit.sweep_id, "start": start}
    now = datetime.fromisoformat(commit.facts["now"])
    file.rows(sql("commit.insert_summaries"), {**numbered, "now": now})
    file.rows(sql("commit.mark_summarised"), numbered)
    file.rows(sql("commit.take_change"))
    return groups


APPLY: dict[str, Callable[[LedgerFile, Commit], int]] = {
    "start_sweep": _start_sweep,
    "end_sweep": _end_sweep,
    "scores": _scores,
    "verdicts": _verdicts,
    "replies": _replies,
    "summaries": _summaries,
}
