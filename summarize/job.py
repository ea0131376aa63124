"""A group's way to its summary, without any engine: prompts out, replies in, summaries at the end."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.config import SummarizePolicy
from ..core.types import DueGroup, KeptItem, Prompt, Reply, Summary, SummaryStatus
from .budget import Budget, choose
from .prompts import frames
from .reduce import Setting, Tree
from .schema import own_schema
from .tokens import TokenCounter

_QUERY_SHARE = 8
"""A query longer than this part of the context is cut: passages matter more than the rest of it."""
_LEAST_ROOM = 48
_NEAR_EMPTY = 12
"""Letters and digits below which there is nothing to summarise; an ideograph counts as three."""


class GroupJob:
    """One group's summary, or one for each of its items where the policy says so.

    Args:
        group: what is summarised.
        kept: its kept items, best first (duplicates left out).
        policy: budget, templates, schema, sampling.
        counter: of the model that will answer.
        context: that model's context, in tokens of prompt and reply together.
        at_once: passages in one prompt at most; None for as many as fit.

    Attributes:
        summaries: None while replies are awaited. Complete at once where there is nothing to ask.
        budget: what of the items goes to the model, and what was left out.
        cost: tokens to be expected of prompts and replies, all levels: put costly jobs first, so that
            none of them forms the tail.

    Raises:
        ConfigError: a template or the schema of the policy is wrong.
    """

    def __init__(
        self,
        group: DueGroup,
        kept: Sequence[KeptItem],
        policy: SummarizePolicy,
        counter: TokenCounter,
        context: int,
        at_once: int | None = None,
    ) -> None:
        self.group = group
        self.summaries: list[Summary] | None = None
        self.budget = Budget()
        self.cost = 0
        self._trees: list[Tree] = []
        self._by_prompt: dict[str, tuple[Tree, int]] = {}
        self._answered: set[str] = set()
        self._skipped: list[Summary] = []
        if reason := nothing_to_say(kept):
            self.summaries = [Summary(status=SummaryStatus.SKIPPED, reason=reason, levels=0)]
            return
        query = _cut(group.query, max(32, context // _QUERY_SHARE), counter)
        base, frame = frames(query, policy, counter)
        setting = Setting(
            query=query,
            policy=policy,
            counter=counter,
            context=context,
            base=base,
            frame=frame,
            own=own_schema(policy),
            at_once=at_once,
        )
        if setting.room < _LEAST_ROOM + frame:
            self.summaries = [
                Summary(
                    status=SummaryStatus.ERROR,
                    reason=f"a context of {context} tokens has no room for passages beside the prompt "
                    f"({base}) and the reply ({policy.max_tokens})",
                    levels=0,
                )
            ]
            return
        self._plant(setting, kept)

    def start(self) -> list[Prompt]:
        """The first prompts; [] where `summaries` is there already."""
        prompts = [prompt for tree in self._trees for prompt in self._note(tree, tree.start())]
        self._settle()
        return prompts

    def feed(self, reply: Reply) -> list[Prompt]:
        """Take the reply to one of the prompts; what can be asked next comes back.

        A reply that came before is ignored.

        Raises:
            KeyError: no prompt of this job has that id.
        """
        tree, _ = self._by_prompt[reply.id]
        if reply.id in self._answered:
            return []
        self._answered.add(reply.id)
        prompts = self._note(tree, tree.feed(reply))
        self._settle()
        return prompts

    def level_of(self, prompt: Prompt | Reply) -> int:
        """The level of a prompt or its reply: 1 reads items, those above read the notes of the one below."""
        return self._by_prompt[prompt.id][1]

    def _plant(self, setting: Setting, kept: Sequence[KeptItem]) -> None:
        policy = setting.policy
        if not policy.per_item:
            readable = [item for item in kept if item.text.strip()]
            pieces, self.budget = choose(readable, policy.input_tokens, setting.frame, setting.counter)
            self.budget = _and_blank(self.budget, len(kept) - len(readable))
            self._trees = [Tree(setting, pieces, self.budget)]
        else:
            receipts = []
            for item in kept:
                if reason := nothing_to_say([item]):
                    self._skipped.append(
                        Summary(
                            status=SummaryStatus.SKIPPED,
                            reason=reason,
                            item_seq=item.seq,
                            levels=0,
                            left_out=1,
                        )
                    )
                    continue
                pieces, receipt = choose([item], policy.input_tokens, setting.frame, setting.counter)
                receipts.append(receipt)
                self._trees.append(Tree(setting, pieces, receipt, item_seq=item.seq))
            self.budget = Budget(
                wanted=sum(one.wanted for one in receipts),
                sent=sum(one.sent for one in receipts),
                left_out=len(self._skipped),
                cut=sum(one.cut for one in receipts),
            )
        parts = sum(tree.parts for tree in self._trees)
        self.cost = self.budget.sent + parts * (setting.base + policy.max_tokens // 2)

    def _note(self, tree: Tree, prompts: list[Prompt]) -> list[Prompt]:
        for prompt in prompts:
            self._by_prompt[prompt.id] = (tree, tree.level)
        return prompts

    def _settle(self) -> None:
        if self._trees and all(tree.summary is not None for tree in self._trees):
            done = [tree.summary for tree in self._trees if tree.summary is not None]
            self.summaries = [*done, *self._skipped]


def nothing_to_say(kept: Sequence[KeptItem]) -> str | None:
    """Why a group needs no summary, or None: nothing kept, nothing but blanks, or hardly a word in all."""
    if not kept:
        return "nothing_kept"
    if not any(item.text.strip() for item in kept):
        return "blank"
    weight = 0
    for item in kept:
        for character in item.text[:4096]:
            if character.isalnum():
                weight += 3 if character >= "\u2e80" else 1
            if weight >= _NEAR_EMPTY:
                return None
    return "near_empty"


def _and_blank(budget: Budget, blank: int) -> Budget:
    return Budget(wanted=budget.wanted, sent=budget.sent, left_out=budget.left_out + blank, cut=budget.cut)


def _cut(query: str, tokens: int, counter: TokenCounter) -> str:
    head = query[: tokens * 40]  # no need to count a megabyte to cut it to a hundred tokens
    spans = counter.spans(head)
    if (len(spans) <= tokens and head is query) or not spans:
        return head
    return head[: spans[min(tokens, len(spans)) - 1][1]]
