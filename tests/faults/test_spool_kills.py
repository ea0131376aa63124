"""kill -9 of recorders and adopters, at random and at every named moment: nothing acknowledged is lost."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from afterpass.core.paths import Home

GAME = Path(__file__).with_name("spool_under_fire.py")
STORE = Path(__file__).parents[2] / "store"


def play(home: Home, kills: int, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, GAME, home.root, str(kills), str(seed)], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    account: dict[str, Any] = json.loads(done.stdout)
    assert account["lost"] == 0, account
    assert account["doubled"] == 0, account
    assert account["acknowledged"] > 0, account
    return account


def test_kills_lose_nothing_acknowledged(home: Home) -> None:
    account = play(home, 60, seed=1)
    assert account["kills"] == 60


def test_every_named_moment_is_aimed_at() -> None:
    spec = importlib.util.spec_from_file_location("spool_under_fire", GAME)
    assert spec is not None
    assert spec.loader is not None
    game = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(game)
    assert {*game.WRITING, *game.ADOPTING} == named_moments()


def named_moments() -> set[str]:
    return {
        name
        for path in STORE.glob("spool_*.py")
        for name in re.findall(r'failpoints\.hit\("([\w.]+)"\)', path.read_text("utf-8"))
    }
