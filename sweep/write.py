"""Summarise: from kept items to drafts, the language model kept full all the while.

Groups bring prompts, replies bring drafts or more prompts (map-reduce). Every reply is committed as it
comes under its prompt's hash, so that after a kill nothing is asked twice. Drafts go on to `check`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from .. import summarize
from ..core.config import SummarizerConfig
from ..core.errors import ConfigError, EngineError
from ..core.types import DueGroup, Prompt, Reply, Summary
from ..store.ledger import GroupKey, Ledger
from .context import Cadence, Context
from .engine_process import EngineProcess

PAGE_GROUPS = 256
PLAN_AHEAD_PROMPTS = 128
POLL_S = 0.25

Draft = tuple[DueGroup, Sequence[Summary]]


class Writing:
    """One pass over all judged groups without a current summary whose policies share a language model.

    Args:
        context: the sweep's surroundings.
        model: the name of a `[summarize.models.NAME]`.
        hand_on: takes finished drafts.
    """

    def __init__(self, context: Context, model: str, hand_on: Callable[[Sequence[Draft]], None]) -> None:
        self._context = context
        self._model = model
        self._config: SummarizerConfig = context.config.summarize.models[model]
        self._policies = [
            name
            for name, policy in context.config.policy.items()
            if policy.summarize.enabled and policy.summarize.model == model
        ]
        self._key = summarize.model_key(self._config)
        self._hand_on = hand_on
        self._engine: EngineProcess[Prompt, Reply] | None = None
        self._jobs: dict[str, summarize.GroupJob] = {}
        self._prompts: deque[Prompt] = deque()
        self._hashes: dict[str, UUID] = {}
        self._replies: list[tuple[UUID, int, Reply]] = []
        self._seen: set[GroupKey] = set()
        self._drafted: set[GroupKey] = set()
        self._groups_seen = 0
        self._exhausted = False
        self._cadence = Cadence()

    def run(self) -> None:
        """Write until nothing is due, or until told to stop; replies in flight then are still committed.

        Raises:
            EngineError: the language model does not start or keeps dying; committed replies stand.
        """
        try:
            while self._more():
                self._work()
        finally:
            try:
                self._commit()
            finally:
                if self._engine is not None:
                    self._context.account.seconds["summarise_engine"] += self._engine.busy_seconds
                    self._engine.close()

    def extract_instead(self, why: str) -> None:
        """Write extracts for what is due, labelled with why no model answered; the groups stay due."""
        self._seen = set(self._drafted)  # what was asked and not answered is due again
        while True:
            with self._context.ledger() as ledger:
                groups = self._due(ledger)
                if not groups:
                    return
                kept = ledger.kept(groups)
                ledger.write_summaries(
                    self._context.sweep_id,
                    [(g, [summarize.extract(g, kept.get(g.key, []), why)]) for g in groups],
                )
            self._seen.update(group.key for group in groups)
            self._context.account.groups["extracts"] += len(groups)

    # --------------------------------------------------------------------------------------- plan

    def _due(self, ledger: Ledger) -> list[DueGroup]:
        return ledger.due_summaries(
            policies=self._policies,
            selection=self._context.options.selection,
            limit=PAGE_GROUPS,
            sweep_id=self._context.sweep_id,
            without=list(self._seen),  # drafts that wait for their check are still due by the ledger's word
        )

    def _more(self) -> bool:
        """Plan ahead, so that the engine never waits for a page; False when all is done."""
        if self._context.stopping:
            self._exhausted = True
            for prompt in self._prompts:
                del self._jobs[prompt.id]
            self._prompts.clear()
        while not self._exhausted and len(self._prompts) < PLAN_AHEAD_PROMPTS:
            self._next_page()
        return bool(self._prompts) or (self._engine is not None and self._engine.outstanding > 0)

    def _next_page(self) -> None:
        context = self._context
        finished: list[summarize.GroupJob] = []
        with context.account.timed("plan"), context.ledger() as ledger:
            groups = self._due(ledger)
            kept = ledger.kept(groups) if groups else {}
        self._exhausted = not groups
        if not groups:
            return
        counter, length = summarize.token_counter(self._config), summarize.context_length(self._config)
        at_once = summarize.passages_at_once(self._config)
        with context.account.timed("plan"), context.ledger() as ledger:
            self._seen.update(group.key for group in groups)
            for group in groups:
                policy = context.config.policy[group.policy].summarize
                items = kept.get(group.key, [])
                job = summarize.GroupJob(group, items, policy, counter, length, at_once)
                if not self._take(ledger, job, job.start()):
                    finished.append(job)
        # Costly groups first: a long one begun last would leave the engine nearly empty at the end.
        self._prompts = deque(sorted(self._prompts, key=lambda prompt: -self._jobs[prompt.id].cost))
        self._groups_seen += len(groups)
        context.progress.phase("summarising", self._groups_seen, "groups")
        self._finish(finished)

    def _take(self, ledger: Ledger, job: summarize.GroupJob, prompts: Iterable[Prompt]) -> bool:
        """Answer prompts from the ledger where it can; queue the rest. False when the job is finished."""
        todo = list(prompts)
        while todo:
            hashes = {prompt.id: summarize.prompt_hash(prompt) for prompt in todo}
            known = ledger.replies(self._key, list(hashes.values()))
            following: list[Prompt] = []
            for prompt in todo:
                if (reply := known.get(hashes[prompt.id])) is not None:
                    self._context.account.tokens["replies_cached"] += 1
                    following += job.feed(replace(reply, id=prompt.id))
                else:
                    self._jobs[prompt.id] = job
                    self._hashes[prompt.id] = hashes[prompt.id]
                    self._prompts.append(prompt)
            todo = following
        return job.summaries is None

    # -------------------------------------------------------------------------------------- write

    def _work(self) -> None:
        """Feed the engine, take what it finished, commit when it is time."""
        engine = self._start()
        if self._prompts and engine.room:
            engine.submit([self._prompts.popleft() for _ in range(min(engine.room, len(self._prompts)))])
        with self._context.account.timed("summarise"):
            replies = engine.poll(POLL_S)
        if replies:
            self._receive(replies)
        if self._cadence.due(len(self._replies), bool(self._replies)):
            self._commit()

    def _start(self) -> EngineProcess[Prompt, Reply]:
        if self._engine is None:
            context = self._context
            prompts = self._expected()
            context.progress.phase("loading", None, self._config.model)
            engine: EngineProcess[Prompt, Reply] = EngineProcess(
                "summarizer",
                self._config,
                log=context.home.logs / "summarizer.log",
                extra={"prompts": prompts},
            )
            with context.account.timed("load"):
                engine.start()
            context.account.models[f"summarizer:{self._model}"] = {"key": engine.key, **engine.about}
            self._engine = engine
            context.progress.phase("summarising", self._groups_seen, "groups")
        return self._engine

    def _expected(self) -> int:
        """How many prompts are to come, at least: by it the engine is sized, and compiled or not."""
        if self._exhausted:
            return len(self._prompts)
        context = self._context
        with context.ledger() as ledger:
            due = ledger.count_due_summaries(
                policies=self._policies, selection=context.options.selection, sweep_id=context.sweep_id
            )
        return max(len(self._prompts), due - len(self._drafted))

    def _receive(self, replies: Sequence[Reply]) -> None:
        account = self._context.account
        finished: list[summarize.GroupJob] = []
        following: list[tuple[summarize.GroupJob, list[Prompt]]] = []
        for reply in replies:
            job = self._jobs.pop(reply.id)
            account.tokens["prompt"] += reply.prompt_tokens
            account.tokens["cached_prompt"] += reply.cached_tokens
            account.tokens["output"] += reply.output_tokens
            self._replies.append((self._hashes.pop(reply.id), job.level_of(reply), reply))
            more = job.feed(reply)
            if more:
                following.append((job, more))
            elif job.summaries is not None:
                finished.append(job)
        if following:
            with self._context.ledger() as ledger:
                finished += [job for job, prompts in following if not self._take(ledger, job, prompts)]
        self._finish(finished)

    def _finish(self, jobs: Sequence[summarize.GroupJob]) -> None:
        drafts: list[Draft] = [
            (job.group, [self._signed(summary) for summary in job.summaries])
            for job in jobs
            if job.summaries is not None
        ]
        if drafts:
            self._drafted.update(group.key for group, _ in drafts)
            self._hand_on(drafts)
            engine = self._engine
            seconds = engine.busy_seconds if engine is not None else 0.0
            rate = self._context.account.tokens["output"] / seconds if seconds else 0.0
            self._context.progress.advance(len(drafts), tokens_per_s=rate)

    def _signed(self, summary: Summary) -> Summary:
        """With the judgement key of the model that was asked, where one was."""
        return replace(summary, model_key=self._key) if summary.calls else summary

    def _commit(self) -> None:
        if not self._replies:
            return
        replies, self._replies = self._replies, []
        with self._context.account.timed("commit_replies"), self._context.ledger() as ledger:
            ledger.write_replies(self._context.sweep_id, self._key, replies)
        self._cadence.mark()


def write(context: Context, model: str, hand_on: Callable[[Sequence[Draft]], None]) -> None:
    """Summarise with one language model; where it does not start, leave labelled extracts and say so."""
    writing = Writing(context, model, hand_on)
    try:
        writing.run()
    except (EngineError, ConfigError) as error:  # verdicts never wait for summaries
        context.account.engine_failed = True
        context.account.problem(error)
        context.progress.note(f"no summaries from {model}: {error.message}")
        writing.extract_instead(f"the language model did not answer: {error.message}")
