"""From labels to probabilities and promises, through the installed command."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.paths import Home

SMALL = """
[store]
settle = "0s"
export = false
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
GROUPS = 40


def items(count: int, seed: int, overlap: float = 0.8) -> str:
    """Groups of six items as JSONL; the first two share most words with the query."""
    rng = random.Random(seed)
    found = []
    for group in range(count):
        query = rng.sample(WORDS, 5)
        for number in range(6):
            share = overlap if number < 2 else 0.25
            words = [word if rng.random() < share else f"x{rng.randrange(999)}" for word in query]
            text = " ".join([*words, f"filler{rng.randrange(10**6)}"])
            name = f"{seed}-{group}"
            found.append({"id": f"{name}-{number}", "text": text, "query": " ".join(query), "group": name})
    return "\n".join(map(json.dumps, found))


@pytest.fixture(scope="module")
def judged_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A home with forty judged groups, and a label for each item: the known answer."""
    root = tmp_path_factory.mktemp("judged")
    (root / "config.toml").write_text(SMALL)

    def run(*arguments: str, stdin: str = "") -> str:
        line = [str(Path(sys.executable).parent / "afterpass"), *arguments, "--home", str(root)]
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, check=True)
        return done.stdout

    run("import", "-", stdin=items(GROUPS, 1))
    run("sweep", "--now", "--quiet")
    rows = json.loads(run("verdicts", "--json", "--text"))["verdicts"]
    labels = [
        {
            "group": row["group"],
            "item": row["item"],
            "relevant": row["text"].count("x") < 3,
            "drawn": "random",
            "by": "ann",
        }
        for row in rows
    ]
    return root, labels


@pytest.fixture
def judged(home: Home, judged_once: tuple[Path, list[dict[str, Any]]]) -> Home:
    """A copy of the judged home, the test's own."""
    shutil.copytree(judged_once[0], home.root, dirs_exist_ok=True)
    return home


@pytest.fixture
def labelled(judged_once: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> Callable[..., str]:
    """Write the known answers, each changed as told, and give the file's name."""

    def write(first: int | None = None, **change: str) -> str:
        file = tmp_path / "labels.jsonl"
        file.write_text("\n".join(json.dumps(label | change) for label in judged_once[1][:first]))
        return str(file)

    return write


def test_probabilities_reach_the_verdicts(
    judged: Home, run: Callable[..., Any], labelled: Callable[..., str], tmp_path: Path
) -> None:
    plot = tmp_path / "plots" / "reliability.png"
    command = ("calibrate", "--labels", labelled(drawn="useful"), "--plot", str(plot), "--json")
    made = run(*command, code=0).json
    assert (made["labels"], made["groups"]) == (6 * GROUPS, GROUPS)
    assert made["brier"] <= made["brier_raw"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "data:image/png" in plot.with_suffix(".html").read_text()

    judged.config.write_text(SMALL.replace('top_k = "none"', 'top_k = "none"\nmin_probability = 0.5'))
    run("sweep", "--redecide", "--now", "--quiet", code=0)
    rows = run("verdicts", "--json", code=0).json["verdicts"]
    assert {row["decision"] for row in rows} == {"keep", "drop"}
    assert all((row["probability"] >= 0.5) == (row["decision"] == "keep") for row in rows)


def test_a_promise_is_made_used_and_withdrawn(
    judged: Home, run: Callable[..., Any], labelled: Callable[..., str]
) -> None:
    command = ("calibrate", "--labels", labelled(), "--max-miss", "0.1", "--confidence", "0.9", "--json")
    made = run(*command, code=0).json
    assert made["missed"] <= 0.1
    assert made["dropped"] > 0.1

    judged.config.write_text(SMALL.replace('top_k = "none"', 'top_k = "none"\nmax_miss = 0.1'))
    run("sweep", "--redecide", "--now", "--quiet", code=0)
    rows = run("verdicts", "--json", code=0).json["verdicts"]
    dropped = [row for row in rows if row["decision"] == "drop"]
    assert {row["reason"] for row in dropped} == {"max_miss"}
    assert all((row["logit"] < made["min_logit"]) == (row["decision"] == "drop") for row in rows)
    assert run("status", "--json", code=0).json["promises"][0]["withdrawn"] is None

    # Groups of another kind come, few at a time: the promise is withdrawn, and says so wherever one looks.
    for seed in (2, 3):
        run("import", "-", stdin=items(12, seed, overlap=0.0), code=0)
        ran = run("sweep", "--now", "--json", code=0)
        assert any("withdrawn" in problem for problem in ran.json["problems"]) == (seed == 3)
    assert "WITHDRAWN" in run("status", "--max-age", "1d", code=4).stdout
    (check,) = [c for c in run("doctor", "--json").json["checks"] if c["name"] == "promise"]
    assert check["state"] == "warn"
    again = run("sweep", "--redecide", "--now", "--json", code=0)
    assert any("withdrawn" in problem for problem in again.json["problems"])
    assert again.json["items"]["dropped"] == 0


@pytest.mark.usefixtures("judged")
def test_labels_that_back_no_promise_are_refused(
    run: Callable[..., Any], labelled: Callable[..., str]
) -> None:
    def says(file: str, max_miss: str = "0.1") -> str:
        return str(run("calibrate", "--labels", file, "--max-miss", max_miss, code=1).stderr)

    assert "near_threshold" in says(labelled(drawn="near_threshold"))
    assert "no item" in says(labelled(item="i_ffffffffffff"))
    assert "in part only" in says(labelled(first=-1))
    assert "at least 59 groups" in says(labelled(), "0.05")


def test_a_policy_that_asks_for_what_was_not_learnt_is_refused(judged: Home, run: Callable[..., Any]) -> None:
    for key, value in (("max_miss", "0.1"), ("min_probability", "0.5")):
        judged.config.write_text(SMALL.replace('top_k = "none"', f"{key} = {value}"))
        assert "afterpass calibrate" in run("sweep", "--redecide", "--now", code=1).stderr


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("purpose", ["guarantee", "model"])
def test_labelling_goes_on_where_it_stopped(run: Callable[..., Any], tmp_path: Path, purpose: str) -> None:
    file = tmp_path / "labels.jsonl"
    command = ("label", "--for", purpose, "--out", str(file), "--by", "ann", "--count", "2")
    run(*command, stdin="y\nm\nn\nq\n" if purpose == "guarantee" else "y\nq\n", code=0)
    first = file.read_text().splitlines()
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(first).encode())  # as some editors keep it
    if purpose == "guarantee":  # what came meanwhile must not leave a group labelled in part
        run("import", "-", stdin=items(30, 5), code=0)
        run("sweep", "--now", "--quiet", code=0)
    run(*command, stdin="y\n" * 20, code=0)
    after = [json.loads(line) for line in file.read_text("utf-8-sig").splitlines()]
    assert [json.loads(line) for line in first] == after[: len(first)]
    assert len({label["item"] for label in after}) == len(after)
    assert {label["drawn"] for label in after} == {"random" if purpose == "guarantee" else "useful"}
    if purpose == "guarantee":
        assert len(after) == 12
        assert len({label["group"] for label in after}) == 2
