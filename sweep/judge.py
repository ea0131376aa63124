"""Score and decide: from due groups to committed verdicts, the scorer kept full all the while.

The scorer works in its own process through a queue; reading the plan, fetching texts, deciding and
committing happen here meanwhile. Scores commit as they come, a group's verdicts when its last score is in.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from .. import rerank
from ..core.config import DecidePolicy, ScorerConfig
from ..core.types import Candidate, Decision, DueGroup, Pair, Score, Verdict
from ..rerank.decide import decide
from ..store.ledger import Ledger, PairKey
from .context import Cadence, Context, now, policy_hash
from .engine_process import EngineProcess

PAGE_GROUPS = 1000
TEXT_BYTES = 16 * 2**20
POLL_S = 0.25


class Judging:
    """One pass over all due groups whose policies share a scorer."""

    def __init__(self, context: Context, model: str) -> None:
        self._context = context
        self._model = model
        self._config: ScorerConfig = context.config.rerank.models[model]
        self._policies = [n for n, p in context.config.policy.items() if p.rerank.model == model]
        self._hashes = {name: policy_hash(context.config.policy[name]) for name in self._policies}
        self._key = rerank.model_key(self._config)
        self._engine: EngineProcess[Pair, Score] | None = None
        self._pairs: deque[tuple[PairKey, str]] = deque()
        self._texts: dict[UUID, str] = {}
        self._open: dict[UUID, set[UUID]] = {}
        self._groups: dict[UUID, list[DueGroup]] = defaultdict(list)
        self._ready: list[DueGroup] = []
        self._scores: list[Score] = []
        self._cadence = Cadence()

    def run(self) -> None:
        """Judge until nothing is due, or until told to stop; what is in flight then is still committed."""
        account = self._context.account
        try:
            while self._next_page():
                self._work()
                if self._context.stopping:
                    break
        finally:
            try:
                self._commit()
            finally:
                if self._engine is not None:
                    account.seconds["score_engine"] += self._engine.busy_seconds
                    self._engine.close()

    # --------------------------------------------------------------------------------------- plan

    def _next_page(self) -> bool:
        context = self._context
        if context.stopping:
            return False
        with context.account.timed("plan"), context.ledger() as ledger:
            groups = self._due(ledger)
            if not groups:
                return False
            if self._key is not None:
                self._take(ledger, groups)
        if self._key is None:  # only the loaded model can say which backend it chose
            self._key = self._start().key
            with context.account.timed("plan"), context.ledger() as ledger:
                self._take(ledger, groups)
        return True

    def _due(self, ledger: Ledger) -> list[DueGroup]:
        return ledger.due_groups(
            policies=self._policies,
            now=now(),
            settle=self._context.settle,
            selection=self._context.options.selection,
            sweep_id=self._context.sweep_id,
            limit=PAGE_GROUPS,
        )

    def _take(self, ledger: Ledger, groups: Sequence[DueGroup]) -> None:
        assert self._key is not None
        work = ledger.pairs_to_score(groups, self._key)
        self._context.account.items["cached"] += work.cached
        self._groups.clear()
        queries = {}
        for group in groups:
            self._groups[group.query_hash].append(group)
            queries[group.query_hash] = group.query
        self._open = defaultdict(set)
        for pair in work.pairs:
            self._open[pair.query_hash].add(pair.text_hash)
        order = {query: place for place, query in enumerate(self._groups)}
        # By group, in the plan's order: groups finish one after another instead of all at the end.
        self._pairs.extend(
            (pair, queries[pair.query_hash])
            for pair in sorted(work.pairs, key=lambda pair: (order[pair.query_hash], pair.chars))
        )
        self._context.progress.phase("scoring", len(work.pairs), "pairs")
        for query_hash in self._groups:
            if query_hash not in self._open:
                self._ready += self._groups[query_hash]

    # -------------------------------------------------------------------------------------- score

    def _work(self) -> None:
        """Score the page's pairs and decide its groups."""
        while self._pairs or (self._engine is not None and self._engine.outstanding):
            if self._context.stopping:
                self._pairs.clear()
            self._feed()
            engine = self._start()
            with self._context.account.timed("score"):
                results = engine.poll(POLL_S)
            for score in results:
                self._receive(score)
            if results:
                done, seconds = self._context.account.tokens["scored"], engine.busy_seconds
                self._context.progress.advance(len(results), tokens_per_s=done / seconds if seconds else 0.0)
            if self._cadence.due(len(self._ready), bool(self._ready or self._scores)):
                self._commit()
        self._commit()

    def _feed(self) -> None:
        engine = self._start() if self._pairs else self._engine
        if engine is None or not self._pairs or engine.room == 0:
            return
        wanted: list[tuple[PairKey, str]] = []
        size = 0
        while self._pairs and len(wanted) < engine.room and size < TEXT_BYTES:
            wanted.append(self._pairs.popleft())
            size += wanted[-1][0].chars
        with self._context.account.timed("read_texts"), self._context.ledger() as ledger:
            texts = ledger.texts(list({pair.text_hash for pair, _ in wanted}))
        engine.submit(
            Pair(pair.query_hash, pair.text_hash, query, texts[pair.text_hash]) for pair, query in wanted
        )

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
            self._engine = engine
        return self._engine

    def _receive(self, score: Score) -> None:
        account = self._context.account
        account.pairs["errors" if score.error else "scored"] += 1
        account.tokens["scored"] += score.tokens
        self._scores.append(score)
        open_texts = self._open[score.query_hash]
        open_texts.discard(score.text_hash)
        if not open_texts:
            self._ready += self._groups[score.query_hash]

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
            mine = candidates.get(group.key, [])
            if policy.near_duplicates is not None:
                mine = _mark_near_duplicates(ledger, mine, policy)
            judged.append((group, decide(mine, policy)))
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


def _mark_near_duplicates(
    ledger: Ledger, candidates: Sequence[Candidate], policy: DecidePolicy
) -> list[Candidate]:
    assert policy.near_duplicates is not None
    texts = ledger.texts(list({c.text_hash for c in candidates if not c.blank}))
    near = rerank.near_duplicates(texts, policy.near_duplicates)
    return [replace(c, near_duplicate_of=near[c.text_hash]) if c.text_hash in near else c for c in candidates]
