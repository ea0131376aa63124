"""One sweep: ingest, judge, summarise, check, and an account of it all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from ..core.config import Config
from ..core.errors import AfterpassError, EngineError
from ..core.paths import Home
from ..store.ledger import Ledger
from .account import Account
from .context import Context, now
from .lock import sweep_lock
from .options import DEFAULT, SweepOptions
from .progress import Progress, Silent
from .schedule import Schedule


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
    with sweep_lock(home.lock):
        try:
            _run(context)
        except KeyboardInterrupt:
            context.account.outcome = "interrupted"
            _close_if_open(context)
        except AfterpassError as error:
            context.account.outcome = "errors"
            context.account.problem(error)
            _close_if_open(context)
            raise
        finally:
            context.progress.finish()
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
        report = context.door.ingest()
        account.ingest.update(
            segments=report.segments,
            rows=report.rows,
            known=report.known,
            quarantined=report.quarantined,
            overflowed=report.overflowed,
            refused=report.refused,
        )
    with account.timed("plan"), context.ledger() as ledger:
        ledger.start_sweep(context.sweep_id, config=context.config.model_dump(mode="json"), started=moment)
        account.is_started = True
        if options.reopen is not None:
            ledger.reopen(options.selection, options.reopen)
        to_judge, to_write = _due(context, ledger)
        if not (to_judge or to_write) or context.stopping:
            # Nothing to do is the commonest of all: one opening, no model's code imported.
            _close_books(context, ledger)
            return
    _work(context, to_judge, to_write)
    with context.ledger() as ledger:
        _close_books(context, ledger)


def _due(context: Context, ledger: Ledger) -> tuple[bool, bool]:
    """Whether anything at all waits to be judged, or for a summary."""
    policies, selection = context.config.policy, context.options.selection
    to_judge = ledger.due_groups(
        policies=list(policies),
        now=now(),
        settle=context.settle,
        selection=selection,
        sweep_id=context.sweep_id,
        limit=1,
    )
    to_write = context.options.summaries and ledger.due_summaries(
        policies=[name for name, policy in policies.items() if policy.summarize.enabled],
        selection=selection,
        sweep_id=context.sweep_id,
        limit=1,
    )
    return bool(to_judge), bool(to_write)


def _work(context: Context, to_judge: bool, to_write: bool) -> None:
    policies, options = context.config.policy.values(), context.options
    if to_judge:
        for model in _models(policy.rerank.model for policy in policies):
            _judge(context, model)
    if options.summaries and (to_judge or to_write):
        from .check import check_or_explain
        from .write import Draft, write

        drafts: list[Draft] = []
        for model in _models(p.summarize.model for p in policies if p.summarize.enabled):
            if not context.stopping:
                write(context, model, drafts.extend)
        check_or_explain(context, drafts)


def _judge(context: Context, model: str) -> None:
    from .judge import Judging

    try:
        Judging(context, model).run()
    except EngineError as error:
        context.account.engine_failed = True
        context.account.problem(error)
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


def _close_if_open(context: Context) -> None:
    """Leave the sweep's end in the ledger; where even that cannot be had, the next sweep marks it killed."""
    if context.account.is_started:
        with suppress(AfterpassError), context.ledger() as ledger:
            _close_books(context, ledger)


def _close_books(context: Context, ledger: Ledger) -> None:
    account = context.account
    account.waiting = ledger.waiting(
        policies=list(context.config.policy),
        now=now(),
        settle=context.settle,
        selection=context.options.selection,
    )
    account.seconds["total"] = time.perf_counter() - context.began
    account.settle()
    ledger.end_sweep(context.sweep_id, outcome=account.outcome, account=account.as_json(), ended=now())


def _models(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
