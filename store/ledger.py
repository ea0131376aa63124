"""The ledger: items, scores, verdicts, summaries and sweeps in one DuckDB file.

    with Ledger.open(home.ledger) as ledger:
        for row in ledger.verdicts(run="night-1", keep=True):
            print(row.rank, row.text)

Open it for a moment and close it again: while one process has it open for writing, no other can even read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from ..core.types import Candidate, DueGroup, KeptItem, Reply, Score, Selection, Summary, Verdict
from . import explain as explaining
from . import ledger_commit, ledger_plan, ledger_read, ledger_reopen, ledger_verify
from . import status as counting
from .ledger_commit import Commit
from .ledger_file import LedgerFile
from .ledger_read import Found
from .ledger_values import GroupKey, PairKey, Reopen, ScoringWork
from .ledger_verify import Standing
from .results import Result, SummaryRow, SweepRow, VerdictRow

__all__ = ["Found", "GroupKey", "Ledger", "PairKey", "Reopen", "ScoringWork", "Standing"]

EVERYTHING = Selection()


class Ledger:
    """An open ledger; a context manager. Made by `Ledger.open`."""

    def __init__(self, file: LedgerFile, *, after_writing: Callable[[], object] | None = None) -> None:
        self._file = file
        self._after_writing = after_writing
        self._wrote = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False, timeout: float = 30.0) -> Ledger:
        """Open the ledger at `path`; create or upgrade it unless `read_only`.

        Args:
            path: the DuckDB file.
            read_only: several processes may read at once, while none writes.
            timeout: seconds to wait for whoever holds it.

        Raises:
            LedgerBusy: held by another process for longer than `timeout`; names its PID.
            LedgerMissing: not there, and `read_only`.
            LedgerNewer: written by a newer version.
            NotALedger: another file.
            StoreError: cannot be used as it is; says why.
        """
        return cls(LedgerFile(path, read_only=read_only, timeout=timeout))

    def close(self) -> None:
        """Let others have it. Safe to call twice."""
        try:
            if self._wrote and self._after_writing is not None:
                self._wrote = False
                self._after_writing()
        finally:
            self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def apply(self, commit: Commit) -> int:
        """Write one commit, in one transaction."""
        self._wrote = True
        return self._file.transact(lambda: ledger_commit.apply(self._file, commit))

    # --------------------------------------------------------------------------- a sweep's reading

    def due_groups(
        self,
        *,
        policies: Sequence[str],
        now: datetime,
        settle: timedelta | None,
        selection: Selection = EVERYTHING,
        sweep_id: UUID,
        limit: int = 1000,
        without: Sequence[GroupKey] = (),
    ) -> list[DueGroup]:
        """Groups to judge: with a query, new items, settled, and not judged by this sweep yet.

        Highest priority first, then the earliest deadline, then the longest wait.

        Args:
            policies: only groups of these.
            settle: how long a group must have been quiet, unless closed; None does not wait.
            without: groups to leave out (a page that is at work already).
        """
        return ledger_plan.due_groups(
            self._file, policies=policies, now=now, settle=settle, selection=selection, sweep_id=sweep_id,
            limit=limit, without=without,
        )  # fmt: skip

    def due_summaries(
        self,
        *,
        policies: Sequence[str],
        selection: Selection = EVERYTHING,
        sweep_id: UUID,
        limit: int = 1000,
        without: Sequence[GroupKey] = (),
    ) -> list[DueGroup]:
        """Judged groups without a finished summary of that judgement, not attempted by this sweep yet."""
        return ledger_plan.due_summaries(
            self._file,
            policies=policies,
            selection=selection,
            sweep_id=sweep_id,
            limit=limit,
            without=without,
        )

    def count_due_summaries(
        self, *, policies: Sequence[str], selection: Selection = EVERYTHING, sweep_id: UUID
    ) -> int:
        """How many groups `due_summaries` would give without a limit."""
        return ledger_plan.count_due_summaries(
            self._file, policies=policies, selection=selection, sweep_id=sweep_id
        )

    def waiting(
        self,
        *,
        policies: Sequence[str],
        now: datetime,
        settle: timedelta | None,
        selection: Selection = EVERYTHING,
    ) -> dict[str, int]:
        """How many groups are not due, by reason: unsettled, no_query, unknown_policy, nothing_new."""
        return ledger_plan.waiting(self._file, policies=policies, now=now, settle=settle, selection=selection)

    def pairs_to_score(self, groups: Sequence[DueGroup], model_key: str) -> ScoringWork:
        """The unique (query, text) pairs of these groups that have no score under this key yet.

        An error never counts as a score; in a group reopened to be rejudged only newer scores count.
        """
        return ledger_plan.pairs_to_score(self._file, groups, model_key)

    def texts(self, hashes: Sequence[UUID]) -> dict[UUID, str]:
        """Texts by hash. One pass over all hashes of the ledger: ask for many at once."""
        return ledger_plan.texts(self._file, hashes)

    def scores(
        self, model_key: str, pairs: Sequence[tuple[UUID, UUID]], *, errors: bool = False
    ) -> dict[tuple[UUID, UUID], Score]:
        """The newest score of each (query_hash, text_hash); failed ones only with `errors`."""
        return ledger_plan.scores(self._file, model_key, pairs, errors=errors)

    def candidates(self, groups: Sequence[DueGroup], model_key: str) -> dict[GroupKey, list[Candidate]]:
        """Each group's items up to its `last_seq`, with their scores, in order of arrival."""
        return ledger_plan.candidates(self._file, groups, model_key)

    def kept(self, groups: Sequence[DueGroup]) -> dict[GroupKey, list[KeptItem]]:
        """What the current verdicts keep of each group, without duplicates, best first."""
        return ledger_plan.kept(self._file, groups)

    def replies(self, model_key: str, prompt_hashes: Sequence[UUID]) -> dict[UUID, Reply]:
        """Finished replies to these prompts, said before."""
        return ledger_plan.replies(self._file, model_key, prompt_hashes)

    # -------------------------------------------------------------------------- verify's reading

    def judged_groups(
        self, *, policies: Sequence[str], selection: Selection = EVERYTHING, seed: int = 0, limit: int
    ) -> list[DueGroup]:
        """A sample of judged groups, in an order that `seed` decides; `last_seq` is what was judged."""
        return ledger_verify.groups(
            self._file, policies=policies, selection=selection, seed=seed, limit=limit
        )

    def standing(self, groups: Sequence[DueGroup]) -> dict[GroupKey, list[Standing]]:
        """The current verdicts of these groups, in order of arrival."""
        return ledger_verify.standing(self._file, groups)

    def summarised(self, groups: Sequence[DueGroup]) -> set[UUID]:
        """Ids of those groups whose summary a model wrote from their current verdicts."""
        return ledger_verify.summarised(self._file, groups)

    def replied(self, model_key: str, prompt_hashes: Sequence[UUID]) -> dict[UUID, tuple[str, str]]:
        """(text, judgement key) by prompt; another model's reply only where this one's is absent."""
        return ledger_verify.replies(self._file, model_key, prompt_hashes)

    # --------------------------------------------------------------------------- a sweep's writing

    def start_sweep(self, sweep_id: UUID, *, config: Mapping[str, Any], started: datetime) -> None:
        """Note that a sweep began; earlier ones that never ended are marked "killed"."""
        self.apply(ledger_commit.start_sweep(sweep_id, config, started))

    def end_sweep(self, sweep_id: UUID, *, outcome: str, account: Mapping[str, Any], ended: datetime) -> None:
        """Note how a sweep ended."""
        self.apply(ledger_commit.end_sweep(sweep_id, outcome, account, ended))

    def write_scores(self, sweep_id: UUID, model_key: str, scores: Sequence[Score]) -> None:
        """Append scores. A logit that is not finite is stored as an error."""
        if scores:
            self.apply(ledger_commit.scores(sweep_id, model_key, scores))

    def write_verdicts(
        self,
        sweep_id: UUID,
        model_key: str,
        judged: Sequence[tuple[DueGroup, Sequence[Verdict]]],
        *,
        policy_hash: Mapping[str, UUID],
    ) -> int:
        """Append verdicts and mark their groups judged, together.

        Returns:
            How many groups were written: those that this sweep had judged before are left as they are.
        """
        return self.apply(ledger_commit.verdicts(sweep_id, model_key, judged, policy_hash)) if judged else 0

    def write_replies(
        self, sweep_id: UUID, model_key: str, replies: Sequence[tuple[UUID, int, Reply]]
    ) -> None:
        """Append replies: (prompt_hash, level, reply)."""
        if replies:
            self.apply(ledger_commit.replies(sweep_id, model_key, replies))

    def write_summaries(self, sweep_id: UUID, done: Sequence[tuple[DueGroup, Sequence[Summary]]]) -> None:
        """Append summaries and mark their groups summarised; a group with an extract stays due.

        Args:
            done: groups as `due_summaries` gives them: their `judged_sweep` says which verdicts the
                summary was made from.
        """
        if done:
            self.apply(ledger_commit.summaries(sweep_id, done))

    def reopen(self, selection: Selection, how: Reopen) -> int:
        """Make judged groups due again; what they had stays readable until the new is written.

        Args:
            how: "rejudge" scores and decides anew, "redecide" only decides, "retry_errors" does over
                what ended in an error.

        Returns:
            How many groups were reopened.
        """
        return ledger_reopen.reopen(self._file, selection, how)

    # -------------------------------------------------------------------------- the readers' side

    def verdicts(
        self,
        *,
        group: str | Sequence[str] | None = None,
        run: str | None = None,
        keep: bool | None = None,
        namespace: str | None = None,
        item: str | None = None,
        text: bool = True,
        limit: int | None = None,
    ) -> Result[VerdictRow]:
        """Current verdicts, group after group, best first.

        Args:
            group: a group's name or reference `g_...`, or several.
            run: items of this run only.
            keep: True only what is kept, False only what is not.
            item: a reference `i_...`.
            text: whether rows carry their texts; excerpts come anyway.

        Raises:
            UnknownReference: no group or item goes by that name.
        """
        return ledger_read.verdicts(
            self._file,
            group=group,
            run=run,
            keep=keep,
            namespace=namespace,
            item=item,
            text=text,
            limit=limit,
        )

    def summaries(
        self,
        *,
        group: str | None = None,
        run: str | None = None,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Result[SummaryRow]:
        """Current summaries and extracts; `stale` where the verdicts are newer.

        Args:
            run: of groups with an item of this run.
            status: "done", "skipped", "error" or "extract".

        Raises:
            UnknownReference: no group or run goes by that name.
        """
        return ledger_read.summaries(
            self._file, group=group, run=run, namespace=namespace, status=status, limit=limit
        )

    def history(self, limit: int = 20) -> list[SweepRow]:
        """Sweeps, newest first."""
        return ledger_read.history(self._file, limit)

    def sweep(self, ref: str) -> SweepRow:
        """A sweep by its reference `s_...`, or "last".

        Raises:
            UnknownReference: no sweep goes by it.
        """
        return ledger_read.sweep(self._file, ref)

    def diff(self, a: str, b: str) -> Mapping[str, Any]:
        """What changed between two sweeps: verdicts as they stood after each, and configuration keys."""
        return ledger_read.diff(self._file, a, b)

    def find(self, ref: str) -> Found:
        """What goes by a reference (`i_...`, `g_...`, `s_...`, a whole id) or a group's name.

        Raises:
            UnknownReference: nothing does, or several things do.
        """
        return ledger_read.find(self._file, ref)

    def explain(self, ref: str) -> Mapping[str, Any]:
        """The whole story of an item or a group, as JSON values.

        An item's: origin, text, group and query, state, current verdict, earlier verdicts, every score with
        its excerpt, items of the same text, and what the summary made of it. A group's: sources, state,
        each judgement, each summary.

        Raises:
            UnknownReference: nothing goes by that reference.
        """
        return explaining.explain(self._file, ref)

    def status(self, now: datetime, *, settle: timedelta = timedelta(seconds=60)) -> Mapping[str, Any]:
        """How the ledger stands, as JSON values: items, groups, what is due since when, sweeps, size."""
        return counting.status(self._file, now, settle)
