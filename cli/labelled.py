"""Labels joined with the verdicts they speak of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from ..core.config import Policy
    from ..core.types import Candidate
    from ..rerank.calibrate import Sample
    from ..rerank.calibration import Calibration
    from ..rerank.guarantee import LabelledGroup
    from ..rerank.labels import Label
    from ..store.ledger import Ledger
    from ..store.results import VerdictRow


def read_labels(file: Path) -> list[Label]:
    """The labels of a JSONL file.

    Raises:
        InputError: it cannot be read, or a line is no label.
    """
    from ..core.errors import InputError
    from ..rerank.labels import parse

    try:
        text = file.read_text("utf-8-sig")  # an editor may have put a mark in front
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the labels {file} cannot be read: {error}", hint="`afterpass label` writes such a file"
        ) from error
    found = parse(text.split("\n"), source=str(file))
    if not found:
        raise InputError(f"{file} holds no label", hint="`afterpass label` writes some")
    return found


def rows_of(
    ledger: Ledger, groups: Iterable[str], policy: str, model_key: str
) -> dict[str, list[VerdictRow]]:
    """The current verdicts of each labelled group, by the reference that its labels use.

    Raises:
        UnknownReference: no such group.
        InputError: it is of another policy, or was judged by another model or configuration than counts now.
    """
    from ..core.errors import InputError
    from ..core.keys import parse_reference

    groups = list(groups)
    by_group: dict[UUID, list[VerdictRow]] = defaultdict(list)
    for row in ledger.verdicts(group=groups, text=False):
        by_group[row.group_id].append(row)
    found: dict[str, list[VerdictRow]] = {}
    for group in groups:
        _, tail = parse_reference(group) or ("", group)
        rows = []
        for group_id, of_group in by_group.items():
            if group_id.hex.endswith(tail) or of_group[0].group == group:
                rows += of_group
        mine = [row for row in rows if row.policy == policy]
        if rows and not mine:
            raise InputError(
                f"the group {group} is of policy {rows[0].policy!r}, and {policy!r} is to be calibrated",
                hint=f"`--policy {rows[0].policy}`, or leave its labels out",
            )
        if other := next((row.model_key for row in mine if row.model_key != model_key), None):
            raise InputError(
                f"the group {group} was judged by {other}, and policy {policy!r} now scores with {model_key}",
                hint="judge it again: `afterpass sweep --rejudge`",
            )
        found[group] = mine
    return found


def check_decided(rows: dict[str, list[VerdictRow]], policy: Policy, calibration: Calibration) -> None:
    """Near-duplicates are looked for when a group is decided: refuse groups whose are of other rules.

    Raises:
        InputError: they were decided by other rules than count now.
    """
    from ..core.errors import InputError
    from ..sweep.context import policy_hash

    every = [row for of_group in rows.values() for row in of_group]
    if policy.decide.near_duplicates is None and not any(row.reason == "near_duplicate" for row in every):
        return
    good = {policy_hash(policy), policy_hash(policy, calibration.name)}
    if any(row.policy_hash not in good for row in every):
        raise InputError(
            "labelled groups were decided by other rules than the policy has now, and near-duplicates may "
            "differ",
            hint="decide them again: `afterpass sweep --redecide`",
        )


def samples(labels: Sequence[Label], rows: dict[str, list[VerdictRow]]) -> list[Sample]:
    """Labelled items that have a logit.

    Raises:
        InputError: a label names an item that its group does not have.
    """
    from ..rerank.calibrate import Sample

    found = []
    known = {group: {row.item_id: row for row in of_group} for group, of_group in rows.items()}
    for label in labels:
        row = known[label.group][_item(label.item, label.group, rows[label.group])]
        if row.logit is not None:
            found.append(Sample(str(row.group_id), row.logit, label.relevant))
    return found


def whole_groups(
    labelled: dict[str, dict[str, bool]], rows: dict[str, list[VerdictRow]]
) -> list[LabelledGroup]:
    """Groups with every item's label.

    Raises:
        InputError: a group is labelled in part only, or a label names an item that its group does not have.
    """
    from ..core.errors import InputError
    from ..rerank.guarantee import LabelledGroup

    found, partly = [], []
    for group, items in labelled.items():
        said = {_item(item, group, rows[group]): relevant for item, relevant in items.items()}
        of_group = rows[group]
        if any(row.item_id not in said and row.reason != "empty" for row in of_group):
            partly.append(group)
            continue
        relevant = frozenset(row.seq for row in of_group if said.get(row.item_id))
        found.append(LabelledGroup(group, tuple(_candidates(of_group)), relevant))
    if partly:
        raise InputError(
            f"{len(partly)} groups are labelled in part only ({', '.join(partly[:3])}, ...): a promise needs "
            "every item of a drawn group, for those left out may be the ones that were missed",
            hint="`afterpass label --for guarantee` goes on where it stopped",
        )
    return found


def _candidates(rows: Sequence[VerdictRow]) -> Iterable[Candidate]:
    """The group as deciding saw it; an item's id stands in for its text's hash."""
    from ..core.types import Candidate

    for row in rows:
        exact = row.reason == "duplicate" and row.duplicate_of is not None
        near = row.duplicate_of if row.reason == "near_duplicate" else None
        text_hash = row.duplicate_of if exact and row.duplicate_of else row.item_id
        error = row.reason if row.decision == "error" and row.duplicate_of is None else None
        yield Candidate(
            row.seq, text_hash, row.chars, row.reason == "empty", row.logit, error, near_duplicate_of=near
        )


def _item(reference: str, group: str, rows: Sequence[VerdictRow]) -> UUID:
    from ..core.errors import InputError
    from ..core.keys import parse_reference

    parsed = parse_reference(reference)
    if parsed and parsed[0] in ("", "i"):
        found = [row.item_id for row in rows if row.item_id.hex.endswith(parsed[1])]
        if len(found) == 1:
            return found[0]
    raise InputError(
        f"the group {group} has no item {reference}", hint=f"`afterpass verdicts --group {group}` lists them"
    )
