"""What the ledger gives to a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import UUID

Reopen = Literal["rejudge", "redecide", "retry_errors"]
"""What to do over: score and decide, decide only, or what ended in an error."""

GroupKey = tuple[str, UUID]
"""(namespace, group_id)."""


class PairKey(NamedTuple):
    """A pair to score, without its texts. `query_chars` and `chars` are lengths in characters.

    A tuple, for it is made ten thousand at a time.
    """

    query_hash: UUID
    text_hash: UUID
    query_chars: int
    chars: int


@dataclass(frozen=True, slots=True)
class ScoringWork:
    """What a page of groups needs from the scorer.

    items = blank + duplicates + cached + len(pairs).

    Attributes:
        pairs: unique, not blank, and without a score that counts; in the groups' order.
        items: all items of the groups.
        duplicates: items whose query and text another item of these groups has too.
        cached: unique pairs that have their score already.
        blank: items with nothing to read.
    """

    pairs: list[PairKey]
    items: int
    duplicates: int
    cached: int
    blank: int = 0
