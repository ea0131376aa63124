"""A disk that is full while a sweep writes: it says so by name, and nothing is lost or done twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GAME = Path(__file__).with_name("ledger_on_a_full_disk.py")


def play(disk: Path, step: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, GAME, disk, str(step)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    account: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert account["wrong"] == {}, account
    assert account["lost"] == account["doubled"] == 0, account
    assert account["ended"]["StoreError"] > 0, account
    return account


def test_a_full_disk_loses_nothing(disk: Path) -> None:
    play(disk, step=800)


@pytest.mark.faults
@pytest.mark.timeout(700)
def test_every_amount_of_room_loses_nothing(disk: Path) -> None:
    assert play(disk, step=130)["ended"]["done"] > 5
