"""Score and decide: from due groups to committed verdicts, the scorer kept full all the while.

The scorer works in its own process through a queue; reading the plan, fetching texts, deciding and
committing happen here meanwhile. Scores commit as they come, a group's verdicts when its last score is in.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from .. import rerank
from ..core.config import DecidePolicy, ScorerConfig
from ..core.types import Candidate, Decision, DueGroup, Pair, Score, Verdict
from ..rerank.decide import check_policy, decide
from ..store.ledger import Ledger, PairKey, ScoringWork
from .context import Cadence, Context, now, policy_hash
from .engine_process import EngineProcess
from .learnt import Learnt

PAGE_GROUPS = 1000
PLAN_AHEAD_PAIRS = 4096
FETCH_CHARS = 16 * 2**20
POLL_S = 0.25
TEXT_PRUNED = "its text was pruned"


class Judging:
    """One pass over all due groups whose policies share a scorer."""

    def __init__(self, context: Context, model: str) -> None:
        self._context = context
        self._model = model
        self._config: ScorerConfig = context.config.rerank.models[model]
        self._policies = [n for n, p in context.config.policy.items() if p.rerank.model == model]
        self._hashes = {name: policy_hash(context.config.policy[name]) for name in self._policies}
        self._key = rerank.model_key(self._config)
        self._learnt: dict[str, Learnt] = {}
        self._engine: EngineProcess[Pair, Score] | None = None
        self._exhausted = False
        self._planned: deque[tuple[PairKey, str]] = deque()
        self._texts: deque[Pair] = deque()
        self._groups: dict[UUID, list[DueGroup]] = {}
        """Groups at work, by query."""
        self._open: dict[UUID, set[UUID]] = {}
        """Texts that a query still waits for."""
        self._ready: list[DueGroup] = []
        self._scores: list[Score] = []
        self._pairs_seen = 0
        self._cadence = Cadence()

    def run(self) -> None:
        """Judge until nothing is due, or until told to stop; what is in flight then is still committed."""
        try:
            while self._more():
                self._work()
        finally:
            try:
                self._commit()
            finally:
                if self._engine is not None:
                    self._context.account.seconds["score_engine"] += self._engine.busy_seconds
                    self._engine.close()

    def _more(self) -> bool:
        """Plan ahead, so that the scorer never waits for a page; False when all is done."""
        if self._context.stopping:
            self._exhausted = True
            self._planned.clear()
            self._texts.clear()
        while not self._exhausted and len(self._planned) + len(self._texts) < PLAN_AHEAD_PAIRS:
            self._next_page()
        in_flight = self._engine is not None and self._engine.outstanding
        return bool(self._planned or self._texts or in_flight or self._ready)

    # --------------------------------------------------------------------------------------- plan

    def _next_page(self) -> None:
        context = self._context
        self._commit()  # a score that is not in the ledger yet would be planned again
        with context.account.timed("plan"), context.ledger() as ledger:
            groups = ledger.due_groups(
                policies=self._policies,
                now=now(),
                settle=context.settle,
                selection=context.options.selection,
                sweep_id=context.sweep_id,
                limit=PAGE_GROUPS,
                without=[group.key for groups in self._groups.values() for group in groups],
            )
            if groups and self._key is not None:
                self._take(groups, ledger.pairs_to_score(groups, self._key))
        self._exhausted = not groups
        if groups and self._key is None:  # only the loaded model can say which backend it chose
            self._key = self._start().key
            with context.account.timed("plan"), context.ledger() as ledger:
                self._take(groups, ledger.pairs_to_score(groups, self._key))

    def _learn(self, key: str) -> None:
        """Read what labels taught of this scorer, and refuse a policy that asks for more than that."""
        for name in self._policies:
            learnt = self._learnt[name] = Learnt(self._context, name, key)
            check_policy(learnt.policy, learnt.calibration, name=name)
            if learnt.calibration is not None:
                self._hashes[name] = policy_hash(self._context.config.policy[name], learnt.calibration.name)

    def _take(self, groups: Sequence[DueGroup], work: ScoringWork) -> None:
        if not self._learnt:
            assert self._key is not None
            self._learn(self._key)
        self._context.account.items["cached"] += work.cached
        for group in groups:
            self._groups.setdefault(group.query_hash, []).append(group)
        queries = {group.query_hash: group.query for group in groups}
        order = {query_hash: place for place, query_hash in enumerate(queries)}
        # By group, in the plan's order: groups finish one after another instead of all at the end.
        for pair in sorted(work.pairs, key=lambda pair: (order[pair.query_hash], pair.chars)):
            waiting = self._open.setdefault(pair.query_hash, set())
            if pair.text_hash not in waiting:
                waiting.add(pair.text_hash)
                self._planned.append((pair, queries[pair.query_hash]))
                self._pairs_seen += 1
        for query_hash in queries:
            if query_hash not in self._open:
                self._ready += self._groups.pop(query_hash)
        self._context.progress.phase("scoring", self._pairs_seen, "pairs")

    # -------------------------------------------------------------------------------------- score

    def _work(self) -> None:
        """Feed the scorer, take what it finished, commit when it is time."""
        if self._planned and not self._texts:
            self._fetch()
        if self._texts:
            engine = self._start()
            engine.submit([self._texts.popleft() for _ in range(min(engine.room, len(self._texts)))])
        if self._engine is not None and self._engine.outstanding:
            with self._context.account.timed("score"):
                results = self._engine.poll(POLL_S)
            for score in results:
                self._receive(score)
            if results:
                seconds = self._engine.busy_seconds
                tokens = self._context.account.tokens["scored"]
                self._context.progress.advance(len(results), tokens_per_s=tokens / seconds if seconds else 0)
            if self._cadence.due(len(self._ready), bool(self._ready or self._scores)):
                self._commit()
        else:
            self._commit()

    def _fetch(self) -> None:
        wanted: list[tuple[PairKey, str]] = []
        size = 0
        while self._planned and size < FETCH_CHARS and len(wanted) < PLAN_AHEAD_PAIRS:
            wanted.append(self._planned.popleft())
            size += wanted[-1][0].chars
        with self._context.account.timed("read_texts"), self._context.ledger() as ledger:
            texts = ledger.texts(list({pair.text_hash for pair, _ in wanted}))
        for pair, query in wanted:
            if pair.text_hash in texts:
                self._texts.append(Pair(pair.query_hash, pair.text_hash, query, texts[pair.text_hash]))
            else:
                self._receive(Score(pair.query_hash, pair.text_hash, None, error=TEXT_PRUNED))

    def _start(self) -> EngineProcess[Pair, Score]:
        if self._engine is None:
            context = self._context
            context.progress.phase("loading", None, self._config.model)
            engine: EngineProcess[Pair, Score] = EngineProcess(
                "scorer", self._config, log=context.home.logs / "scorer.log"
            )
            with context.account.timed("load"):
                engine.start()
            context.account.models[f"scorer:{self._model}"] = {"key": engine.key, **engine.about}
            context.progress.phase("scoring", self._pairs_seen or None, "pairs")
            self._engine = engine
        return self._engine

    def _receive(self, score: Score) -> None:
        account = self._context.account
        account.pairs["errors" if score.error else "scored"] += 1
        account.tokens["scored"] += score.tokens
        self._scores.append(score)
        waiting = self._open[score.query_hash]
        waiting.discard(score.text_hash)
        if not waiting:
            del self._open[score.query_hash]
            self._ready += self._groups.pop(score.query_hash)

    # ------------------------------------------------------------------------------------- decide

    def _commit(self) -> None:
        if not (self._ready or self._scores):
            return
        assert self._key is not None
        context = self._context
        ready, self._ready = self._ready, []
        scores, self._scores = self._scores, []
        with context.account.timed("commit_verdicts"), context.ledger() as ledger:
            if scores:
                ledger.write_scores(context.sweep_id, self._key, scores)
            if ready:
                judged = self._decide(ledger, ready)
                ledger.write_verdicts(context.sweep_id, self._key, judged, policy_hash=self._hashes)
                for _, verdicts in judged:
                    self._count(verdicts)
                if not context.options.summaries:
                    self._extracts(ledger, ready)
        self._cadence.mark()

    def _decide(self, ledger: Ledger, groups: Sequence[DueGroup]) -> list[tuple[DueGroup, Sequence[Verdict]]]:
        assert self._key is not None
        candidates = ledger.candidates(groups, self._key)
        judged: list[tuple[DueGroup, Sequence[Verdict]]] = []
        for group in groups:
            policy = self._context.config.policy[group.policy].decide
            learnt = self._learnt[group.policy]
            mine = candidates.get(group.key, [])
            if policy.near_duplicates is not None:
                mine = mark_near_duplicates(ledger, mine, policy)
            learnt.see(mine)
            judged.append((group, decide(mine, policy, learnt.calibration)))
        return judged

    def _count(self, verdicts: Sequence[Verdict]) -> None:
        account = self._context.account
        by = Counter(verdict.decision for verdict in verdicts)
        account.groups["judged"] += 1
        account.items["seen"] += len(verdicts)
        account.items["kept"] += by[Decision.KEEP]
        account.items["dropped"] += by[Decision.DROP]
        account.items["errors"] += by[Decision.ERROR]
        account.items["duplicates"] += sum(verdict.duplicate_of is not None for verdict in verdicts)

    def _extracts(self, ledger: Ledger, groups: Sequence[DueGroup]) -> None:
        from ..summarize import extract

        wanted = [group for group in groups if self._context.config.policy[group.policy].summarize.enabled]
        judged = [replace(group, judged_sweep=self._context.sweep_id) for group in wanted]
        kept = ledger.kept(judged)
        ledger.write_summaries(
            self._context.sweep_id,
            [(g, [extract(g, kept.get(g.key, []), "summaries were not asked for")]) for g in judged],
        )
        self._context.account.groups["extracts"] += len(judged)


def mark_near_duplicates(
    ledger: Ledger, candidates: Sequence[Candidate], policy: DecidePolicy
) -> list[Candidate]:
    assert policy.near_duplicates is not None
    texts = ledger.texts(list({c.text_hash for c in candidates if not c.blank}))
    near = rerank.near_duplicates(texts, policy.near_duplicates)
    return [replace(c, near_duplicate_of=near[c.text_hash]) if c.text_hash in near else c for c in candidates]
