"""kill -9 of agents, sweeps and imports at every named moment of the store: the books add up at the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from afterpass.core.paths import Home
from afterpass.store.ledger_commit import APPLY

GAME = Path(__file__).with_name("ledger_under_fire.py")
STORE = Path(__file__).parents[2] / "store"


def play(home: Home, kills: int, seed: int) -> dict[str, Any]:
    """The game in a process of its own, which must be able to fork."""
    done = subprocess.run(
        [sys.executable, GAME, home.root, str(kills), str(seed)], capture_output=True, text=True, timeout=2400
    )
    assert done.returncode == 0, done.stderr
    account: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert account["wrong"] == {}, account
    assert account["lost"] == account["doubled"] == 0, account
    assert account["acknowledged"] > 0, account
    return account


def named_moments() -> set[str]:
    """Every moment of what agents and sweeps do; the spool and keeping have tests of their own."""
    found = {
        name
        for path in STORE.glob("*.py")
        for name in re.findall(
            r'failpoints\.hit\("((?:ledger|ingest|export|outbox)\.\w+)"\)', path.read_text()
        )
    }
    return found | {f"commit.{kind}" for kind in APPLY}


def test_kills_leave_the_books_in_order(home: Home) -> None:
    assert play(home, 10, seed=3)["kills"] >= 10


def test_every_named_moment_of_the_ledger_is_aimed_at() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import ledger_under_fire as game; print(*game.MOMENTS)"],
        cwd=GAME.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert set(said.stdout.split()) == named_moments()
