"""Verify: judge a sample again, twice, and say per part whether it is the same. Writes nothing to the ledger.

The sample is groups in an order that a seed decides, and of their pairs and prompts as many as asked for.
Each is judged in two runs of one loaded engine, in another order and in other batches: what the runs differ
by is noise, and what was stored is held against it (`compare`).
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from .. import summarize
from ..core.config import Config
from ..core.keys import reference
from ..core.paths import Home
from ..core.types import Candidate, Decision, DueGroup, KeptItem, Pair, Prompt, Reply, Score, Selection
from ..rerank import calibration
from ..rerank.decide import decide
from ..store.ledger import GroupKey, Ledger, Standing
from . import compare
from .engine_process import EngineProcess, identity
from .judge import mark_near_duplicates
from .progress import Progress, Silent
from .verification import Verification

EVERYTHING = Selection()
POLL_S = 0.25
SHOWN = 20
_LOT = 7
"""The second run comes in lots of so many: prime, so that its batches are not those of the first."""

Request = TypeVar("Request", Pair, Prompt)
Result = TypeVar("Result", Score, Reply)


def verify(
    home: Home,
    config: Config,
    *,
    sample: int = 50,
    seed: int = 0,
    summaries: bool = True,
    selection: Selection = EVERYTHING,
    progress: Progress | None = None,
) -> Verification:
    """Judge a sample again and compare.

    Args:
        home: whose ledger.
        config: the models and policies of today: they judge again.
        sample: pairs, and prompts, at most.
        seed: another gives another sample.
        summaries: False leaves the language model out.
        selection: only groups of this part of the ledger.
        progress: told where it stands.

    Raises:
        LedgerMissing, LedgerBusy, StoreError: the ledger cannot be read now.
        EngineError, ConfigError: a model does not start.
    """
    began = time.perf_counter()
    checking = _Verifying(home, config, sample, seed, selection, progress or Silent())
    try:
        checking.judge_again()
        if summaries:
            checking.ask_again()
        else:
            checking.result.why["replies"].append("not asked for")
    finally:
        checking.progress.finish()
    checking.result.seconds = time.perf_counter() - began
    return checking.result


@dataclass(slots=True)
class _Group:
    """A sampled group: its verdicts, its candidates with the scores of then, and the scores of today."""

    group: DueGroup
    standing: list[Standing]
    candidates: list[Candidate]
    runs: tuple[dict[UUID, Score], dict[UUID, Score]] = field(default_factory=lambda: ({}, {}))


class _Verifying:
    def __init__(
        self, home: Home, config: Config, sample: int, seed: int, selection: Selection, progress: Progress
    ) -> None:
        self._home, self._config = home, config
        self._sample, self._seed, self._selection = sample, seed, selection
        self.progress = progress
        self.result = Verification(str(home.root), sample, seed)

    def _ledger(self) -> Ledger:
        patience = self._config.store.busy_timeout.total_seconds()
        return Ledger.open(self._home.ledger, read_only=True, timeout=patience)

    def _picked(self, ledger: Ledger, policies: Iterable[str]) -> list[DueGroup]:
        return ledger.judged_groups(
            policies=list(policies), selection=self._selection, seed=self._seed, limit=self._sample
        )

    # ------------------------------------------------------------------------ scores and decisions

    def judge_again(self) -> None:
        """Score the sample's pairs twice, decide by both, and compare."""
        groups, by_model = self._read()
        self.result.groups = len(groups)
        stored: list[float] = []
        runs: tuple[list[float | None], list[float | None]] = ([], [])
        keys: dict[str, str] = {}
        for model, pairs in by_model.items():
            first, second, keys[model] = self._scored(model, [pair for pair, _ in pairs.values()])
            for at, (_, logit) in pairs.items():
                stored.append(logit)
                runs[0].append(_float32(first[at].logit))
                runs[1].append(_float32(second[at].logit))
            for one in groups:
                if self._config.policy[one.group.policy].rerank.model == model:
                    for own, run in zip(one.runs, (first, second), strict=True):
                        own.update({t: s for (q, t), s in run.items() if q == one.group.query_hash})
        self.result.scores = compare.scores(stored, *runs)
        self._note_keys("scores", [s.model_key for one in groups for s in one.standing], keys.values())
        self.result.decisions = self._decided([one for one in groups if one.runs[0]], keys)

    def _read(self) -> tuple[list[_Group], dict[str, dict[tuple[UUID, UUID], tuple[Pair, float]]]]:
        """The sampled groups; by scorer their pairs whose texts are still there, with the logits of then."""
        with self._ledger() as ledger:
            found = self._picked(ledger, self._config.policy)
            verdicts = ledger.standing(found)
            logits: dict[GroupKey, dict[UUID, float]] = {}
            left = self._sample
            for group in found:
                # Of near duplicates only the representative's logit is its own: it alone has a rank.
                ranked = [one for one in verdicts[group.key] if one.rank is not None][:left]
                logits[group.key] = {one.text_hash: one.logit for one in ranked if one.logit is not None}
                left -= len(logits[group.key])
            groups = [group for group in found if logits[group.key]]
            texts = ledger.texts([text_hash for of_group in logits.values() for text_hash in of_group])
            read = [
                _Group(group, verdicts[group.key], candidates)
                for group, candidates in self._candidates(ledger, groups, verdicts)
            ]
        wanted: dict[str, dict[tuple[UUID, UUID], tuple[Pair, float]]] = defaultdict(dict)
        for group in groups:
            wanted[self._config.policy[group.policy].rerank.model] |= {
                (group.query_hash, at): (Pair(group.query_hash, at, group.query, texts[at]), logit)
                for at, logit in logits[group.key].items()
                if at in texts
            }
        return read, {model: pairs for model, pairs in wanted.items() if pairs}

    def _candidates(
        self, ledger: Ledger, groups: Sequence[DueGroup], verdicts: Mapping[GroupKey, Sequence[Standing]]
    ) -> Iterable[tuple[DueGroup, list[Candidate]]]:
        by_key: dict[str, list[DueGroup]] = defaultdict(list)
        for group in groups:
            by_key[verdicts[group.key][0].model_key].append(group)
        for key, theirs in by_key.items():
            found = ledger.candidates(theirs, key)
            for group in theirs:
                policy, mine = self._config.policy[group.policy].decide, found[group.key]
                near = policy.near_duplicates is not None
                yield group, mark_near_duplicates(ledger, mine, policy) if near else mine

    def _scored(
        self, model: str, pairs: Sequence[Pair]
    ) -> tuple[dict[tuple[UUID, UUID], Score], dict[tuple[UUID, UUID], Score], str]:
        config = self._config.rerank.models[model]
        engine: EngineProcess[Pair, Score] = EngineProcess(
            "scorer", config, log=self._home.logs / "verify.log"
        )
        self.progress.phase("loading", None, config.model)
        with engine:
            self.progress.phase("scoring again", 2 * len(pairs), "pairs")
            first, second = self._twice(engine, pairs)
            return first, second, engine.key

    def _decided(self, groups: Sequence[_Group], keys: Mapping[str, str]) -> compare.Decisions:
        items = differ = decisions_differ = noise = by_policy = 0
        for one in groups:
            name = one.group.policy
            key = keys[self._config.policy[name].rerank.model]
            then = self._decide(one, one.candidates, one.standing[0].model_key)
            first, second = (self._decide(one, _with(one.candidates, run), key) for run in one.runs)
            for verdict in one.standing:
                was = (verdict.decision, verdict.rank)
                items += 1
                by_policy += then.get(verdict.seq) != was
                noise += first.get(verdict.seq) != second.get(verdict.seq)
                if (now := first.get(verdict.seq)) == was:
                    continue
                differ += 1
                decisions_differ += now is None or now[0] != was[0]
                if len(self.result.changed) < SHOWN:
                    self.result.changed.append(_changed(one.group, verdict, was, now))
        if by_policy:
            self.result.why["decisions"].append(
                f"{by_policy} items are decided otherwise with the scores of then: "
                "the policy or its calibration was edited since"
            )
        return compare.Decisions(items, differ, decisions_differ, noise, by_policy)

    def _decide(
        self, one: _Group, candidates: Sequence[Candidate], key: str
    ) -> dict[int, tuple[Decision, int | None]]:
        name = one.group.policy
        learnt = calibration.load(self._home.calibrations, name, key)
        verdicts = decide(candidates, self._config.policy[name].decide, learnt)
        return {verdict.seq: (verdict.decision, verdict.rank) for verdict in verdicts}

    # ------------------------------------------------------------------------------------- replies

    def ask_again(self) -> None:
        """Make the prompts of the sample's summaries again, ask each twice, and compare."""
        by_model: dict[str, list[str]] = defaultdict(list)
        for name, policy in self._config.policy.items():
            if policy.summarize.enabled:
                by_model[policy.summarize.model].append(name)
        stored: list[str] = []
        runs: tuple[list[str | None], list[str | None]] = ([], [])
        keys: list[str] = []
        stored_keys: list[str] = []
        unknown = 0
        for model, policies in by_model.items():
            asked, lost = self._asked(model, policies)
            unknown += lost
            if not asked:
                continue
            first, second, key = self._replied(model, [prompt for prompt, _, _ in asked])
            keys.append(key)
            for prompt, text, old_key in asked:
                stored.append(text)
                stored_keys.append(old_key)
                for run, found in zip(runs, (first, second), strict=True):
                    run.append(None if found[prompt.id].error else found[prompt.id].text)
        self.result.replies = compare.replies(stored, *runs, unknown=unknown)
        self._note_keys("replies", stored_keys, keys)
        if unknown:
            self.result.why["replies"].append(
                f"{unknown} groups were asked otherwise: the policy, its templates, the model's tokenizer or "
                "this program's own wording is another since, or their replies were erased"
            )
        if not stored and not unknown:
            self.result.why["replies"].append("no model wrote a summary of these groups")

    def _asked(self, model: str, policies: Sequence[str]) -> tuple[list[tuple[Prompt, str, str]], int]:
        """((prompt, stored reply, its key) ..., groups whose first prompt nobody ever answered)."""
        config = self._config.summarize.models[model]
        key = summarize.model_key(config)
        asked: list[tuple[Prompt, str, str]] = []
        unknown = 0
        with self._ledger() as ledger:
            picked = self._picked(ledger, policies)
            written = ledger.summarised(picked)
            groups = [group for group in picked if group.group_id in written]
            if not groups:
                return [], 0
            kept = ledger.kept(groups)
            for group in groups:
                if len(asked) >= self._sample:
                    break
                mine = self._walk(ledger, group, kept[group.key], config, key)
                unknown += not mine
                asked += mine
        return asked[: self._sample], unknown

    def _walk(
        self, ledger: Ledger, group: DueGroup, kept: Sequence[KeptItem], config: Any, key: str
    ) -> list[tuple[Prompt, str, str]]:
        """A group's prompts, level after level, as far as stored replies lead."""
        policy = self._config.policy[group.policy].summarize
        job = summarize.GroupJob(
            group,
            kept,
            policy,
            summarize.token_counter(config),
            summarize.context_length(config),
            summarize.passages_at_once(config),
        )
        found: list[tuple[Prompt, str, str]] = []
        todo = job.start()
        while todo:
            hashes = {prompt.id: summarize.prompt_hash(prompt) for prompt in todo}
            known = ledger.replied(key, list(hashes.values()))
            following: list[Prompt] = []
            for prompt in todo:
                if (reply := known.get(hashes[prompt.id])) is not None:
                    found.append((prompt, *reply))
                    following += job.feed(Reply(id=prompt.id, text=reply[0]))
            todo = following
        return found

    def _replied(
        self, model: str, prompts: Sequence[Prompt]
    ) -> tuple[dict[str, Reply], dict[str, Reply], str]:
        config = self._config.summarize.models[model]
        engine: EngineProcess[Prompt, Reply] = EngineProcess(
            "summarizer", config, log=self._home.logs / "verify.log", extra={"prompts": 2 * len(prompts)}
        )
        self.progress.phase("loading", None, config.model)
        with engine:
            self.progress.phase("asking again", 2 * len(prompts), "prompts")
            first, second = self._twice(engine, prompts)
            return first, second, engine.key

    # ---------------------------------------------------------------------------------------- both

    def _twice(
        self, engine: EngineProcess[Request, Result], requests: Sequence[Request]
    ) -> tuple[dict[Any, Result], dict[Any, Result]]:
        backwards = list(reversed(requests))
        lots = [backwards[at : at + _LOT] for at in range(0, len(backwards), _LOT)]
        return self._all(engine, [list(requests)]), self._all(engine, lots)

    def _all(
        self, engine: EngineProcess[Request, Result], lots: Sequence[list[Request]]
    ) -> dict[Any, Result]:
        found: dict[Any, Result] = {}
        for lot in lots:
            engine.submit(lot)
            while engine.outstanding:
                results = engine.poll(POLL_S)
                found |= {identity(result): result for result in results}
                self.progress.advance(len(results))
        return found

    def _note_keys(self, part: str, stored: Iterable[str], now: Iterable[str]) -> None:
        counts: dict[str, int] = defaultdict(int)
        for key in stored:
            counts[key] += 1
        keys = list(dict.fromkeys(now))
        self.result.keys[part] = {"stored": dict(counts), "now": keys}
        if others := [key for key in counts if keys and key not in keys]:
            self.result.why[part].append(f"stored under another model: {', '.join(others[:3])}")


def _with(candidates: Sequence[Candidate], run: Mapping[UUID, Score]) -> list[Candidate]:
    """Candidates with the scores of a run; those outside the sample keep what they had."""
    return [
        replace(one, logit=_float32(run[one.text_hash].logit), error=run[one.text_hash].error)
        if one.text_hash in run and not one.blank
        else one
        for one in candidates
    ]


def _changed(
    group: DueGroup,
    verdict: Standing,
    was: tuple[Decision, int | None],
    now: tuple[Decision, int | None] | None,
) -> dict[str, Any]:
    return {
        "group": reference("g", group.group_id),
        "item": reference("i", verdict.item_id),
        "was": {"decision": was[0], "rank": was[1]},
        "is": None if now is None else {"decision": now[0], "rank": now[1]},
    }


def _float32(value: float | None) -> float | None:
    """As the ledger stores it."""
    return None if value is None else float(ctypes.c_float(value).value)
