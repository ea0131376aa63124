"""From labels to probabilities and promises, through the installed command."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.paths import Home

SMALL = """
[store]
settle = "0s"
[rerank.models.small]
model = "lexical"
[policy.default.rerank]
model = "small"
[policy.default.decide]
top_k = "none"
[policy.default.summarize]
enabled = false
"""
WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "island",
    "juniper",
    "kelp",
    "lagoon",
]


def items(count: int, seed: int, overlap: float = 0.8) -> list[dict[str, Any]]:
    """Groups of six items; the first two are relevant and share most words with the query."""
    rng = random.Random(seed)
    found = []
    for group in range(count):
        query = rng.sample(WORDS, 5)
        for number in range(6):
            share = overlap if number < 2 else 0.25
            words = [word if rng.random() < share else f"x{rng.randrange(999)}" for word in query]
            text = " ".join([*words, f"filler{rng.randrange(10**6)}"])
            found.append(
                {
                    "id": f"{seed}-{group}-{number}",
                    "text": text,
                    "query": " ".join(query),
                    "group": f"{seed}-{group}",
                }
            )
    return found


def bring(run: Callable[..., Any], rows: list[dict[str, Any]]) -> None:
    run("import", "-", stdin="\n".join(map(json.dumps, rows)), code=0)
    run("sweep", "--now", "--quiet", code=0)


@pytest.fixture
def judged(home: Home, run: Callable[..., Any]) -> Home:
    home.config.write_text(SMALL)
    bring(run, items(90, 1))
    return home


def labels(run: Callable[..., Any], **change: str) -> str:
    """A label for each item: relevant where its own id ends in 0 or 1."""
    lines = []
    for row in run("verdicts", "--json", "--text", code=0).json["verdicts"]:
        seq = int(row["text"].count("x") < 3)
        label = {
            "group": row["group"],
            "item": row["item"],
            "relevant": bool(seq),
            "drawn": "random",
            "by": "ann",
        }
        lines.append(json.dumps(label | change))
    return "\n".join(lines)


@pytest.mark.usefixtures("judged")
def test_probabilities_reach_the_verdicts(run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(labels(run, drawn="useful"))
    plot = tmp_path / "plots" / "reliability.png"
    made = run("calibrate", "--labels", str(file), "--plot", str(plot), "--json", code=0).json
    assert made["labels"] == 540
    assert made["groups"] == 90
    assert made["brier"] <= made["brier_raw"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "data:image/png" in plot.with_suffix(".html").read_text()
    run("sweep", "--redecide", "--now", "--quiet", code=0)
    rows = run("verdicts", "--json", code=0).json["verdicts"]
    assert all(0 <= row["probability"] <= 1 for row in rows)


def test_a_promise_is_made_used_and_withdrawn(judged: Home, run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(labels(run))
    command = ("calibrate", "--labels", str(file), "--max-miss", "0.1", "--confidence", "0.9")
    made = run(*command, "--json", code=0).json
    assert made["missed"] <= 0.1
    assert made["dropped"] > 0.1
    before = run("verdicts", "--json", "--keep", code=0).json["verdicts"]

    judged.config.write_text(SMALL.replace('top_k = "none"', 'top_k = "none"\nmax_miss = 0.1'))
    run("sweep", "--redecide", "--now", "--quiet", code=0)
    rows = run("verdicts", "--json", code=0).json["verdicts"]
    dropped = [row for row in rows if row["decision"] == "drop"]
    assert {row["reason"] for row in dropped} == {"max_miss"}
    assert len(rows) - len(dropped) < len(before)
    assert all(row["logit"] < made["min_logit"] for row in dropped)

    # Groups of another kind: the promise is withdrawn, and says so on every sweep.
    run("import", "-", stdin="\n".join(map(json.dumps, items(60, 2, overlap=0.0))), code=0)
    ran = run("sweep", "--now", "--json", code=0)
    assert any("withdrawn" in problem for problem in ran.json["problems"])
    run("sweep", "--redecide", "--now", "--quiet", code=0)
    assert run("verdicts", "--json", "--not-kept", code=0).json["verdicts"] == []


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"drawn": "near_threshold"}, "near_threshold"),
        ({"by": "model:judge"}, "model:judge"),
        ({"item": "i_ffffffffffff"}, "no item"),
        ({"group": "g_ffffffffffff"}, "g_ffffffffffff"),
    ],
)
def test_labels_that_back_no_promise_are_refused(
    run: Callable[..., Any], tmp_path: Path, change: dict[str, str], says: str
) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(labels(run, **change))
    assert says in run("calibrate", "--labels", str(file), "--max-miss", "0.1", code=1).stderr


@pytest.mark.usefixtures("judged")
def test_groups_labelled_in_part_and_too_few_are_refused(run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    every = labels(run).split("\n")
    file.write_text("\n".join(every[:-1]))
    assert "in part only" in run("calibrate", "--labels", str(file), "--max-miss", "0.1", code=1).stderr
    file.write_text("\n".join(every[:60]))
    assert (
        "at least 59 groups" in run("calibrate", "--labels", str(file), "--max-miss", "0.05", code=1).stderr
    )


def test_a_policy_that_asks_for_what_was_not_learnt_is_refused(judged: Home, run: Callable[..., Any]) -> None:
    for key, value in (("max_miss", "0.1"), ("min_probability", "0.5")):
        judged.config.write_text(SMALL.replace('top_k = "none"', f"{key} = {value}"))
        assert "afterpass calibrate" in run("sweep", "--redecide", "--now", code=1).stderr
    run("verdicts", code=0)


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("purpose", ["guarantee", "model"])
def test_labelling_goes_on_where_it_stopped(run: Callable[..., Any], tmp_path: Path, purpose: str) -> None:
    file = tmp_path / "labels.jsonl"
    command = ("label", "--for", purpose, "--out", str(file), "--by", "ann", "--count", "2")
    run(*command, stdin="y\nm\nn\nq\n" if purpose == "guarantee" else "y\nq\n", code=0)
    first = file.read_text().splitlines()
    run(*command, stdin="y\n" * 20, code=0)
    after = [json.loads(line) for line in file.read_text().splitlines()]
    assert [json.loads(line) for line in first] == after[: len(first)]
    assert len({label["item"] for label in after}) == len(after)
    assert {label["drawn"] for label in after} == {"random" if purpose == "guarantee" else "useful"}
    if purpose == "guarantee":
        assert len(after) == 12
        assert len({label["group"] for label in after}) == 2
