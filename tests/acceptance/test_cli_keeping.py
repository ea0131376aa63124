"""prune, erase, backup and restore, as people call them: nothing is done without --yes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.paths import Home


@pytest.fixture
def used(home: Home, run: Callable[..., Any], tmp_path: Path, no_models: str) -> str:
    """A home that was swept; returns a text of user 42's that is in it."""
    home.config.write_text(no_models)
    hidden = "the secret is " + secrets.token_urlsafe(3000)
    rows = [
        {"text": hidden, "query": "what is the secret?", "run": "a", "user": 42},
        {"text": "the secret of success is work", "query": "what is the secret?", "run": "a", "user": 7},
        {"text": "bread is baked", "query": "how is bread made?", "run": "b", "user": 7},
    ]
    lines = "".join(json.dumps({**row, "meta": {"user": row.pop("user")}}) + "\n" for row in rows)
    (tmp_path / "in.jsonl").write_text(lines)
    run("import", tmp_path / "in.jsonl", code=0)
    run("sweep", "--now", code=0)
    return hidden


def files(home: Home) -> dict[str, bytes]:
    found = (path for path in home.root.rglob("*") if path.is_file())
    return {str(path.relative_to(home.root)): path.read_bytes() for path in found}


def test_prune(used: str, home: Home, run: Callable[..., Any]) -> None:
    before = files(home)
    seen = run("prune", "--older-than", "0s", "--json", code=0).json
    assert (seen["version"], seen["dry_run"], seen["groups"], seen["items"]) == (1, True, 2, 3)
    assert sum(month["text_bytes"] for month in seen["months"]) > len(used)
    assert files(home) == before
    assert "would go" in run("prune", "--older-than", "0s", code=0).stdout
    assert run("prune", "--older-than", "90d", "--json", code=0).json["items"] == 0
    done = run("prune", "--older-than", "0s", "--keep-verdicts", "--yes", "--json", code=0).json
    assert (done["dry_run"], done["texts"], done["verdicts"]) == (False, 3, 0)
    rows = run("verdicts", "--json", "--text", code=0).json["verdicts"]
    assert [(row["text"], row["flags"]) for row in rows] == [(None, ["text_pruned"])] * 3
    assert "its text was pruned" in run("verdicts", code=0).stdout
    assert "was pruned" in run("explain", rows[0]["item"], code=0).stdout
    assert len(run("summaries", "--json", code=0).json["summaries"]) == 2
    run("sweep", "--now", "--redecide", code=0)
    run("prune", "--older-than", "0s", "--yes", code=0)
    assert run("verdicts", "--json", code=0).json["verdicts"] == []
    assert run("status", "--json", code=0).json["version"] == 1
    assert run("prune", "--older-than", "soon", code=1).stderr.startswith("afterpass: --older-than")


def test_erase(used: str, home: Home, run: Callable[..., Any]) -> None:
    before = files(home)
    assert any(used.encode() in content for content in before.values())
    seen = run("erase", "--where", "meta.user=42", "--json", code=0).json
    assert (seen["version"], seen["dry_run"], seen["items"], seen["summaries"]) == (1, True, 1, 1)
    assert files(home) == before
    said = run("erase", "--where", "meta.user=42", "--yes", code=0)
    assert "backups" in said.stderr
    assert not any(
        used[:80].encode() in content or used[500:600].encode() in content for content in files(home).values()
    )
    run("sweep", "--now", code=0)
    rows = run("summaries", "--run", "a", "--json", code=0).json["summaries"]
    assert rows
    assert all("secret is" not in row["text"] for row in rows)
    assert run("erase", code=1).stderr.startswith("afterpass: nothing says")
    assert run("erase", "--where", "1=1", "--yes", code=1)
    assert len(run("verdicts", "--json", code=0).json["verdicts"]) == 2


@pytest.mark.usefixtures("used")
def test_backup_and_restore(run: Callable[..., Any], tmp_path: Path) -> None:
    run("record", "--query", "how is bread made?", "--run", "b", stdin="yeast makes it rise", code=0)
    made = run("backup", tmp_path / "saved", "--json", code=0).json
    assert (made["version"], made["tables"]["item"], made["segments"]) == (1, 3, 1)
    assert run("backup", tmp_path / "saved", code=1).stderr.startswith("afterpass: ")
    run("sweep", "--now", code=0)
    was = run("verdicts", "--json", "--text", code=0).json["verdicts"]
    assert "there is a ledger" in run("restore", tmp_path / "saved", code=1).stderr
    new = tmp_path / "new"
    done = run("restore", tmp_path / "saved", "--home", new, "--json", code=0).json
    assert (done["tables"]["item"], done["replaced"]) == (3, None)
    run("sweep", "--now", "--home", new, code=0)
    now = run("verdicts", "--json", "--text", "--home", new, code=0).json["verdicts"]
    assert sorted(row["text"] for row in now) == sorted(row["text"] for row in was)
    assert len(now) == 4
    assert run("restore", tmp_path / "saved", "--yes", "--json", code=0).json["replaced"]
    assert len(run("verdicts", "--json", code=0).json["verdicts"]) == 3
