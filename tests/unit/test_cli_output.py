"""What commands print: JSON without NaN, text that cannot move a cursor, times and sizes for people."""

from __future__ import annotations

import json
import math
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterpass.cli.config import toml
from afterpass.cli.output import (
    cell,
    dumps,
    emit,
    emit_rows,
    jsonable,
    one_line,
    printable,
    size,
    span,
    table,
)
from afterpass.core.config import Config, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.uuids() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_is_one_line_of_strict_json(value: object) -> None:
    line = dumps(value)
    assert len(line.splitlines()) == 1
    json.loads(line, parse_constant=pytest.fail)


def test_nan_and_infinity_are_null_and_ids_and_times_are_text() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    uid = UUID(int=7)
    assert jsonable([math.nan, math.inf, 1.5, uid, moment, timedelta(minutes=1), Path("a"), b"b"]) == [
        None, None, 1.5, str(uid), "2026-01-02T00:00:00+00:00", 60.0, "a", "b",
    ]  # fmt: skip


def test_documents_carry_their_version(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": 1})
    emit_rows("rows", ({"n": n} for n in range(3)), about="x")
    emit_rows("rows", [])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"version": 1, "a": 1},
        {"version": 1, "about": "x", "rows": [{"n": 0}, {"n": 1}, {"n": 2}]},
        {"version": 1, "rows": []},
    ]


@given(st.text())
def test_printable_text_has_no_controls_but_tab_and_newline(text: str) -> None:
    shown = printable(text)
    assert not any((ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


@given(st.text(), st.integers(min_value=2, max_value=200))
def test_one_line_is_one_line_of_that_width(text: str, width: int) -> None:
    shown = one_line(text, width)
    assert len(shown) <= width
    assert len(shown.splitlines()) <= 1


def test_a_table_for_a_pipe_is_tab_separated(capsys: pytest.CaptureFixture[str]) -> None:
    table(["a", "b"], [[1, "x\ty\nz"], [None, "\x1b[31mred"]])
    assert capsys.readouterr().out == "a\tb\n1\tx y z\n-\t\u241b[31mred\n"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (42, "42 s"),
        (200, "3 m 20 s"),
        (3600, "1 h"),
        (187_200, "2 d 4 h"),
        (-5, "-5.0 s"),
    ],
)
def test_lengths_of_time(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_sizes_and_cells() -> None:
    assert [size(n) for n in (0, 1023, 1536, 3 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
    values = (None, True, 12345, 0.123456, {"a": 1, "b": [2]}, ())
    assert [cell(value) for value in values] == ["-", "yes", "12,345", "0.123", "a 1, b 2", "-"]


def test_the_configuration_as_toml_reads_back_the_same() -> None:
    config = parse(
        {
            "store": {"settle": "90s"},
            "schedule": {"windows": ["22:00-06:00"]},
            "summarize": {
                "models": {"my model": {"model": 'a "quoted" name', "engine": {"a": 1, "b": [True, "x"]}}}
            },
            "policy": {"default": {"summarize": {"model": "my model", "output_schema": {"type": "object"}}}},
        }
    )
    text = "\n".join(toml(config.model_dump()))
    assert Config.model_validate(tomllib.loads(text)) == config
