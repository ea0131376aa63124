"""`make test-faults`: KILLS kills (300), half of the spool and half of the ledger, and their account."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from afterpass.core.paths import Home

KILLS = int(os.environ.get("KILLS", "300"))
SEED = int(os.environ.get("SEED", "2"))


def load(name: str) -> Any:
    """A test file beside this one, for its `play` and `named_moments`."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.faults
@pytest.mark.timeout(5400)
def test_many_kills_lose_nothing_and_double_nothing(tmp_path: Path, account: dict[str, Any]) -> None:
    aimed, parts, wanted = Counter[str](), {}, set[str]()
    for name in ("spool", "ledger"):
        game = load(f"test_{name}_kills")
        home = Home(tmp_path / name)
        home.root.mkdir()
        parts[name] = part = game.play(home, KILLS // 2, SEED)
        aimed.update(part.pop("aimed"))
        wanted |= game.named_moments()
    for what in ("kills", "random", "acknowledged", "stored", "lost", "doubled"):
        account[what] = sum(part[what] for part in parts.values())
    account["aimed"] = dict(sorted(aimed.items()))
    account["parts"] = parts
    if KILLS >= 600:
        assert wanted - {moment.rstrip("+") for moment in aimed} == set()
