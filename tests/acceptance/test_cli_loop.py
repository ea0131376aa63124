"""The loop through the installed command, with the small engines: in, plan, sweep, out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
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
[summarize.models.small]
model = "extractive"
[policy.default.rerank]
model = "small"
[policy.default.decide]
top_k = 2
[policy.default.summarize]
model = "small"
"""

QUERY = "copy a folder with everything in it"
TEXTS = [
    "shutil.copytree copies a folder",
    "os.getcwd gives the folder",
    "math.pi is a number",
    "a folder copy",
]


@pytest.fixture
def small(home: Home) -> Home:
    """A home whose models are the small engines."""
    home.config.write_text(SMALL)
    return home


@pytest.fixture
def judged(small: Home, run: Callable[..., Any]) -> Home:
    """A home in which one run was imported and swept."""
    lines = [json.dumps({"text": text, "query": QUERY, "run": "r1", "agent": "a"}) for text in TEXTS]
    run("import", "-", stdin="\n".join([*lines, lines[0]]), code=0)
    run("sweep", "--now", "--quiet", code=0)
    return small


def rows(ran: Any, name: str) -> list[dict[str, Any]]:
    assert ran.json["version"] == 1
    found: list[dict[str, Any]] = ran.json[name]
    return found


# --------------------------------------------------------------------------------------- record


@pytest.mark.usefixtures("small")
def test_record_a_text_from_stdin(run: Callable[..., Any]) -> None:
    said = run("record", "--query", QUERY, "--run", "r", "--close", stdin="some text\n", code=0)
    assert said.stdout.startswith("i_")
    account = run("sweep", "--json", code=0).json
    assert account["items"]["seen"] == 1
    (verdict,) = rows(run("verdicts", "--json", "--text", code=0), "verdicts")
    assert verdict["item"] == said.stdout.strip()
    assert verdict["text"] == "some text\n"


@pytest.mark.usefixtures("small")
def test_record_lines_and_say_what_was_refused(run: Callable[..., Any]) -> None:
    lines = '{"text": "a", "query": "q", "id": "one", "other": 1}\nnot json\n{"query": "q"}\n{"text": "b"}\n'
    said = run("record", "--jsonl", "--run", "r", "--json", stdin=lines, code=1)
    assert (said.json["recorded"], said.json["refused"]) == (2, {"not_json": 1, "no_text": 1})
    assert "line 2: not_json" in said.stderr
    assert "line 3: no_text" in said.stderr
    plan = run("plan", "--now", "--json", code=0).json
    assert (plan["judge"]["items"], plan["waiting"]["no_query"]) == (1, 1)


def test_record_into_a_folder_that_refuses_us(home: Home, run: Callable[..., Any]) -> None:
    (home.root / "spool").write_text("a file where a folder should be")
    said = run("record", stdin="text", code=1)
    assert "spool" in said.stderr
    assert "->" in said.stderr


# ------------------------------------------------------------------------------- plan and sweep


@pytest.mark.usefixtures("judged")
def test_the_way_of_an_item_and_books_that_add_up(run: Callable[..., Any]) -> None:
    account = run("history", "show", "last", "--json", code=0).json["account"]
    items = account["items"]
    assert items["seen"] == items["kept"] + items["dropped"] + items["errors"] == 5
    assert items["duplicates"] == 1
    assert account["groups"]["judged"] == account["groups"]["summarised"] == 1
    found = rows(run("verdicts", "--json", code=0), "verdicts")
    assert [row["decision"] for row in found].count("keep") in (2, 3)  # a duplicate follows its twin
    assert {row["group_name"] for row in found} == {"r1"}
    (summary,) = rows(run("summaries", "--json", code=0), "summaries")
    kept = {row["item"] for row in found if row["decision"] == "keep"}
    assert {item for point in summary["points"] for item in point["items"]} <= kept


@pytest.mark.usefixtures("judged")
def test_a_second_sweep_has_nothing_to_do(run: Callable[..., Any]) -> None:
    account = run("sweep", "--json", code=0).json
    assert account["outcome"] == "nothing_due"
    assert account["models"] == {}


def test_plan_says_why_what_is_not_due_is_not_due(small: Home, run: Callable[..., Any]) -> None:
    small.config.write_text(SMALL.replace('settle = "0s"', 'settle = "1h"'))
    run("record", "--query", "q", "--run", "r", stdin="fresh", code=0)
    run("record", "--run", "r", stdin="without a query", code=0)
    run("record", "--query", "q", "--policy", "odd", "--run", "r", stdin="of another policy", code=0)
    plan = run("plan", "--json", code=0).json
    assert plan["judge"]["groups"] == 0
    assert {name for name, count in plan["waiting"].items() if count} == {
        "unsettled", "no_query", "unknown_policy",
    }  # fmt: skip
    told = run("plan", code=0).stdout
    assert "--now" in told
    assert "give query=" in told


@pytest.mark.usefixtures("judged")
def test_no_summaries_leaves_extracts_and_the_group_due(run: Callable[..., Any]) -> None:
    record = {"text": f"{TEXTS[0]}, and what is new is here too.", "query": "what is new", "run": "r2"}
    run("import", "-", stdin=json.dumps(record), code=0)
    run("sweep", "--run", "r2", "--no-summaries", "--quiet", code=0)
    statuses = {s["group_name"]: s["status"] for s in rows(run("summaries", "--json", code=0), "summaries")}
    assert statuses == {"r1": "done", "r2": "extract"}
    assert run("sweep", "--json", code=0).json["groups"]["summarised"] == 1


def test_redecide_needs_no_model_and_history_tells_the_difference(
    judged: Home, run: Callable[..., Any]
) -> None:
    judged.config.write_text(SMALL.replace("top_k = 2", "top_k = 1"))
    account = run("sweep", "--redecide", "--group", "r1", "--json", code=0).json
    assert account["pairs"]["scored"] == 0
    sweeps = rows(run("history", "--json", code=0), "sweeps")
    diff = run("history", "diff", sweeps[1]["sweep"], sweeps[0]["sweep"], "--json", code=0).json
    assert {change["key"] for change in diff["config"]} == {"policy.default.decide.top_k"}
    assert {(c["before"]["decision"], c["after"]["decision"]) for c in diff["changed"]} == {("keep", "drop")}


@pytest.mark.usefixtures("small")
def test_sigterm_drains_and_ends_in_good_order(
    run: Callable[..., Any], afterpass_command: Callable[..., list[str]], tmp_path: Path
) -> None:
    lines = [json.dumps({"text": f"text {n}", "query": f"query {n}"}) for n in range(4000)]
    run("import", "-", stdin="\n".join(lines), code=0)
    sweep = subprocess.Popen(
        afterpass_command("sweep", "--now", "--json", "--progress", "json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert sweep.stderr is not None
    for line in sweep.stderr:
        if json.loads(line)["event"] == "advance":
            break
    sweep.send_signal(signal.SIGTERM)
    out, _ = sweep.communicate(timeout=60)
    account = json.loads(out.splitlines()[-1])
    assert sweep.returncode == 0
    assert (account["outcome"], account["stopped_because"]) == ("stopped", "asked to stop")
    items = account["items"]
    assert items["seen"] == items["kept"] + items["dropped"] + items["errors"] < 4000


@pytest.mark.usefixtures("small")
def test_two_sweeps_at_once(
    run: Callable[..., Any], afterpass_command: Callable[..., list[str]], tmp_path: Path
) -> None:
    lines = [json.dumps({"text": f"text {n}", "query": f"query {n}"}) for n in range(4000)]
    run("import", "-", stdin="\n".join(lines), code=0)
    first = subprocess.Popen(
        afterpass_command("sweep", "--now", "--progress", "json"),
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert first.stderr is not None
    first.stderr.readline()
    said = run("sweep", code=75)
    assert str(first.pid) in said.stderr
    first.kill()
    first.wait()


# -------------------------------------------------------------------------------------- reading


@pytest.mark.usefixtures("judged")
def test_short_references_are_printed_and_taken_everywhere(run: Callable[..., Any]) -> None:
    row = rows(run("verdicts", "--keep", "--json", code=0), "verdicts")[0]
    story = run("explain", row["item"], "--json", code=0).json
    assert (story["kind"], story["item"], story["group"]["group"]) == ("item", row["item"], row["group"])
    assert story["verdict"]["reason"] == "top_k"
    assert story["scores"][0]["excerpt"] in story["text"]
    group = run("explain", row["group"], "--json", code=0).json
    assert (group["kind"], group["query"]) == ("group", QUERY)
    assert row["item"] in {kept["item"] for kept in group["kept"]}
    assert run("explain", row["sweep"], "--json", code=0).json["kind"] == "sweep"
    assert rows(run("verdicts", "--item", row["item"], "--json", code=0), "verdicts") == [row]
    assert rows(run("verdicts", "--group", row["group"], "--keep", "--json", code=0), "verdicts")[0] == row
    assert rows(run("summaries", "--group", row["group"], "--json", code=0), "summaries")
    assert run("sweep", "--redecide", "--group", row["group"], "--json", code=0).json["groups"]["judged"] == 1
    for words in (["explain", row["item"], "--text"], ["explain", row["group"]], ["explain", "r1"]):
        assert QUERY in run(*words, code=0).stdout


@pytest.mark.usefixtures("judged")
def test_unknown_references_name_what_is_near(run: Callable[..., Any]) -> None:
    for words in (
        ["explain", "i_000000000000"],
        ["history", "show", "s_000000"],
        ["verdicts", "--group", "r11"],
    ):
        said = run(*words, code=1)
        assert words[-1] in said.stderr
        assert said.stdout == ""
    assert "r1" in run("explain", "r11", code=1).stderr


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
@pytest.mark.usefixtures("judged")
def test_export_in_each_format(run: Callable[..., Any], tmp_path: Path, format: str) -> None:
    said = run("export", tmp_path / "out", "--format", format, "--json", code=0).json
    assert [one["rows"] for one in said["files"]] == [5, 1]
    path = tmp_path / "out" / f"verdicts.{format}"
    if format == "parquet":
        import pyarrow.parquet as pq

        assert set(pq.read_table(path)["text"].to_pylist()) == set(TEXTS)
    elif format == "jsonl":
        assert {json.loads(line)["text"] for line in path.read_text().splitlines()} == set(TEXTS)
    else:
        import csv

        with path.open(newline="") as file:
            assert {row["text"] for row in csv.DictReader(file)} == set(TEXTS)
    assert {one.name for one in (tmp_path / "out").iterdir()} == {f"verdicts.{format}", f"summaries.{format}"}


@pytest.mark.usefixtures("small")
def test_agents_text_cannot_move_the_cursor_nor_break_the_json(run: Callable[..., Any]) -> None:
    text = "a\x1b[2Jb\x9b1mc\u202ed\u2028e\x00f [bold]g[/bold]"
    run("record", "--query", "q", "--run", "r", "--close", stdin=text, code=0)
    run("sweep", "--quiet", code=0)
    for words in (["verdicts"], ["explain", "r"], ["summaries"]):
        shown = run(*words, code=0).stdout
        assert not set(shown) & set("\x1b\x9b\u202e\u2028\x00")
    ran = run("verdicts", "--text", "--json", code=0)
    assert rows(ran, "verdicts")[0]["text"] == text
    assert len(ran.stdout.splitlines()) == 1


# --------------------------------------------------------------------------------- keeping house


@pytest.mark.usefixtures("judged")
def test_status_and_its_alarms(run: Callable[..., Any]) -> None:
    status = run("status", "--json", code=0).json
    assert (status["alarms"], status["ledger"]["items"]["kept"] > 0) == ([], True)
    run("status", "--max-age", "26h", "--max-pending", "0", code=0)
    time.sleep(1.1)
    assert "the last good sweep" in run("status", "--max-age", "1s", code=4).stdout
    run("import", "-", stdin=json.dumps({"text": "x", "query": "new"}), code=0)
    alarm = run("status", "--max-pending", "0", "--json", code=4).json["alarms"]
    assert "1 items wait" in alarm[0]


def test_status_without_a_ledger_and_with_a_spool_that_grows(small: Home, run: Callable[..., Any]) -> None:
    assert run("status", "--max-age", "1s", "--json", code=0).json["ledger"] is None
    run("record", "--query", "q", stdin="x", code=0)
    (segment,) = small.inbox.iterdir()
    os.utime(segment, (1, 1))
    said = run("status", "--max-age", "26h", code=4).stdout
    assert "the spool grows" in said
    assert "no sweep ever ended well" in said


def test_doctor_config_and_models_on_a_good_home(judged: Home, run: Callable[..., Any]) -> None:
    checks = run("doctor", "--json", code=0).json["checks"]
    assert {"versions", "home folder", "spool", "ledger", "disk", "memory"} <= {one["name"] for one in checks}
    shown = run("config", "show", code=0).stdout
    (judged.root / "again.toml").write_text(shown)
    same = run("config", "show", "--config", judged.root / "again.toml", "--json", code=0).json["config"]
    assert same == run("config", "show", "--json", code=0).json["config"]
    run("config", "check", code=0)
    models = run("models", "list", "--json", code=0).json["models"]
    assert {m["name"] for m in models} == {"small"}
    assert all(m["ready"] for m in models)
    loaded = run("models", "check", "--load", "--json", code=0).json["models"]
    assert all(m["seconds"] >= 0 for m in loaded)


@pytest.mark.usefixtures("small")
def test_quarantine_list_show_retry_drop(run: Callable[..., Any]) -> None:
    lines = '{"body": "found under another name", "query": "q"}\nnot json\n{"text": "one", "id": "x"}\n'
    run("import", "-", stdin=lines, code=3)
    run("import", "-", stdin='{"text": "two", "id": "x"}\n', code=0)
    listed = run("quarantine", "list", "--json", code=0).json
    assert listed["reasons"] == {"id_conflict": 1, "no_text": 1, "not_json": 1}
    bad = next(one for one in listed["quarantine"] if one["reason"] == "not_json")
    assert (bad["line"], run("quarantine", "show", bad["id"], "--json", code=0).json["raw"]) == (
        2,
        "not json",
    )
    again = run("quarantine", "retry", "--reason", "no_text", "--map", "text=body", "--json", code=0).json
    assert again["items"] == 1
    assert run("quarantine", "retry", "--json", code=0).json["still"] == {"id_conflict": 1, "not_json": 1}
    assert (
        run("quarantine", "retry", "--reason", "id_conflict", "--new-ids", "--json", code=0).json["items"]
        == 1
    )
    assert run("quarantine", "drop", "--json", code=0).json == {"version": 1, "chosen": 1, "dropped": 0}
    assert run("quarantine", "drop", bad["id"], "--yes", "--json", code=0).json["dropped"] == 1
    assert run("quarantine", "list", "--json", code=0).json["quarantine"] == []
    assert run("status", "--json", code=0).json["ledger"]["items"]["total"] == 3
