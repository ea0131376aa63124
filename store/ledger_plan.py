"""What a sweep reads: which groups are due, what is left to score, what was kept.

Due work is picked from `group_state` alone, wherever in history its items lie; items are read by narrow
columns within the page's range of `seq`; texts are joined last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..core.errors import UnknownReference
from ..core.keys import parse_reference
from ..core.types import Candidate, DueGroup, KeptItem, Reply, Score, Selection
from .columns import column, keys_table, table, uuid_values, uuids
from .ledger_file import LedgerFile
from .ledger_values import GroupKey, PairKey, ScoringWork
from .sqlfiles import sql

if TYPE_CHECKING:
    import pyarrow as pa


def due_groups(
    file: LedgerFile,
    *,
    policies: Sequence[str],
    now: datetime,
    settle: timedelta | None,
    selection: Selection,
    sweep_id: UUID,
    limit: int,
    without: Sequence[GroupKey],
) -> list[DueGroup]:
    """Groups to judge; see `Ledger.due_groups`."""
    with _selected(file, selection, without) as parameters:
        found = file.rows(
            sql("plan.due_groups"),
            {
                **parameters,
                "policies": list(policies),
                "sweep": sweep_id,
                "quiet_since": None if settle is None else now - settle,
                "limit": limit,
            },
        )
    return [due_group(row) for row in found]


def due_summaries(
    file: LedgerFile,
    *,
    policies: Sequence[str],
    selection: Selection,
    sweep_id: UUID,
    limit: int,
    without: Sequence[GroupKey],
) -> list[DueGroup]:
    """Groups to summarise; see `Ledger.due_summaries`."""
    with _selected(file, selection, without) as parameters:
        found = file.rows(
            sql("plan.due_summaries"),
            {**parameters, "policies": list(policies), "sweep": sweep_id, "limit": limit},
        )
    return [due_group(row) for row in found]


def count_due_summaries(
    file: LedgerFile, *, policies: Sequence[str], selection: Selection, sweep_id: UUID
) -> int:
    """How many groups wait for their summary; see `Ledger.due_summaries`."""
    with selected(file, selection) as parameters:
        ((count,),) = file.rows(
            sql("plan.count_due_summaries"), {**parameters, "policies": list(policies), "sweep": sweep_id}
        )
    return int(count)


def waiting(
    file: LedgerFile,
    *,
    policies: Sequence[str],
    now: datetime,
    settle: timedelta | None,
    selection: Selection,
) -> dict[str, int]:
    """Why groups are not due; see `Ledger.waiting`."""
    with _selected(file, selection, ()) as parameters:
        del parameters["by_absence"]
        found = dict(
            file.rows(
                sql("plan.waiting"),
                {
                    **parameters,
                    "policies": list(policies),
                    "quiet_since": None if settle is None else now - settle,
                },
            )
        )
    return {why: found.get(why, 0) for why in ("unsettled", "no_query", "unknown_policy", "nothing_new")}


def due_group(row: Sequence[Any]) -> DueGroup:
    """A group of a row of this module's statements."""
    names = (
        "namespace", "group_id", "name", "query", "query_hash", "policy", "items", "chars",
        "last_seq", "judged_seq", "judged_sweep", "priority", "deadline", "first_seq",
    )  # fmt: skip
    return DueGroup(**dict(zip(names, row, strict=True)))


# ------------------------------------------------------------------------------------- selections


def chosen_groups(file: LedgerFile, selection: Selection) -> list[GroupKey] | None:
    """The groups that a selection names by group or run; None where it names neither.

    Raises:
        UnknownReference: a group's name or reference, or a run's name, that nothing goes by.
    """
    if selection.group is None and selection.run is None:
        return None
    sets: list[set[GroupKey]] = []
    if selection.group is not None:
        reference = parse_reference(selection.group)
        found = file.rows(sql("plan.groups_of_name"), {"name": selection.group})
        if not found and reference is not None and reference[0] in ("g", ""):
            found = file.rows(sql("plan.groups_of_tail"), {"tail": reference[1]})
        sets.append({(namespace, group_id) for namespace, group_id in found})
        if not found:
            raise UnknownReference(
                f"no group goes by {selection.group!r}",
                hint="`afterpass verdicts` lists groups by name and g_...",
            )
    if selection.run is not None:
        found = file.rows(sql("plan.groups_of_run"), {"run": selection.run})
        sets.append({(namespace, group_id) for namespace, group_id in found})
        if not found:
            raise UnknownReference(
                f"no item came from a run {selection.run!r}", hint="see `afterpass status`"
            )
    return sorted(set.intersection(*sets))


def _keys(file: LedgerFile, keys: Sequence[GroupKey]) -> Any:
    """A table of keys; without any, one that needs no Arrow: the commonest sweep has nothing to do, and
    loading Arrow would take a third of its time."""
    return keys_table(keys) if keys else file.connection.sql(sql("plan.no_keys"))


@contextmanager
def _selected(
    file: LedgerFile, selection: Selection, without: Sequence[GroupKey]
) -> Iterator[dict[str, Any]]:
    """The tables `chosen` and `without`, and the parameters that say whether they count."""
    chosen = chosen_groups(file, selection)
    with file.with_tables(chosen=_keys(file, chosen or []), without=_keys(file, without)):
        yield {
            "by_choice": chosen is not None,
            "by_namespace": selection.namespace is not None,
            "namespace": selection.namespace,
            "by_absence": bool(without),
        }


@contextmanager
def selected(file: LedgerFile, selection: Selection) -> Iterator[dict[str, Any]]:
    """As `_selected`, for statements that know no `without`."""
    with _selected(file, selection, ()) as parameters:
        del parameters["by_absence"]
        yield parameters


# ------------------------------------------------------------------------------ pages of groups


def picked_table(groups: Sequence[DueGroup]) -> pa.Table:
    """A page of groups, in its order."""
    return table(
        {
            "ord": column(range(len(groups)), "int64"),
            "group_id": uuids(group.group_id for group in groups),
            "query_hash": uuids(group.query_hash for group in groups),
            "query_chars": column((len(group.query) for group in groups), "int64"),
            "last_seq": column((group.last_seq for group in groups), "int64"),
        }
    )


@contextmanager
def page(file: LedgerFile, groups: Sequence[DueGroup]) -> Iterator[dict[str, int]]:
    """The table `picked`, and between which `seq` all its items lie."""
    with file.with_tables(picked=picked_table(groups)):
        first, last = min(group.first_seq for group in groups), max(group.last_seq for group in groups)
        yield {"first": first, "last": last}


def pairs_to_score(file: LedgerFile, groups: Sequence[DueGroup], model_key: str) -> ScoringWork:
    """What is left to score for these groups; see `Ledger.pairs_to_score`."""
    if not groups:
        return ScoringWork([], 0, 0, 0)
    with page(file, groups) as bounds:
        found = file.arrow(sql("plan.pairs_to_score"), {**bounds, "model_key": model_key})
    pairs = []
    items = duplicates = cached = blanks = 0
    # By columns: rows with two UUIDs each would take longer than the query itself.
    columns = [
        *(uuid_values(found[name]) for name in ("query_hash", "text_hash")),
        *(found[name].to_numpy().tolist() for name in ("query_chars", "chars", "blank", "items", "cached")),
    ]
    for query_hash, text_hash, query_chars, chars, blank, count, has_score in zip(*columns, strict=True):
        items += count
        if blank:
            blanks += count
            continue
        duplicates += count - 1
        if has_score:
            cached += 1
        else:
            pairs.append(PairKey(query_hash, text_hash, query_chars, chars))
    return ScoringWork(pairs, items, duplicates, cached, blanks)


def texts(file: LedgerFile, hashes: Sequence[UUID]) -> dict[UUID, str]:
    """Texts by hash; see `Ledger.texts`."""
    if not hashes:
        return {}
    with file.with_tables(wanted=table({"text_hash": uuids(dict.fromkeys(hashes))})):
        return dict(file.rows(sql("plan.texts")))


def scores(
    file: LedgerFile, model_key: str, pairs: Sequence[tuple[UUID, UUID]], *, errors: bool
) -> dict[tuple[UUID, UUID], Score]:
    """Scores by (query_hash, text_hash); see `Ledger.scores`."""
    if not pairs:
        return {}
    unique = list(dict.fromkeys(pairs))
    wanted = table({"query_hash": uuids(q for q, _ in unique), "text_hash": uuids(t for _, t in unique)})
    with file.with_tables(wanted=wanted):
        found = file.rows(sql("plan.scores"), {"model_key": model_key, "errors": errors})
    result = {}
    for query_hash, text_hash, logit, start, end, chunks, tokens, share_read, flags, error in found:
        result[query_hash, text_hash] = Score(
            query_hash, text_hash, logit, start, end, chunks, tokens, share_read, tuple(flags or ()), error
        )
    return result


def candidates(
    file: LedgerFile, groups: Sequence[DueGroup], model_key: str
) -> dict[GroupKey, list[Candidate]]:
    """Items and their scores, by group; see `Ledger.candidates`."""
    result: dict[GroupKey, list[Candidate]] = {group.key: [] for group in groups}
    if not groups:
        return result
    with page(file, groups) as bounds:
        found = file.rows(sql("plan.candidates"), {**bounds, "model_key": model_key})
    keys = {group.group_id: group.key for group in groups}
    for group_id, seq, text_hash, chars, blank, logit, error, score_seq in found:
        candidate = Candidate(seq, text_hash, chars, blank, logit, error, score_seq=score_seq)
        result[keys[group_id]].append(candidate)
    return result


def kept(file: LedgerFile, groups: Sequence[DueGroup]) -> dict[GroupKey, list[KeptItem]]:
    """Kept items, best first, by group; see `Ledger.kept`."""
    result: dict[GroupKey, list[KeptItem]] = {group.key: [] for group in groups}
    if not groups:
        return result
    with page(file, groups) as bounds:
        found = file.rows(sql("plan.kept"), bounds)
    keys = {group.group_id: group.key for group in groups}
    names = (
        "seq", "item_id", "text_hash", "text", "rank", "logit", "excerpt_start", "excerpt_end",
        "kind", "agent", "step",
    )  # fmt: skip
    for group_id, *rest in found:
        mine = result[keys[group_id]]
        values = dict(zip(names, rest, strict=True))
        if values["rank"] is None:
            values["rank"] = len(mine) + 1
        mine.append(KeptItem(**values))
    return result


def replies(file: LedgerFile, model_key: str, prompt_hashes: Sequence[UUID]) -> dict[UUID, Reply]:
    """Replies said before, by prompt; see `Ledger.replies`."""
    if not prompt_hashes:
        return {}
    with file.with_tables(wanted=table({"prompt_hash": uuids(dict.fromkeys(prompt_hashes))})):
        found = file.rows(sql("plan.replies"), {"model_key": model_key})
    return {
        prompt_hash: Reply(
            id=str(prompt_hash),
            text=text,
            finish_reason=finish_reason,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
        )
        for prompt_hash, text, finish_reason, prompt_tokens, cached_tokens, output_tokens in found
    }
