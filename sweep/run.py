"""One sweep: ingest, judge, summarise, check, and an account of it all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import datetime

from ..core.config import Config
from ..core.errors import EngineError
from ..core.paths import Home
from ..store.ingest import ingest
from .account import Account
from .check import check_or_explain
from .context import Context, now
from .judge import Judging
from .lock import sweep_lock
from .options import DEFAULT, SweepOptions
from .progress import Progress, Silent
from .schedule import Schedule
from .write import Draft, write


def sweep(
    home: Home,
    config: Config,
    options: SweepOptions = DEFAULT,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Account:
    """Judge and summarise what is due, and commit it as it finishes.

    Args:
        home: whose spool and ledger.
        config: models, policies, schedule.
        options: how this sweep differs.
        progress: told where it stands.
        stop: set it, from a signal handler or another thread, to end in good order: what is in flight is
            finished and committed, the rest stays due.

    Returns:
        The account; `exit_code` and `as_json()` are its summary for machines.

    Raises:
        SweepRunning: another sweep works in this home.
        LedgerBusy: another process kept the ledger for longer than `store.busy_timeout`.
        ConfigError, StoreError: as their names say. What was committed before stays.
    """
    context = Context(home, config, options, progress or Silent(), stop or threading.Event())
    began = time.perf_counter()
    with sweep_lock(home.lock):
        try:
            _run(context)
        except KeyboardInterrupt:
            context.account.outcome = "interrupted"
        finally:
            context.progress.finish()
            context.account.seconds["total"] = time.perf_counter() - began
        if context.account.outcome == "running":
            context.account.settle()
        _close_books(context)
    return context.account


def _run(context: Context) -> None:
    account, options = context.account, context.options
    moment = now()
    schedule = Schedule.of(context.config.schedule)
    if options.waits and not schedule.is_open(moment):
        account.stopped_because = "no window is open"
    _set_deadline(context, schedule, moment)
    with account.timed("ingest"):
        context.progress.phase("ingesting", None, "segments")
        report = ingest(
            context.home, context.config.store, timeout=context.config.store.busy_timeout.total_seconds()
        )
        account.ingest.update(
            segments=report.segments,
            rows=report.rows,
            known=report.known,
            quarantined=report.quarantined,
            overflowed=report.overflowed,
            refused=report.refused,
        )
    with context.ledger() as ledger:
        ledger.start_sweep(context.sweep_id, config=context.config.model_dump(mode="json"), started=moment)
        if options.reopen is not None:
            ledger.reopen(options.selection, options.reopen)
    for model in _models(policy.rerank.model for policy in context.config.policy.values()):
        _judge(context, model)
    drafts: list[Draft] = []
    if options.summaries and not context.stopping:
        for model in _models(
            p.summarize.model for p in context.config.policy.values() if p.summarize.enabled
        ):
            write(context, model, drafts.extend)
    check_or_explain(context, drafts)
    with context.ledger() as ledger:
        account.waiting = ledger.waiting(
            policies=list(context.config.policy),
            now=now(),
            settle=context.settle,
            selection=options.selection,
        )


def _judge(context: Context, model: str) -> None:
    try:
        Judging(context, model).run()
    except EngineError as error:
        context.account.engine_failed = True
        context.account.problems.append(f"{error.message}; {error.hint}" if error.hint else error.message)
        context.progress.note(f"no verdicts from {model}: {error.message}")


def _set_deadline(context: Context, schedule: Schedule, moment: datetime) -> None:
    limits = [
        (limit.total_seconds(), "max_runtime")
        for limit in (context.options.max_runtime, context.config.schedule.max_runtime)
        if limit is not None
    ]
    if context.options.waits and (end := schedule.closes(moment)) is not None:
        limits.append(((end - moment).total_seconds(), "the window closed"))
    if limits:
        seconds, context.deadline_reason = min(limits)
        context.deadline = time.monotonic() + seconds


def _close_books(context: Context) -> None:
    with context.ledger() as ledger:
        ledger.end_sweep(
            context.sweep_id,
            outcome=context.account.outcome,
            account=context.account.as_json(),
            ended=now(),
        )


def _models(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
