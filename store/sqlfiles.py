"""Named SQL from the `.sql` files of this folder: `-- name: x` starts a statement that code calls by name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def _statements(file: str) -> dict[str, str]:
    text = (resources.files("afterpass.store") / "sql" / f"{file}.sql").read_text("utf-8")
    blocks = re.split(r"^-- name: (\w+)\s*$", text, flags=re.MULTILINE)
    return {name: body.strip().rstrip(";") for name, body in zip(blocks[1::2], blocks[2::2], strict=True)}


def sql(name: str) -> str:
    """The statement that goes by `file.name`, such as "plan.due_groups".

    Raises:
        KeyError: there is none.
    """
    file, _, statement = name.partition(".")
    return _statements(file)[statement]


@cache
def migrations() -> tuple[tuple[int, str, str], ...]:
    """Every migration in order: (version, name, SQL). Versions count from 1 without a gap."""
    folder = resources.files("afterpass.store") / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    steps = tuple((int(name[:4]), name[5:-4], (folder / name).read_text("utf-8")) for name in found)
    assert [version for version, _, _ in steps] == list(range(1, len(steps) + 1)), "migrations have a gap"
    return steps


def schema_version() -> int:
    """The version that this code reads and writes."""
    return migrations()[-1][0]
