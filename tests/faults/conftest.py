"""The last line of a long run says in JSON what it came to."""

from __future__ import annotations

import json
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
