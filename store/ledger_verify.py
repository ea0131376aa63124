"""What `verify` reads: a sample of judged groups, their verdicts as they stand, and what was replied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ..core.types import Decision, DueGroup, Selection
from . import ledger_plan
from .columns import table, uuids
from .ledger_file import LedgerFile
from .ledger_values import GroupKey
from .sqlfiles import sql


@dataclass(frozen=True, slots=True)
class Standing:
    """A current verdict, as far as it can be judged again."""

    seq: int
    item_id: UUID
    text_hash: UUID
    decision: Decision
    rank: int | None
    logit: float | None
    model_key: str


def groups(
    file: LedgerFile, *, policies: Sequence[str], selection: Selection, seed: int, limit: int
) -> list[DueGroup]:
    """Judged groups in an order that only `seed` decides; `last_seq` is what their verdicts covered."""
    with ledger_plan.selected(file, selection) as parameters:
        found = file.rows(
            sql("verify.groups"),
            {**parameters, "policies": list(policies), "seed": str(seed), "limit": limit},
        )
    return [ledger_plan.due_group(row) for row in found]


def standing(file: LedgerFile, picked: Sequence[DueGroup]) -> dict[GroupKey, list[Standing]]:
    """The current verdicts of these groups, in order of arrival."""
    result: dict[GroupKey, list[Standing]] = {group.key: [] for group in picked}
    if not picked:
        return result
    keys = {group.group_id: group.key for group in picked}
    with ledger_plan.page(file, picked) as bounds:
        found = file.rows(sql("verify.verdicts"), bounds)
    for group_id, seq, item_id, text_hash, decision, rank, logit, model_key in found:
        one = Standing(seq, item_id, text_hash, Decision(decision), rank, logit, model_key)
        result[keys[group_id]].append(one)
    return result


def summarised(file: LedgerFile, picked: Sequence[DueGroup]) -> set[UUID]:
    """Which of these groups have a summary that a model wrote from their current verdicts."""
    if not picked:
        return set()
    with file.with_tables(picked=ledger_plan.picked_table(picked)):
        return {group_id for (group_id,) in file.rows(sql("verify.summarised"))}


def replies(file: LedgerFile, model_key: str, prompts: Sequence[UUID]) -> dict[UUID, tuple[str, str]]:
    """(text, judgement key) of what was replied, by prompt; see `Ledger.replied`."""
    if not prompts:
        return {}
    with file.with_tables(wanted=table({"prompt_hash": uuids(dict.fromkeys(prompts))})):
        found = file.rows(sql("verify.replies"), {"model_key": model_key})
    return {prompt: (text, key) for prompt, text, key in found}
