"""Check: score each point of each draft against the items it cites, and commit the checked summaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from .. import rerank
from ..core.errors import ConfigError, EngineError
from ..core.types import DueGroup, KeptItem, Pair, Score, Summary, SummaryStatus
from ..summarize import support
from .context import Context
from .engine_process import EngineProcess
from .write import Draft

PAGE_GROUPS = 256
POLL_S = 0.25

Key = tuple[str, UUID]


def check(context: Context, drafts: Sequence[Draft]) -> None:
    """Check and commit all drafts, a scorer at a time, a page of groups a commit."""
    by_scorer: dict[str | None, list[Draft]] = defaultdict(list)
    for group, summaries in drafts:
        policy = context.config.policy[group.policy]
        unchecked = policy.summarize.min_support is None or not any(s.points for s in summaries)
        scorer = None if unchecked else policy.summarize.check_model or policy.rerank.model
        by_scorer[scorer].append((group, summaries))
    for scorer, theirs in by_scorer.items():
        if scorer is None:
            for start in range(0, len(theirs), PAGE_GROUPS):
                _write(context, theirs[start : start + PAGE_GROUPS])
        else:
            _Checking(context, scorer).run(theirs)


class _Checking:
    def __init__(self, context: Context, model: str) -> None:
        self._context = context
        self._model = model
        self._config = context.config.rerank.models[model]
        self._key = rerank.model_key(self._config)
        self._engine: EngineProcess[Pair, Score] | None = None

    def run(self, drafts: Sequence[Draft]) -> None:
        self._context.progress.phase("checking", len(drafts), "groups")
        try:
            for start in range(0, len(drafts), PAGE_GROUPS):
                page = drafts[start : start + PAGE_GROUPS]
                _write(self._context, self._checked(page))
                self._context.progress.advance(len(page))
        finally:
            if self._engine is not None:
                self._context.account.seconds["check_engine"] += self._engine.busy_seconds
                self._engine.close()

    def _checked(self, drafts: Sequence[Draft]) -> list[Draft]:
        context = self._context
        with context.account.timed("check"):
            with context.ledger() as ledger:
                kept = ledger.kept([group for group, _ in drafts])
            pairs = {
                (pair.query_hash, pair.text_hash): pair
                for group, summaries in drafts
                for summary in summaries
                for pair in support.pairs(summary, kept.get(group.key, []))
            }
            scores = self._score(pairs)
            return [(group, self._apply(group, summaries, kept, scores)) for group, summaries in drafts]

    def _apply(
        self,
        group: DueGroup,
        summaries: Sequence[Summary],
        kept: Mapping[Key, Sequence[KeptItem]],
        scores: Mapping[tuple[UUID, UUID], Score],
    ) -> list[Summary]:
        policy = self._context.config.policy[group.policy].summarize
        return [support.apply(s, kept.get(group.key, []), scores, policy) for s in summaries]

    def _score(self, pairs: Mapping[tuple[UUID, UUID], Pair]) -> dict[tuple[UUID, UUID], Score]:
        context = self._context
        if not pairs:
            return {}
        key = self._key or self._start().key
        with context.ledger() as ledger:
            scores = dict(ledger.scores(key, list(pairs)))
        missing = [pair for at, pair in pairs.items() if at not in scores]
        if not missing:
            return scores
        engine = self._start()
        engine.submit(missing)
        fresh: list[Score] = []
        while engine.outstanding:
            fresh += engine.poll(POLL_S)
        with context.ledger() as ledger:
            ledger.write_scores(context.sweep_id, key, fresh)
        context.account.pairs["checked"] += len(fresh)
        return scores | {(score.query_hash, score.text_hash): score for score in fresh}

    def _start(self) -> EngineProcess[Pair, Score]:
        if self._engine is None:
            engine: EngineProcess[Pair, Score] = EngineProcess(
                "scorer", self._config, log=self._context.home.logs / "scorer.log"
            )
            with self._context.account.timed("load"):
                engine.start()
            self._engine = engine
        return self._engine


def _write(context: Context, drafts: Sequence[Draft]) -> None:
    with context.account.timed("commit_summaries"), context.ledger() as ledger:
        ledger.write_summaries(context.sweep_id, drafts)
    groups = context.account.groups
    for _, summaries in drafts:
        states = {summary.status for summary in summaries}
        if SummaryStatus.ERROR in states:
            groups["errors"] += 1
        elif states == {SummaryStatus.SKIPPED}:
            groups["skipped"] += 1
        else:
            groups["summarised"] += 1
        for summary in summaries:
            context.account.items["points"] += len(summary.points)
            context.account.items["points_unsourced"] += sum(
                "no_source_found" in point.marks for point in summary.points
            )


def check_or_explain(context: Context, drafts: Sequence[Draft]) -> None:
    """`check`, but a scorer that does not start costs the check and not the sweep: the drafts stay due."""
    try:
        check(context, drafts)
    except (EngineError, ConfigError) as error:
        context.account.engine_failed = True
        context.account.problem(error)
        context.progress.note(f"summaries are unchecked and wait: {error.message}")
