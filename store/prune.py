"""Pruning: groups for which nothing came in a long while go, with all that was made of them.

A group with due or pending work is never touched: not judged since its last item, not summarised where its
policy wants a summary, or without a query. A text goes when no item that stays has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .ledger_file import LedgerFile
from .rewrite import Rewritten, nothing_gone, replace_ledger, room_needed
from .sqlfiles import sql


@dataclass(frozen=True, slots=True)
class Month:
    """What goes of the groups whose last item came in a month ("2026-01")."""

    month: str
    groups: int
    items: int
    texts: int
    text_bytes: int


@dataclass(frozen=True, slots=True)
class Going:
    """What a prune takes.

    Attributes:
        groups, items: that go whole; where verdicts are kept, that lose their text.
        texts, text_bytes: texts that no other item has, and their UTF-8.
        scores, verdicts, summaries, replies, sweeps: rows.
        months: the same by age, oldest first.
        held_back: groups that are as old and stay, by reason: "not_judged", "no_summary", "no_query".
        room: bytes that must be free beside the ledger.
    """

    groups: int
    items: int
    texts: int
    text_bytes: int
    scores: int
    verdicts: int
    summaries: int
    replies: int
    sweeps: int
    months: tuple[Month, ...]
    held_back: Mapping[str, int]
    room: int

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do."""
        rows = self.scores + self.verdicts + self.summaries + self.replies + self.sweeps
        return not (self.items or self.texts or rows)


def choose(
    file: LedgerFile, *, before: datetime, summarised: Sequence[str], keep_verdicts: bool = False
) -> Going:
    """Say what goes, on `file`'s connection; changes nothing.

    Args:
        before: groups whose last item came earlier.
        summarised: policies that want summaries: their groups wait for one.
        keep_verdicts: only texts go.
    """
    nothing_gone(file)
    old = {"before": before}
    file.rows(sql("prune.choose_groups"), {**old, "summarised": list(summarised)})
    held_back = dict(file.rows(sql("prune.held_back"), old))
    file.rows(sql("prune.choose_items"))
    file.rows(sql("prune.choose_texts"))
    if keep_verdicts:
        file.rows(sql("prune.only_texts"))
    else:
        file.connection.execute(sql("prune.choose_rest"))
        for step in ("judgements", "summaries", "replies", "sweeps"):
            file.rows(sql(f"prune.choose_{step}"), old)
    whole = {"whole": not keep_verdicts}
    names = (
        "groups", "items", "texts", "text_bytes", "scores", "verdicts", "summaries", "replies", "sweeps",
    )  # fmt: skip
    counts: dict[str, int] = dict(zip(names, file.rows(sql("prune.counts"), whole)[0], strict=True))
    months = tuple(Month(*row) for row in file.rows(sql("prune.by_month"), whole))
    return Going(**counts, months=months, held_back=held_back, room=room_needed(file))


def prune(file: LedgerFile) -> Rewritten:
    """Do what was chosen: the ledger is written anew without it, and `file` closed.

    Raises:
        StoreError: see `rewrite.replace_ledger`; the ledger is as it was.
    """
    return replace_ledger(file)
