"""Map-reduce: one summary from however many tokens, as deep as the context makes necessary.

Level 1 reads passages; each level above reads the notes of the one below. Where everything fits one prompt
there is one level and one call. Every reply is addressed by its prompt, so that replies of an earlier, killed
sweep can be fed again in place of the model's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from ..core import keys
from ..core.config import SummarizePolicy
from ..core.types import Point, Prompt, Reply, Summary, SummaryStatus
from . import replies
from .budget import Budget, Piece, pack
from .prompts import Passage, ask
from .schema import bounded, points_schema, width_of
from .tokens import TokenCounter

_LEAST_REPLY = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all prompts of a job share.

    Attributes:
        query: cut to what the context can bear.
        context: tokens of prompt and reply together.
        base, frame: tokens of a prompt without passages; of the marks around one.
        own: the policy's own schema, for the last reply; None for points.
        at_once: passages in one prompt at most; None for as many as fit.
    """

    query: str
    policy: SummarizePolicy
    counter: TokenCounter
    context: int
    base: int
    frame: int
    own: Mapping[str, Any] | None
    at_once: int | None = None

    @property
    def room(self) -> int:
        """Tokens for passages in one prompt. Neutralising a text can lengthen it, hence the margin."""
        return int((self.context - self.base - self.policy.max_tokens) * 0.96)


@dataclass(frozen=True, slots=True)
class _Asked:
    prompt: Prompt
    level: int
    part: int
    sources: replies.Sources
    schema: Mapping[str, Any]
    own: bool
    retried: bool = False


@dataclass(frozen=True, slots=True)
class _Note:
    text: str
    items: tuple[UUID, ...]


class Tree:
    """One summary on its way: prompts go out, replies come in, `summary` appears.

    Args:
        setting: what all prompts share.
        pieces: what is to be read, best first; not empty.
        budget: its receipt.
        item_seq: the item, where the policy wants one output for each.
    """

    def __init__(
        self, setting: Setting, pieces: Sequence[Piece], budget: Budget, item_seq: int | None = None
    ) -> None:
        self._setting = setting
        self._budget = budget
        self._item_seq = item_seq
        self._width = width_of([piece.text for piece in pieces[:50]])
        policy = setting.policy
        self._few = setting.at_once if setting.own is None else None
        # Somebody who wrote the map template and not the note's means that one to be asked.
        self._by_itself = self._few == 1 and (policy.map is None or policy.note is not None)
        # Each prompt makes a point at least; twice as many as are shown are enough, as some fail the check.
        enough = policy.max_points * (1 if policy.min_support is None else 2)
        asked = pieces if self._few is None else pieces[: enough * self._few]
        self._pieces = list(asked)
        if len(asked) < len(pieces):
            self._budget = replace(budget, left_out=budget.left_out + len(pieces) - len(asked))
        self._waiting: dict[str, _Asked] = {}
        self._notes: dict[int, list[Point]] = {}
        self._failed: list[str] = []
        self._parts = 0
        self._part_items: dict[int, set[UUID]] = {}
        self._lost: set[UUID] = set()
        self._spent = Reply(id="")
        self._calls = 0
        self.level = 0
        self.summary: Summary | None = None

    def start(self) -> list[Prompt]:
        """The prompts of the first level."""
        packed = self._packed()
        self._pieces = []
        return self._ask(
            [[_Note(piece.text, (piece.item.item_id,)) for piece in part] for part in packed], notes=False
        )

    @property
    def parts(self) -> int:
        """How many prompts the first level will have, or nearly."""
        setting = self._setting
        tokens = sum(piece.tokens + setting.frame for piece in self._pieces)
        return max(-(-tokens // setting.room), -(-len(self._pieces) // (self._few or len(self._pieces) or 1)))

    def _packed(self) -> list[list[Piece]]:
        setting = self._setting
        few = self._few or len(self._pieces)
        return [
            part
            for at in range(0, len(self._pieces), few)
            for part in pack(self._pieces[at : at + few], setting.room, setting.frame, setting.counter)
        ]

    def feed(self, reply: Reply) -> list[Prompt]:
        """Take a reply; what it makes possible to ask next comes back."""
        asked = self._waiting.pop(reply.id)
        self._calls += 1
        self._spent = Reply(
            id="",
            prompt_tokens=self._spent.prompt_tokens + reply.prompt_tokens,
            output_tokens=self._spent.output_tokens + reply.output_tokens,
            finish_reason=reply.finish_reason,
        )
        cut_short = reply.finish_reason == "length" and not reply.error and not asked.retried
        if cut_short and (again := self._with_more_room(asked, reply)):
            return [again]
        try:
            value = replies.read(reply, asked.schema)
        except replies.BadReply as bad:
            self._failed.append(str(bad))
            self._lost |= self._part_items[asked.part]
        else:
            if asked.own:
                self._finish_own(value, asked)
                return []
            longest = asked.schema["properties"]["points"]["items"]["properties"]["text"]["maxLength"]
            self._notes[asked.part] = replies.points(value, asked.sources, self._setting.query, longest)
        return [] if self._waiting else self._climb()

    def _climb(self) -> list[Prompt]:
        """All of a level has answered: finish, or ask for the next."""
        found = [point for part in sorted(self._notes) for point in self._notes[part]]
        if not found:
            self._finish(SummaryStatus.ERROR, reason=self._reasons())
            return []
        # A model that reads one passage at a time is not asked to join notes either: the best are shown.
        few_enough = self._few is not None or len(found) <= self._setting.policy.max_points
        last = self._parts == 1 or (self._setting.own is None and few_enough)
        if last:
            unchecked = self._setting.policy.min_support is None
            self._finish_points(found[: self._setting.policy.max_points] if unchecked else found)
            return []
        useful = [point for point in found if replies.NOTHING_SAID not in point.marks]
        if not useful:
            self._finish_points(found[: self._setting.policy.max_points])
            return []
        return self._ask(self._pack_notes(useful), notes=True)

    def _ask(self, parts: Sequence[Sequence[_Note]], *, notes: bool) -> list[Prompt]:
        self.level += 1
        below = self._parts
        self._parts = len(parts)
        self._notes, self._part_items = {}, {}
        own = self._setting.own if len(parts) == 1 else None
        policy, width = self._share(len(parts)), self._width
        prompts = []
        for number, part in enumerate(parts):
            ids = [str(one) for one in range(1, len(part) + 1)]
            schema = (
                bounded(own, ids, width, policy.max_tokens)
                if own is not None
                else points_schema(ids, policy, width, policy.max_tokens)
            )
            prompt = ask(
                self._setting.query,
                [Passage(one, note.text) for one, note in zip(ids, part, strict=True)],
                policy,
                self._setting.counter,
                schema=schema,
                max_tokens=policy.max_tokens,
                own=own is not None,
                parts=below if notes else None,
                note=not notes and self._by_itself,
            )
            sources = {one: note.items for one, note in zip(ids, part, strict=True)}
            self._waiting[prompt.id] = _Asked(prompt, self.level, number, sources, schema, own is not None)
            self._part_items[number] = {item for note in part for item in note.items}
            prompts.append(prompt)
        return prompts

    def _share(self, parts: int) -> SummarizePolicy:
        """The policy of one prompt among so many: where they are many by choice, each makes its share."""
        policy = self._setting.policy
        if self._few is None:
            return policy
        points = 1 if self._few == 1 else -(-policy.max_points // parts)
        tokens = max(_LEAST_REPLY, policy.max_tokens * points // policy.max_points)
        return policy.model_copy(update={"max_points": points, "max_tokens": min(tokens, policy.max_tokens)})

    def _pack_notes(self, found: Sequence[Point]) -> list[list[_Note]]:
        """As many notes to a prompt as fit: at least twice what it may answer, so that each level shrinks."""
        setting = self._setting
        fan_in = 2 * setting.policy.max_points
        widest = max(8, setting.room // (fan_in + 1) - setting.frame)
        packed: list[list[_Note]] = [[]]
        filled = 0
        for point in found:
            text = point.text
            spans = setting.counter.spans(text)
            if len(spans) > widest:
                text = text[: spans[widest - 1][1]] + " ..."
            size = min(len(spans), widest) + 2 + setting.frame
            if filled + size > setting.room and len(packed[-1]) >= fan_in:
                packed.append([])
                filled = 0
            packed[-1].append(_Note(text, point.items))
            filled += size
        return packed

    def _with_more_room(self, asked: _Asked, reply: Reply) -> Prompt | None:
        used = reply.prompt_tokens or self._setting.counter.chat(asked.prompt.messages)
        room = min(asked.prompt.max_tokens * 2, self._setting.context - used - 1)
        if room <= asked.prompt.max_tokens * 5 // 4:
            return None
        prompt = replace(asked.prompt, id=keys.new_id().hex, max_tokens=room)
        self._waiting[prompt.id] = replace(asked, prompt=prompt, retried=True)
        return prompt

    def _finish_points(self, found: Sequence[Point]) -> None:
        self._lost -= {item for point in found for item in point.items}
        reason = f"{len(self._failed)} of {self._calls} replies gave no result: {self._reasons()}"
        self._finish(
            SummaryStatus.DONE,
            points=tuple(found),
            text=plain(found),
            reason=reason if self._failed else "",
        )

    def _finish_own(self, value: Any, asked: _Asked) -> None:
        output = replies.own_output(value, self._setting.own or {}, asked.sources)
        found = tuple(replies.points(value, asked.sources, self._setting.query, 10**9))
        self._finish(SummaryStatus.DONE, points=found, text=plain_output(output), output=output)

    def _reasons(self) -> str:
        return "; ".join(list(dict.fromkeys(self._failed))[:3])

    def _finish(self, status: SummaryStatus, **values: Any) -> None:
        self.summary = Summary(
            status=status,
            item_seq=self._item_seq,
            finish_reason=self._spent.finish_reason if self._calls else None,
            prompt_tokens=self._spent.prompt_tokens,
            output_tokens=self._spent.output_tokens,
            left_out=self._budget.left_out + len(self._lost),
            calls=self._calls,
            levels=self.level,
            **values,
        )


def plain(found: Sequence[Point]) -> str:
    """Points as plain text, one a line, each with the references of its items; marked ones are left out."""
    return "\n".join(
        f"- {point.text} [{', '.join(keys.reference('i', item) for item in point.items)}]"
        for point in found
        if point.items and replies.NOTHING_SAID not in point.marks
    )


def plain_output(output: Any) -> str:
    """A policy's own output as plain text: its summary, text or answer where it has one, else its JSON."""
    if isinstance(output, dict):
        for key in ("summary", "text", "answer", "translation"):
            if isinstance(output.get(key), str):
                return str(output[key])
    return json.dumps(output, ensure_ascii=False, separators=(",", ":"))
