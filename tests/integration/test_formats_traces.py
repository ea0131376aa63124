"""Real traces import as docs/formats.md says, count by count."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from afterpass.core.config import StoreConfig
from afterpass.core.paths import Home
from afterpass.core.types import Item
from afterpass.store.formats import Bad, FieldMap, Options, read
from afterpass.store.importer import import_files
from afterpass.store.ledger import Ledger

DOCS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def documented() -> list[list[str]]:
    """The table's rows: file, options, and the counts as text."""
    table = DOCS.read_text("utf-8").partition("<!-- traces -->")[2].partition("<!-- end of traces -->")[0]
    lines = [line for line in table.strip().splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def options_of(text: str) -> Options:
    words = shlex.split(text.replace("\\|", "|"))
    maps = [after for flag, after in pairwise(words) if flag == "--map"]
    return Options(mapping=FieldMap.parse(maps) if maps else None)


def counted(folder: Path, pattern: str, options: Options) -> list[str]:
    """The counts of a row, written as the table writes them."""
    items = no_query = 0
    groups, bad, skipped = set(), Counter[str](), Counter[str]()
    files = sorted(folder.glob(pattern))
    assert files, f"no file is {pattern}"
    for path in files:
        for found in read(path, options):
            if isinstance(found, Item):
                items += 1
                no_query += found.query is None
                groups.add(found.group_id)
            elif isinstance(found, Bad):
                bad[found.reason] += 1
            else:
                skipped[found.reason] += 1
    return [str(items), str(len(groups)), str(no_query), told(bad), told(skipped)]


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "0"


@pytest.mark.parametrize("row", documented(), ids=lambda row: row[0].rsplit("/", 1)[-1])
def test_a_trace_comes_to_what_the_table_says(row: list[str], traces: Path) -> None:
    pattern, options, *counts = row
    assert counted(traces, pattern, options_of(options)) == counts


def test_the_table_names_every_file(traces: Path) -> None:
    named = {path for pattern, *_ in documented() for path in traces.glob(pattern)}
    assert {path for path in traces.rglob("*") if path.is_file()} - named == set()


def test_all_of_them_go_into_one_ledger_and_the_books_add_up(traces: Path, home: Home) -> None:
    files = [
        (str(path), read(path, options_of(options)))
        for pattern, options, *_ in documented()
        for path in sorted(traces.glob(pattern))
    ]
    report = import_files(home, StoreConfig(), files)
    assert report.ingested is not None
    quarantined = sum(report.bad.values())
    assert report.ingested.quarantined == quarantined
    assert report.ingested.rows == report.items, "each item is new, and none conflicts"
    with Ledger.open(home.ledger, read_only=True) as ledger:
        status = ledger.status(datetime.now(UTC))
    assert status["items"]["total"] == report.items
    assert status["items"]["no_query"] == report.no_query
    assert status["groups"]["total"] == report.groups
    assert status["quarantined"] == quarantined


@pytest.mark.parametrize("kind", ["y", "n", "i"])
def test_json_test_suite_as_lines(kind: str, traces: Path, tmp_path: Path) -> None:
    documents = sorted((traces / "nst__JSONTestSuite" / "test_parsing").glob(f"{kind}_*.json"))
    target = tmp_path / "all.jsonl"
    for document in documents:
        target.write_bytes(document.read_bytes().replace(b"\n", b" ") + b"\n")
        reasons = {found.reason for found in read(target) if isinstance(found, Bad)}
        if kind == "i":  # either will do; a crash will not
            continue
        assert len(list(read(target))) <= 1, document.name
        if kind == "y":
            assert reasons == {"no_text"}, document.name
        else:
            assert reasons <= {"not_json", "not_utf8"}, document.name
            assert reasons or not document.read_bytes().strip(b"\xef\xbb\xbf \n"), document.name
