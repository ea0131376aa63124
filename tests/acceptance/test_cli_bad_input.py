"""What is wrong is said: what, where, and what to do; the neighbours live and the account adds up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from afterpass.core.paths import Home

SMALL = """
[store]
settle = "0s"
busy_timeout = "1s"
[rerank.models.small]
model = "lexical"
[summarize.models.small]
model = "extractive"
[policy.default.rerank]
model = "small"
[policy.default.summarize]
model = "small"
"""


@pytest.fixture
def small(home: Home) -> Home:
    """A home whose models are the small engines."""
    home.config.write_text(SMALL)
    return home


def said_well(ran: Any, *words: str) -> None:
    """A message and what to do, on stderr and without a traceback."""
    assert "Traceback" not in ran.stderr, ran.stderr
    assert "afterpass: " in ran.stderr
    assert "  -> " in ran.stderr
    for word in words:
        assert word in ran.stderr, ran.stderr


# ------------------------------------------------------------------------------------- records


@pytest.mark.usefixtures("small")
def test_bad_records_are_quarantined_and_their_neighbours_judged(run: Callable[..., Any]) -> None:
    lines = [
        '{"text": "good one", "query": "q", "run": "r"}',
        '{"query": "q", "run": "r"}',  # no text
        "not json at all",
        '{"text": ["wrong"], "query": "q"}',
        '{"text": "  ", "query": "q", "run": "r"}',  # blank
        '{"text": "", "query": "q", "run": "r"}',  # empty
        '{"text": "no query", "run": "r"}',
        '{"text": "nul \\u0000 here", "query": "q", "run": "r"}',
        '{"text": "half \\ud800 pair", "query": "q", "run": "r"}',
        '{"text": "good two", "query": "q", "run": "r"}',
        '{"text": "torn off',
    ]
    done = run("import", "-", "--json", stdin="\n".join(lines), code=3)
    assert done.json["items"] == 7
    assert done.json["bad"] == {"no_text": 1, "not_json": 2, "wrong_type": 1}
    assert done.json["no_query"] == 1
    assert done.json["ingested"]["quarantined"] == 4
    account = run("sweep", "--json", code=0).json
    items = account["items"]
    assert items["seen"] == items["kept"] + items["dropped"] + items["errors"] == 6
    assert (items["errors"], account["waiting"]["no_query"]) == (0, 1)
    verdicts = run("verdicts", "--json", "--text", code=0).json["verdicts"]
    assert sorted(row["reason"] for row in verdicts if row["decision"] == "drop") == ["empty", "empty"]
    flags = {row["text"]: row["flags"] for row in verdicts}
    assert flags["nul \0 here"] == ["nul"]
    assert flags["half \ufffd pair"] == ["lone_surrogate"]


@pytest.mark.usefixtures("small")
def test_a_line_of_fifty_megabytes_is_accepted(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    text = "word " * (10 * 2**20)
    path.write_text(
        json.dumps({"text": text, "query": "q"}) + "\n" + json.dumps({"text": "next", "query": "q"})
    )
    done = run("import", path, "--json", code=0)
    assert (done.json["items"], done.json["ingested"]["rows"]) == (2, 2)
    row = next(r for r in run("status", "--json", code=0).json.items() if r[0] == "ledger")
    assert row[1]["items"]["total"] == 2


@pytest.mark.usefixtures("small")
def test_the_same_id_with_another_text(run: Callable[..., Any]) -> None:
    run("import", "-", stdin='{"text": "one", "query": "q", "id": "x"}', code=0)
    done = run("import", "-", "--json", stdin='{"text": "two", "query": "q", "id": "x"}', code=0)
    assert (done.json["ingested"]["rows"], done.json["ingested"]["quarantined"]) == (0, 1)
    (entry,) = run("quarantine", "list", "--json", code=0).json["quarantine"]
    assert entry["reason"] == "id_conflict"
    assert run("sweep", "--json", code=0).json["items"]["seen"] == 1


@pytest.mark.usefixtures("small")
def test_importing_a_file_again_adds_nothing(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "query": "q"}\nbad\n')
    run("import", "a.jsonl", code=3)
    done = run("import", "a.jsonl", "--json", code=3)
    assert (done.json["ingested"]["rows"], done.json["ingested"]["known"]) == (0, 1)
    assert run("status", "--json", code=0).json["ledger"]["quarantined"] == 1


@pytest.mark.usefixtures("small")
def test_an_import_without_a_query_gets_one_later(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    assert "--query" in run("import", "a.jsonl", code=0).stderr
    assert run("sweep", "--json", code=0).json["outcome"] == "nothing_due"
    done = run("import", "a.jsonl", "--query", "q", "--json", code=0)
    assert done.json["ingested"]["requeried"] == 2
    assert run("sweep", "--json", code=0).json["items"]["seen"] == 2


def test_a_dry_run_shows_and_writes_nothing(small: Home, run: Callable[..., Any], tmp_path: Path) -> None:
    rows = [{"out": f"text {n}", "why": "q" if n else None, "job": n % 3} for n in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nbad\n")
    words = ["import", "a.jsonl", "--map", "text=out", "--map", "query=why", "--map", "run=job", "--dry-run"]
    shown = run(*words, "--json", code=3).json
    assert (shown["items"], shown["groups"], shown["no_query"], len(shown["first"])) == (9, 4, 1, 5)
    assert shown["first_bad"][0]["where"] == "line 10"
    told = run(*words, code=3)
    assert told.stdout.count("text  ") + told.stdout.count("text\t") == 5
    assert not small.ledger.exists()
    assert not small.spool.exists()


@pytest.mark.usefixtures("small")
def test_files_that_cannot_be_read(run: Callable[..., Any], tmp_path: Path) -> None:
    said_well(run("import", "gone.jsonl", code=1), "gone.jsonl")
    said_well(run("import", tmp_path, code=1), "folder")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    said_well(run("import", "a.parquet", code=1), "a.parquet", "Parquet")
    (tmp_path / "a.jsonl").write_text("{}")
    said_well(run("import", "a.jsonl", "--format", "jsnol", code=1), "did you mean")
    said_well(run("import", "a.jsonl", "--map", "txt=a", code=1), "did you mean 'text'")
    said_well(run("import", "a.jsonl", "--map", "text=[", code=1), "JMESPath")


# ------------------------------------------------------------------------------- configuration


@pytest.mark.usefixtures("small")
def test_an_unknown_policy(run: Callable[..., Any]) -> None:
    said_well(
        run("import", "-", "--policy", "defualt", stdin="{}", code=1), "defualt", "did you mean 'default'"
    )
    done = run("import", "-", stdin='{"text": "a", "query": "q", "policy": "odd"}', code=0)
    assert "'odd'" in done.stderr
    assert run("sweep", "--json", code=0).json["waiting"]["unknown_policy"] == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[policy.default.decide]\ntopk = 3", ["topk", "did you mean 'top_k'"]),
        ("[policy.default.decide]\ntop_k = 'many'", ["policy.default.decide.top_k"]),
        ("[policy.default.rerank]\nmodel = 'mine'", ["mine", "no such model"]),
        ("[store\n", ["TOML"]),
    ],
)
def test_a_wrong_configuration(home: Home, run: Callable[..., Any], config: str, words: list[str]) -> None:
    home.config.write_text(config)
    for command in (["sweep"], ["plan"], ["verdicts"], ["config", "check"]):
        said_well(run(*command, code=1), *words)
    assert any(c["state"] == "fail" for c in run("doctor", "--json", code=1).json["checks"])


@pytest.mark.usefixtures("home")
def test_a_configuration_that_is_not_there(run: Callable[..., Any]) -> None:
    said_well(run("sweep", "--config", "gone.toml", code=1), "gone.toml")


def test_a_model_path_that_is_not_there(home: Home, run: Callable[..., Any]) -> None:
    home.config.write_text(SMALL.replace('model = "lexical"', 'model = "./gone"'))
    run("import", "-", stdin='{"text": "a", "query": "q"}', code=0)
    said_well(run("models", "pull", code=1), "gone")
    assert "gone" in run("config", "check", code=1).stdout
    assert "gone" in run("models", "check", code=1).stdout
    assert "gone" in run("sweep", code=1).stderr


@pytest.mark.usefixtures("small")
def test_lengths_of_time_and_flags_that_exclude_each_other(run: Callable[..., Any]) -> None:
    said_well(run("sweep", "--max-runtime", "soon", code=1), "--max-runtime", "26h")
    said_well(run("status", "--max-age", "old", code=1), "--max-age")
    said_well(run("sweep", "--rejudge", "--redecide", code=1), "--rejudge")
    said_well(run("record", "--close", stdin="x", code=1), "--run or --group")


def test_wrong_usage_is_exit_2(run: Callable[..., Any]) -> None:
    for words in (["sweeep"], ["sweep", "--nowww"], ["explain"], ["verdicts", "--limit", "many"]):
        assert "Traceback" not in run(*words, code=2).stderr


# -------------------------------------------------------------------------------------- ledger


def test_a_ledger_that_is_no_duckdb_file(small: Home, run: Callable[..., Any]) -> None:
    small.ledger.write_text("not a database, but long enough to look at" * 100)
    for words in (["sweep"], ["verdicts"], ["status"]):
        said_well(run(*words, code=1), "ledger.duckdb", "not a DuckDB")
    assert "ledger" in {
        c["name"] for c in run("doctor", "--json", code=1).json["checks"] if c["state"] == "fail"
    }


def test_somebody_elses_database(small: Home, run: Callable[..., Any]) -> None:
    with duckdb.connect(str(small.ledger)) as other:
        other.execute("CREATE TABLE customers (name VARCHAR)")
    said_well(run("sweep", code=1), "no Afterpass ledger")


def test_a_ledger_from_a_newer_version(small: Home, run: Callable[..., Any]) -> None:
    run("import", "-", stdin='{"text": "a", "query": "q"}', code=0)
    with duckdb.connect(str(small.ledger)) as ledger:
        ledger.execute("INSERT INTO schema_version VALUES (999, 'later', now())")
    for words in (["sweep"], ["verdicts"], ["status"]):
        said_well(run(*words, code=1), "999", "pgrade")


def test_a_ledger_that_somebody_holds(small: Home, run: Callable[..., Any]) -> None:
    run("import", "-", stdin='{"text": "a", "query": "q"}', code=0)
    with duckdb.connect(str(small.ledger)):
        said = run("verdicts", code=75)
        said_well(said, str(os.getpid()))
        waits = run("import", "-", "--json", stdin='{"text": "b", "query": "q"}', code=0)
        assert str(os.getpid()) in waits.json["busy"]
    assert run("sweep", "--json", code=0).json["items"]["seen"] == 2


@pytest.mark.usefixtures("small")
def test_there_is_no_ledger_yet(run: Callable[..., Any]) -> None:
    for words in (
        ["verdicts"],
        ["summaries"],
        ["history"],
        ["explain", "i_0123456789ab"],
        ["quarantine", "list"],
    ):
        said_well(run(*words, code=1), "no ledger")


def test_a_spool_without_write_permission(small: Home, run: Callable[..., Any]) -> None:
    if os.geteuid() == 0:  # may write anywhere, but for what it gives up
        if not shutil.which("setpriv"):
            pytest.skip("root may write anywhere, and there is no setpriv to give that up")
        run = partial(run, under=("setpriv", "--bounding-set=-dac_override,-dac_read_search"))
    small.inbox.mkdir(parents=True)
    small.spool.chmod(0o500)
    try:
        said_well(run("record", stdin="x", code=1), "spool")
        said_well(run("import", "-", stdin='{"text": "a"}', code=1), "spool")
        assert any(c["state"] == "fail" for c in run("doctor", "--json", code=1).json["checks"])
    finally:
        small.spool.chmod(0o700)


def test_a_spool_that_cannot_be_a_folder(small: Home, run: Callable[..., Any]) -> None:
    small.spool.write_text("")
    said_well(run("import", "-", stdin='{"text": "a"}', code=1), "spool")


# ------------------------------------------------------------------------------- ways of ending


@pytest.mark.usefixtures("small")
def test_a_reader_that_went_away_is_no_error(
    run: Callable[..., Any], afterpass_command: Callable[..., list[str]]
) -> None:
    rows = "\n".join(json.dumps({"text": f"text {n} " * 50, "query": "q", "run": "r"}) for n in range(500))
    run("import", "-", stdin=rows, code=0)
    run("sweep", "--quiet", code=0)
    ended = subprocess.run(
        [
            "bash",
            "-o",
            "pipefail",
            "-c",
            f"{' '.join(afterpass_command('verdicts', '--json', '--text'))} | head -c 100",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout) == 100


@pytest.mark.usefixtures("small")
def test_a_bug_is_exit_70_with_a_traceback_and_where_to_report(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    # Stands in for a bug: a module that fails when the command imports it.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Finder:\n    def find_spec(self, name, *rest):\n"
        "        if name == 'afterpass.store.ledger': raise ZeroDivisionError('a bug')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    said = run("verdicts", env={"PYTHONPATH": str(tmp_path)}, code=70)
    assert "Traceback" in said.stderr
    assert "ZeroDivisionError" in said.stderr
    assert "report it" in said.stderr
    assert said.stdout == ""
