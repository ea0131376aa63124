"""The values that travel between the parts: frozen, and free of any library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from . import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One intermediate result of an agent, as recorded.

    Attributes:
        text: what the agent got or wrote, as it was given (lone surrogates replaced, see `flags`).
        group: the caller's name for the items that compete; without one the run's name stands in.
        query: what the item is judged against; without one it stays unjudged and is counted.
        priority: higher is judged first.
        deadline: when the verdict is of no more use; timezone-aware.
        flags: what was noticed on the way in ("lone_surrogate", "nul").
    """

    item_id: UUID
    text: str
    created_at: datetime
    namespace: str = "default"
    group: str | None = None
    run: str | None = None
    query: str | None = None
    policy: str = "default"
    step: str | None = None
    kind: str = "result"
    agent: str | None = None
    priority: int = 0
    deadline: datetime | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def group_name(self) -> str | None:
        """The group's name: the caller's, else the run's."""
        return self.group if self.group is not None else self.run

    @property
    def group_id(self) -> UUID:
        """The id of the group this item competes in."""
        return keys.group_id(self.namespace, self.group_name, self.query, self.policy)


# --------------------------------------------------------------------------------------- planning


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of the ledger is meant; nothing given means all of it.

    Attributes:
        group: a group's name (all groups of that name) or its reference `g_...`.
        run: a run's name: the groups with an item of that run.
    """

    run: str | None = None
    group: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueGroup:
    """A group with work to do, as it stood when the plan was read.

    `last_seq` bounds the items that this pass judges: what arrives later reopens the group. No item of it
    comes before `first_seq`, by which reading skips what came earlier.
    """

    namespace: str
    group_id: UUID
    name: str | None
    query: str
    query_hash: UUID
    policy: str
    items: int
    chars: int
    last_seq: int
    judged_seq: int
    judged_sweep: UUID | None = None
    priority: int = 0
    deadline: datetime | None = None
    first_seq: int = 0

    @property
    def key(self) -> tuple[str, UUID]:
        """(namespace, group_id)."""
        return self.namespace, self.group_id


# ---------------------------------------------------------------------------------------- scoring


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and a text to be scored together. Hashes are `keys.content_hash` of each side."""

    query_hash: UUID
    text_hash: UUID
    query: str
    text: str


@dataclass(frozen=True, slots=True)
class Score:
    """What the cross-encoder said of a pair.

    Attributes:
        logit: raw and float32, None where scoring failed (`error` says why). Never NaN.
        excerpt_start: first character of the chunk that won, an offset into the text as recorded.
        excerpt_end: one past its last character.
        chunks: how many chunks were read.
        tokens: how many tokens went through the model for this pair.
        share_read: characters covered by the chunks read, over all; 1.0 unless chunks were chosen.
        flags: what a reader should know ("query_truncated").
    """

    query_hash: UUID
    text_hash: UUID
    logit: float | None
    excerpt_start: int = 0
    excerpt_end: int = 0
    chunks: int = 1
    tokens: int = 0
    share_read: float = 1.0
    flags: tuple[str, ...] = ()
    error: str | None = None


# --------------------------------------------------------------------------------------- deciding


class Decision(StrEnum):
    """What became of an item."""

    KEEP = "keep"
    """Worth reading."""
    DROP = "drop"
    """Judged, and not worth reading."""
    ERROR = "error"
    """Could not be judged; the reason says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item on its way to a verdict: what deciding needs to know, without the text.

    `logit` is None where there is no score: `blank` texts are never scored, others carry `error`.
    """

    seq: int
    text_hash: UUID
    chars: int
    blank: bool
    logit: float | None
    error: str | None = None
    near_duplicate_of: UUID | None = None
    score_seq: int | None = None
    """Which score of the ledger `logit` comes from; its verdict carries it on."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on one item of a group. It says how relevant, not whether true.

    Attributes:
        seq: the item's number in the ledger.
        rank: 1 is best, among the group's representatives; None for errors, blanks and duplicates.
        reason: one word or a short phrase: "top_k", "below_top_k", "min_logit", "empty", "duplicate", ...
        duplicate_of: seq of the representative whose verdict this one follows.
        probability: None unless a calibration on labels of this kind of data exists.
        score_seq: the candidate's: leads readers to the excerpt that earned the logit.
    """

    seq: int
    decision: Decision
    reason: str
    rank: int | None = None
    logit: float | None = None
    probability: float | None = None
    duplicate_of: int | None = None
    score_seq: int | None = None


# ------------------------------------------------------------------------------------ summarising


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request to a language model.

    Attributes:
        id: unique among all requests of a sweep.
        messages: chat turns, `{"role", "content"}`; templated by the engine's own tokenizer.
        schema: a JSON schema that the reply must satisfy, or None for free text.
        max_tokens: the most that the reply may have.
    """

    id: str
    messages: tuple[Mapping[str, str], ...]
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a language model said.

    `finish_reason` is "stop", "length", or "error"; only "stop" is a result. `error` says why there is none.
    """

    id: str
    text: str = ""
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptItem:
    """A kept item on its way into a summary, best first."""

    seq: int
    item_id: UUID
    text_hash: UUID
    text: str
    rank: int
    logit: float | None
    excerpt_start: int
    excerpt_end: int
    kind: str = "result"
    agent: str | None = None
    step: str | None = None

    @property
    def excerpt(self) -> str:
        """The chunk that earned the score."""
        return self.text[self.excerpt_start : self.excerpt_end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One statement of a summary.

    Attributes:
        items: ids of the kept items it rests on; empty where no source was found.
        support: the best logit of (point, cited item), None before the check.
        marks: what the check noticed: "no_source_found", "source_found" (found for it, not cited by the
            model), "unsourced: 42" (a number, date or name that stands in none of its sources).
    """

    text: str
    items: tuple[UUID, ...] = ()
    support: float | None = None
    marks: tuple[str, ...] = ()


class SummaryStatus(StrEnum):
    """How a group's summary came to be."""

    DONE = "done"
    """Written by the model and checked."""
    SKIPPED = "skipped"
    """Nothing to say; the reason says why. No model was called."""
    ERROR = "error"
    """The model was asked and gave no result."""
    EXTRACT = "extract"
    """No model answered: the top items' excerpts stand in. The group stays due for its summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A group's (or, where a policy says so, one item's) short text.

    Attributes:
        text: plain text, made of the points that passed the check; extracts where `status` is EXTRACT.
        points: every point, passed or marked.
        output: the reply's own JSON where the policy names its own schema, else None.
        reason: why it was skipped or failed.
        left_out: how many kept items did not fit the budget.
        calls: how many replies it was made from; `levels`: how deep the map-reduce went.
    """

    status: SummaryStatus
    text: str = ""
    points: tuple[Point, ...] = ()
    output: Any = None
    item_seq: int | None = None
    reason: str = ""
    model_key: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    left_out: int = 0
    calls: int = 0
    levels: int = 1
