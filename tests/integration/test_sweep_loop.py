"""The whole loop on real files and real processes, with the two engines that need no model."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from afterpass.core import config as configuration
from afterpass.core.config import Config
from afterpass.core.errors import SweepRunning
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
from afterpass.store.ledger import Ledger
from afterpass.sweep import SweepOptions, plan, sweep
from afterpass.sweep.lock import sweep_lock

NOW = SweepOptions(now=True)


def small(**policy: object) -> Config:
    return configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": "lexical"}}},
            "summarize": {"models": {"embedded": {"model": "extractive"}}},
            "policy": {"default": policy},
        }
    )


def record(home: Home, groups: int = 3, items: int = 12, first: int = 0) -> None:
    recorder = Recorder(home)
    for group in range(groups):
        for item in range(first, first + items):
            recorder.record(
                f"Note {item} about topic {group}: the river number {item} flows to the sea. Rain fell.",
                query=f"Where does river number {group} flow?",
                group=f"rivers {group}",
                run="night",
            )
    recorder.shutdown()


def test_every_item_gets_one_verdict_and_every_group_a_summary(home: Home) -> None:
    record(home)
    account = sweep(home, small(), NOW)
    assert account.outcome == "done"
    assert account.exit_code == 0
    assert account.items["seen"] == 36 == account.items["kept"] + account.items["dropped"]
    assert account.items["kept"] == 15
    assert account.groups["judged"] == account.groups["summarised"] == 3
    with Ledger.open(home.ledger) as ledger:
        verdicts = ledger.verdicts().to_list()
        summaries = ledger.summaries().to_list()
    assert len(verdicts) == 36
    assert len({row.item_id for row in verdicts}) == 36
    assert len(summaries) == 3
    assert all(row.text for row in summaries)
    assert {row.model_key for row in summaries} == {"extractive:1"}


def test_a_second_sweep_finds_nothing_and_loads_nothing(home: Home) -> None:
    record(home)
    sweep(home, small(), NOW)
    again = sweep(home, small(), NOW)
    assert again.outcome == "nothing_due"
    assert again.models == {}
    assert again.waiting["nothing_new"] == 3


def test_late_items_reopen_their_group_and_cached_scores_are_not_computed_again(home: Home) -> None:
    record(home, groups=2)
    sweep(home, small(), NOW)
    record(home, groups=1, items=3, first=100)
    account = sweep(home, small(), NOW)
    assert account.groups["judged"] == 1
    assert account.items["seen"] == 15
    assert account.items["cached"] == 12
    assert account.pairs["scored"] == 3


def test_without_now_groups_settle_first(home: Home) -> None:
    record(home, groups=1)
    account = sweep(home, small())
    assert account.outcome == "nothing_due"
    assert account.waiting["unsettled"] == 1


def test_a_closed_group_does_not_wait(home: Home) -> None:
    record(home, groups=2)
    recorder = Recorder(home)
    recorder.close(group="rivers 0")
    recorder.shutdown()
    account = sweep(home, small())
    assert account.groups["judged"] == 1
    assert account.waiting["unsettled"] == 1


def test_one_group_is_chosen_by_name(home: Home) -> None:
    record(home)
    account = sweep(home, small(), SweepOptions(group="rivers 1"))
    assert account.groups["judged"] == 1


def test_without_summaries_extracts_stand_in_and_the_groups_stay_due(home: Home) -> None:
    record(home)
    account = sweep(home, small(), SweepOptions(now=True, summaries=False))
    assert account.groups["extracts"] == 3
    assert account.groups["summarised"] == 0
    with Ledger.open(home.ledger) as ledger:
        assert {row.status for row in ledger.summaries()} == {"extract"}
    assert sweep(home, small(), SweepOptions(now=True, summaries=False)).outcome == "nothing_due"
    later = sweep(home, small(), NOW)
    assert later.groups["summarised"] == 3
    assert later.groups["judged"] == 0


def test_redecide_follows_an_edited_policy_without_the_model(home: Home) -> None:
    record(home)
    sweep(home, small(), NOW)
    account = sweep(home, small(decide={"top_k": 2}), SweepOptions(now=True, reopen="redecide"))
    assert account.groups["judged"] == 3
    assert account.items["kept"] == 6
    assert account.pairs["scored"] == 0
    assert account.groups["summarised"] == 3
    with Ledger.open(home.ledger) as ledger:
        assert len(ledger.verdicts(keep=True).to_list()) == 6


def test_rejudge_computes_scores_again_and_keeps_history(home: Home) -> None:
    record(home, groups=1)
    sweep(home, small(), NOW)
    account = sweep(home, small(), SweepOptions(now=True, reopen="rejudge"))
    assert account.pairs["scored"] == 12
    with Ledger.open(home.ledger) as ledger:
        story = ledger.explain("rivers 0")
    assert story


def test_no_query_is_counted_and_never_judged(home: Home) -> None:
    recorder = Recorder(home)
    recorder.record("An orphan text that nobody asked for.", group="lost")
    recorder.shutdown()
    account = sweep(home, small(), NOW)
    assert account.outcome == "nothing_due"
    assert account.waiting["no_query"] == 1


def test_blank_text_is_dropped_and_no_error(home: Home) -> None:
    recorder = Recorder(home)
    for text in ("", "  \n\t ", "A real answer about the sea and rivers."):
        recorder.record(text, query="What of the sea?", group="g")
    recorder.shutdown()
    account = sweep(home, small(), NOW)
    assert (account.items["kept"], account.items["dropped"], account.items["errors"]) == (1, 2, 0)


def test_duplicates_follow_their_representative(home: Home) -> None:
    recorder = Recorder(home)
    for number in range(10):
        recorder.record(f"The same {number % 2} thing said twice about rivers.", query="Rivers?", group="g")
    recorder.shutdown()
    account = sweep(home, small(decide={"top_k": 1}), NOW)
    assert account.items["duplicates"] == 8
    assert account.items["kept"] == 5
    assert account.pairs["scored"] == 2


def test_a_stop_ends_in_good_order(home: Home) -> None:
    record(home)
    stop = threading.Event()
    stop.set()
    account = sweep(home, small(), NOW, stop=stop)
    assert account.outcome == "stopped"
    assert account.exit_code == 0
    assert sweep(home, small(), NOW).groups["judged"] == 3


def test_outside_its_window_a_sweep_does_nothing_and_says_so(home: Home) -> None:
    record(home)
    hour = (datetime.now(UTC) + timedelta(hours=3)).strftime("%H:00")
    later = (datetime.now(UTC) + timedelta(hours=4)).strftime("%H:00")
    shut = small().model_copy(
        update={"schedule": configuration.ScheduleConfig(windows=(f"{hour}-{later}",), timezone="UTC")}
    )
    account = sweep(home, shut)
    assert account.outcome == "stopped"
    assert account.stopped_because == "no window is open"
    assert account.groups["judged"] == 0
    assert sweep(home, shut, NOW).groups["judged"] == 3


def test_two_sweeps_at_once_are_refused_by_name(home: Home) -> None:
    with sweep_lock(home.lock), pytest.raises(SweepRunning, match="process"):
        sweep(home, small(), NOW)


def test_an_engine_that_is_not_there_leaves_verdicts_and_labelled_extracts(home: Home) -> None:
    record(home)
    broken = configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": "lexical"}}},
            "summarize": {
                "models": {
                    "embedded": {"model": "small", "backend": "openai", "url": "http://127.0.0.1:9/v1"}
                }
            },
        }
    )
    account = sweep(home, broken, NOW)
    assert account.exit_code == 69
    assert account.groups["judged"] == 3
    assert account.groups["extracts"] == 3
    assert account.problems
    assert sweep(home, small(), NOW).groups["summarised"] == 3


def test_a_plan_counts_what_a_sweep_then_does(home: Home) -> None:
    record(home)
    forecast = plan(home, small(), NOW)
    assert not forecast.is_empty
    assert forecast.judge["groups"] == 3
    assert forecast.judge["pairs"] == 36
    account = sweep(home, small(), NOW)
    assert account.pairs["scored"] == forecast.judge["pairs"]
    after = plan(home, small(), NOW)
    assert after.is_empty
    assert after.waiting["nothing_new"] == 3


def test_higher_priority_comes_first_in_the_plan(home: Home) -> None:
    record(home)
    recorder = Recorder(home)
    recorder.record("Urgent words about rivers.", query="Urgent?", group="urgent", priority=9)
    recorder.shutdown()
    assert plan(home, small(), NOW).first[0].name == "urgent"
