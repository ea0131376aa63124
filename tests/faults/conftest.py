"""Disks that can be filled, and the last line of a long run, which says in JSON what it came to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ACCOUNT = pytest.StashKey[dict[str, Any]]()


@pytest.fixture(scope="session")
def account(pytestconfig: pytest.Config) -> dict[str, Any]:
    """What is printed, as one line of JSON, after everything else."""
    return pytestconfig.stash.setdefault(ACCOUNT, {})


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the account, where there is one."""
    if told := config.stash.get(ACCOUNT, {}):
        print(json.dumps(told))


@contextmanager
def mounted(path: Path, size: str) -> Iterator[Path]:
    """A file system of its own at `path`; skips the test where none can be mounted."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """16 MB: room for a ledger."""
    with mounted(tmp_path / "disk", "16m") as path:
        yield path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """256 KB: room for a few segments."""
    with mounted(tmp_path / "disk", "256k") as path:
        yield path
