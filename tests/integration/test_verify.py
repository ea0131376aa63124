"""Verify: what stands is judged again, and the ledger stays as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from afterpass.core import config as configuration
from afterpass.core.config import Config
from afterpass.core.errors import LedgerMissing
from afterpass.core.paths import Home
from afterpass.core.types import Selection
from afterpass.hooks.recorder import Recorder
from afterpass.sweep import SweepOptions, sweep, verify
from afterpass.sweep.compare import State

NOW = SweepOptions(now=True)


def settings(scorer: str = "lexical", **policy: Any) -> Config:
    return configuration.parse(
        {
            "rerank": {"models": {"embedded": {"model": scorer}}},
            "summarize": {"models": {"embedded": {"model": "extractive"}}},
            "policy": {"default": policy},
        }
    )


def record(home: Home, groups: int = 6, items: int = 12) -> None:
    recorder = Recorder(home)
    for group in range(groups):
        for item in range(items):
            recorder.record(
                f"Note {item} on topic {group}. The river {'is long and ' * (item % 5)}flows to sea {item}.",
                query=f"Where does river number {group} flow?",
                group=f"rivers {group}",
                run=f"night {group % 2}",
            )
    recorder.shutdown()


def content(home: Home) -> str:
    return hashlib.sha256(home.ledger.read_bytes()).hexdigest()


def alter(home: Home, statement: str) -> None:
    with duckdb.connect(str(home.ledger)) as connection:
        connection.execute(statement)


def test_what_nobody_touched_is_the_same_and_stays_untouched(home: Home) -> None:
    record(home)
    sweep(home, settings(), NOW)
    before = content(home)
    found = verify(home, settings(), sample=40)
    assert found.states == {"scores": State.SAME, "decisions": State.SAME, "replies": State.SAME}
    assert found.state is State.SAME
    assert found.scores.pairs == 40
    assert found.decisions.items == 48, "whole groups are decided again"
    assert found.replies.prompts == 6
    assert content(home) == before
    assert found.as_json()["version"] == 1


def test_another_seed_takes_another_sample(home: Home) -> None:
    record(home, groups=2)
    sweep(home, settings(), NOW)
    alter(
        home,
        "UPDATE score SET logit = logit + 1 WHERE query_hash = (SELECT query_hash FROM item_group LIMIT 1);"
        "UPDATE verdict SET logit = logit + 1 WHERE group_id = (SELECT group_id FROM item_group LIMIT 1)",
    )
    states = {verify(home, settings(), sample=12, seed=n, summaries=False).scores.state for n in range(3)}
    assert states == {State.SAME, State.CHANGED}


def test_other_scores_are_a_change_and_named(home: Home) -> None:
    record(home)
    sweep(home, settings(), NOW)
    alter(home, "UPDATE verdict SET logit = 7 - logit, rank = 13 - rank WHERE rank IS NOT NULL")
    found = verify(home, settings(), sample=20, summaries=False)
    assert found.scores.state is State.CHANGED
    assert found.state is State.CHANGED
    assert found.changed[0]["item"].startswith("i_")
    assert found.states["replies"] is State.NONE


def test_an_edited_policy_is_told_from_other_scores(home: Home) -> None:
    record(home)
    sweep(home, settings(), NOW)
    found = verify(home, settings(decide={"top_k": 2}), summaries=False)
    assert found.scores.state is State.SAME
    assert found.states["decisions"] is State.CHANGED
    assert "policy" in found.why["decisions"][0]


def test_other_replies_and_other_prompts(home: Home) -> None:
    record(home)
    sweep(home, settings(), NOW)
    edited = settings(summarize={"max_points": 2})
    found = verify(home, edited)
    assert found.states["replies"] is State.CHANGED
    assert (found.replies.unknown, found.replies.prompts) == (6, 0)
    alter(home, "UPDATE reply SET text = replace(text, 'river', 'street')")
    found = verify(home, settings())
    assert found.states["replies"] is State.CHANGED
    assert found.replies.alike is not None
    assert found.scores.state is State.SAME


def test_a_part_of_the_ledger(home: Home) -> None:
    record(home)
    sweep(home, settings(), NOW)
    assert verify(home, settings(), selection=Selection(group="rivers 1")).groups == 1
    assert verify(home, settings(), sample=500, selection=Selection(run="night 1")).groups == 3


def test_a_ledger_without_judgements_and_none_at_all(home: Home) -> None:
    with pytest.raises(LedgerMissing):
        verify(home, settings())
    record(home)
    sweep(home, settings(), SweepOptions())  # nothing has settled
    assert verify(home, settings()).state is State.NONE


def test_near_duplicates_and_pruned_texts(home: Home) -> None:
    record(home)
    config = settings(decide={"near_duplicates": 0.6, "top_k": 3})
    sweep(home, config, NOW)
    assert verify(home, config, sample=500, summaries=False).state is State.SAME
    alter(home, "DELETE FROM text WHERE text LIKE 'Note 3%'")
    found = verify(home, settings(), sample=500, summaries=False)
    assert found.scores.state is State.SAME


def test_the_shipped_scorer(home: Home) -> None:
    record(home, groups=3)
    config = settings("embedded")
    sweep(home, config, NOW)
    found = verify(home, config, sample=30)
    assert found.scores.pairs == 30
    assert found.scores.state in (State.SAME, State.NOISE)
    assert found.states["decisions"] in (State.SAME, State.NOISE)
    alter(home, "UPDATE verdict SET logit = logit + 0.5")
    assert verify(home, config, sample=30, summaries=False).scores.state is State.CHANGED


def test_the_command(home: Home, run: Callable[..., Any]) -> None:
    record(home, groups=2)
    sweep(home, settings(), NOW)
    home.config.write_text(
        '[rerank.models.embedded]\nmodel = "lexical"\n[summarize.models.embedded]\nmodel = "extractive"\n'
        "[policy.default.decide]\ntop_k = 5\n"
    )
    assert run("verify", "--json", code=0).json["state"] == "same"
    assert "scores" in run("verify", "--no-summaries", code=0).stdout
    home.config.write_text(home.config.read_text().replace("top_k = 5", "top_k = 1"))
    changed = run("verify", "--no-summaries", "--json", code=4).json
    assert (changed["version"], changed["decisions"]["state"]) == (1, "changed")
    assert "edited since" in run("verify", "--no-summaries", code=4).stdout
