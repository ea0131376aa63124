"""What a reader gets where no model said anything: the top items' excerpts, labelled as such."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import keys
from ..core.types import DueGroup, KeptItem, Summary, SummaryStatus

LABEL = "Extracts, not a summary:"
"""First line of every text that is made of extracts."""

_ITEMS, _CHARS = 3, 280


def extract(group: DueGroup, kept: Sequence[KeptItem], reason: str) -> Summary:
    """Extracts in place of a summary; the group stays due for one.

    Args:
        group: for symmetry with what a job gets; extracts do not depend on it.
        kept: the group's kept items, best first.
        reason: why there is no summary ("no_summaries", what the engine said, ...).
    """
    del group
    text = extracts(kept)
    shown = min(_ITEMS, sum(1 for item in kept if item.text.strip()))
    return Summary(
        status=SummaryStatus.EXTRACT, text=text, reason=reason, left_out=len(kept) - shown, levels=0
    )


def extracts(kept: Sequence[KeptItem]) -> str:
    """The label and up to three excerpts, each with its item's reference; "" where nothing was kept."""
    lines = []
    for item in kept:
        passage = " ".join((item.excerpt.strip() or item.text).split())
        if not passage:
            continue
        if len(passage) > _CHARS:
            head, space, _ = passage[:_CHARS].rpartition(" ")
            passage = (head if space and len(head) > _CHARS // 2 else passage[:_CHARS]) + " ..."
        lines.append(f"- {passage} [{keys.reference('i', item.item_id)}]")
        if len(lines) == _ITEMS:
            break
    return "\n".join([LABEL, *lines]) if lines else ""
