"""Files into items: containers, encodings, fields, and what is wrong with a record."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterpass.core.errors import InputError
from afterpass.core.types import Item
from afterpass.store.formats import Bad, FieldMap, Options, Skipped, read

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file and give its path."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path

    return make


def items(path: Path, **options: Any) -> list[Item]:
    found = list(read(path, Options(**options)))
    assert all(isinstance(one, Item) for one in found), found
    return found  # type: ignore[return-value]


def texts(path: Path, **options: Any) -> list[str]:
    return [item.text for item in items(path, **options)]


def reasons(path: Path, **options: Any) -> list[str]:
    return [one.reason for one in read(path, Options(**options)) if isinstance(one, Bad)]


# ------------------------------------------------------------------------------------- lines


def test_only_a_line_feed_ends_a_line(write: Write) -> None:
    strange = "one\u2028two\u2029three\x85four\x0bfive"
    path = write("a.jsonl", json.dumps({"text": strange}, ensure_ascii=False) + '\n{"text": "next"}\n')
    assert texts(path) == [strange, "next"]


def test_carriage_returns_blank_lines_and_a_mark_at_the_start(write: Write) -> None:
    path = write("a.jsonl", '\ufeff{"text": "a"}\r\n\r\n  \n{"text": "b"}\r\n')
    assert texts(path) == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_with_and_without_a_mark(write: Write, encoding: str) -> None:
    path = write("a.jsonl", '{"text": "日本 \u2028 𝄞"}\n{"text": "b"}'.encode(encoding))
    assert texts(path) == ["日本 \u2028 𝄞", "b"]


def test_a_torn_utf_16_file_costs_its_last_line(write: Write) -> None:
    path = write("a.jsonl", '{"text": "a"}\n{"text": "b"}\n'.encode("utf-16") + b"\x00")
    found = list(read(path))
    assert [one.text for one in found if isinstance(one, Item)] == ["a", "b"]
    assert reasons(path) == ["not_utf8"]


def test_gzip_and_zstd_whatever_the_name(write: Write) -> None:
    plain = b'{"text": "a"}\n{"text": "b"}\n'
    assert texts(write("a.jsonl.gz", gzip.compress(plain))) == ["a", "b"]
    assert texts(write("b.jsonl", gzip.compress(plain))) == ["a", "b"]
    packed = pa.compress(plain, codec="zstd", asbytes=True)
    assert texts(write("c.jsonl.zst", packed)) == ["a", "b"]


def test_a_broken_gzip_is_said(write: Write) -> None:
    path = write("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 9999)[:40])
    with pytest.raises(InputError, match="breaks off"):
        list(read(path))


def test_a_line_of_fifty_megabytes(write: Write) -> None:
    long = "x" * (50 * 2**20)
    path = write("a.jsonl", json.dumps({"text": long}) + '\n{"text": "after"}\n')
    assert [len(text) for text in texts(path)] == [len(long), 5]


def test_what_is_bad_costs_its_own_line_and_keeps_its_bytes(write: Write) -> None:
    path = write(
        "a.jsonl",
        b'{"text": "first"}\nnot json\n{"text": "bad \xff byte"}\n["a list"]\n{"query": "q"}\n'
        b'{"text": 7}\n{"text": "t", "priority": "high"}\n{"text": "last"}\n{"text": "half a li',
    )
    found = list(read(path))
    assert [one.text for one in found if isinstance(one, Item)] == ["first", "last"]
    bad = [one for one in found if isinstance(one, Bad)]
    assert [(one.line, one.reason) for one in bad] == [
        (2, "not_json"), (3, "not_utf8"), (4, "no_text"), (5, "no_text"), (6, "wrong_type"),
        (7, "wrong_type"), (9, "not_json"),
    ]  # fmt: skip
    assert bad[0].raw == b"not json"
    assert bad[1].raw == b'{"text": "bad \xff byte"}'
    assert '"priority"' in bad[5].detail


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_beyond_json_are_refused(write: Write, number: str) -> None:
    assert reasons(write("a.jsonl", f'{{"text": "a", "meta": {{"x": {number}}}}}\n')) == ["not_json"]


def test_nesting_without_end_is_refused_and_its_neighbours_live(write: Write) -> None:
    path = write(
        "a.jsonl", "[" * 100_000 + '\n{"text": "a", "deep": ' + "[" * 400 + "]" * 400 + '}\n{"text": "b"}'
    )
    assert reasons(path) == ["not_json", "not_json"]
    assert [one.text for one in read(path) if isinstance(one, Item)] == ["b"]


# ------------------------------------------------------------------------------------ fields


def test_a_record_in_our_own_names(write: Write) -> None:
    record = {
        "text": "t", "query": "q", "group": "g", "run": 7, "step": 3, "kind": "passage", "agent": "a",
        "policy": "strict", "namespace": "n", "id": "mine", "created_at": "2026-01-02T03:04:05+01:00",
        "priority": 2, "deadline": 1767322800, "meta": {"k": [1]}, "other": "kept",
    }  # fmt: skip
    (item,) = items(write("a.jsonl", json.dumps(record)))
    assert (item.query, item.group, item.run, item.step, item.kind) == ("q", "g", "7", "3", "passage")
    assert (item.agent, item.policy, item.namespace, item.priority) == ("a", "strict", "n", 2)
    assert item.created_at == datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)
    assert item.deadline == datetime.fromtimestamp(1767322800, UTC)
    assert item.meta == {"k": [1], "other": "kept"}


def test_what_the_caller_says_fills_in_and_does_not_override(write: Write) -> None:
    path = write("a.jsonl", '{"text": "a", "query": "own"}\n{"text": "b", "query": "  "}\n{"text": "c"}\n')
    found = items(path, defaults={"query": "given", "run": "r"})
    assert [item.query for item in found] == ["own", "given", "given"]
    assert {item.run for item in found} == {"r"}


def test_empty_and_blank_texts_are_items(write: Write) -> None:
    assert texts(write("a.jsonl", '{"text": ""}\n{"text": " \\n "}\n')) == ["", " \n "]


def test_nul_is_kept_and_lone_surrogates_are_replaced_both_flagged(write: Write) -> None:
    lines = ['{"text": "a\\u0000b"}', '{"text": "a\\ud800b", "id": "\\ud801"}', '{"text": "\\ud834\\udd1e"}']
    found = items(write("a.jsonl", "\n".join(lines)))
    assert [item.text for item in found] == ["a\0b", "a\ufffdb", "𝄞"]
    assert [item.flags for item in found] == [("nul",), ("lone_surrogate",), ()]


def test_ids_are_the_same_on_every_reading_and_differ_between_records(write: Write) -> None:
    content = '{"text": "a"}\n{"text": "a"}\n{"text": "a", "id": "mine"}\n'
    first = [item.item_id for item in items(write("a.jsonl", content))]
    again = [item.item_id for item in items(write("elsewhere.jsonl", content))]
    assert first == again
    assert len(set(first)) == 3


def test_a_query_mapped_later_finds_the_same_items_another_text_makes_others(write: Write) -> None:
    path = write("a.jsonl", '{"body": "a", "title": "t"}\n')

    def ids(*mapping: str) -> list[Any]:
        return [item.item_id for item in items(path, mapping=FieldMap.parse(mapping))]

    assert ids("text=body") == ids("text=body", "query=title")
    assert ids("text=body") != ids("text=title")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", 3),
        ("meta", "x"),
        ("created_at", "yesterday"),
        ("deadline", True),
        ("priority", 1.5),
        ("step", [1]),
    ],
)
def test_a_field_of_another_kind_is_named(write: Write, field: str, value: object) -> None:
    (bad,) = read(write("a.jsonl", json.dumps({"text": "t", field: value})))
    assert isinstance(bad, Bad)
    assert (bad.reason, f'"{field}"' in bad.detail) == ("wrong_type", True)


# ----------------------------------------------------------------------------------- mapping


def test_paths_literals_metadata_and_structured_texts(write: Write) -> None:
    path = write("a.jsonl", '{"out": {"v": [1, "é"]}, "q": {"text": "why"}, "n": 5}\n')
    mapping = FieldMap.parse(["text=out", "query=q.text", "kind='answer'", "meta.n=n", "meta.gone=x.y"])
    (item,) = items(path, mapping=mapping)
    assert (item.text, item.query, item.kind) == ('{"v":[1,"é"]}', "why", "answer")
    assert item.meta == {"n": 5, "gone": None}


def test_levels_parents_and_parallel_lists(write: Write) -> None:
    document = {"q": "why", "runs": [{"name": "r", "texts": ["a", "b"], "scores": [0.5, 0.25]}]}
    mapping = FieldMap.parse(
        ["items=runs > texts[]", "text=@", "query=^^q", "run=^name", "meta.score=^scores[#]", "step=^missing"]
    )
    found = items(write("a.json", json.dumps(document)), mapping=mapping)
    assert [(item.text, item.query, item.run, item.meta) for item in found] == [
        ("a", "why", "r", {"score": 0.5}),
        ("b", "why", "r", {"score": 0.25}),
    ]


def test_trees_are_walked_however_deep(write: Write) -> None:
    tree: dict[str, Any] = {"t": "leaf"}
    for depth in range(90):
        tree = {"t": None if depth % 2 else f"node {depth}", "kids": [tree]}
    found = list(
        read(write("a.json", json.dumps(tree)), Options(mapping=FieldMap.parse(["text=t", "children=kids"])))
    )
    assert sum(isinstance(one, Item) for one in found) == 46
    assert {one.reason for one in found if isinstance(one, Skipped)} == {"node without text"}
    assert [one.step for one in found if isinstance(one, Item)][:2] == ["0.0", "0.0.0.0"]


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (["text"], "no assignment"),
        (["text=[[["], "no JMESPath"),
        (["texts=a"], "did you mean 'text'"),
        (["query=a"], "names no text"),
    ],
)
def test_a_wrong_mapping_is_said_before_anything_is_read(mapping: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("[", r"\[")):
        FieldMap.parse(mapping)


# ------------------------------------------------------------------------------------ tables


def test_csv_with_quotes_newlines_and_a_bad_row(write: Write) -> None:
    path = write("a.csv", 'text;query;n\n"two\nlines; and ""quotes""";q;1\nonly one cell\nb;;2\n')
    found = list(read(path))
    assert [(one.text, one.query, one.meta) for one in found if isinstance(one, Item)] == [
        ('two\nlines; and "quotes"', "q", {"n": "1"}),
        ("b", None, {"n": "2"}),
    ]
    assert [(one.line, one.reason) for one in found if isinstance(one, Bad)] == [(4, "columns")]


def test_csv_columns_by_map(write: Write) -> None:
    path = write("a.tsv", "Tool Output\tAsked\nfound it\twhere is it\n")
    (item,) = items(path, mapping=FieldMap.parse(['text="Tool Output"', "query=Asked"]))
    assert (item.text, item.query) == ("found it", "where is it")


def test_parquet_rows_lists_times_and_nan(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", None, "c"],
            "created_at": [datetime(2026, 1, 1), None, None],
            "meta": [{"score": float("nan")}, None, {"score": 1.0}],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found = list(read(tmp_path / "a.parquet"))
    assert [type(one).__name__ for one in found] == ["Item", "Bad", "Item"]
    assert isinstance(found[0], Item)
    assert found[0].meta == {"score": None}
    assert found[0].created_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_file_that_is_not_parquet_is_said(write: Write) -> None:
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(read(write("a.parquet", b"PAR1 but no more")))


def test_a_text_file_is_one_item(write: Write) -> None:
    (item,) = items(write("notes.md", "# Title\n\nBody\n"), defaults={"query": "q"})
    assert (item.text, item.kind, item.step, item.query) == ("# Title\n\nBody\n", "document", "notes.md", "q")


# --------------------------------------------------------------------------------- detection


def test_one_document_lines_without_a_suffix_and_a_list(write: Write) -> None:
    assert texts(write("a", '{"text": "a"}\n{"text": "b"}\n')) == ["a", "b"]
    assert texts(write("b", '[{"text": "a"},\n {"text": "b"}]')) == ["a", "b"]
    assert texts(write("c.json", '{\n "text": "a"\n}')) == ["a"]


def test_lines_whose_first_is_damaged_are_lines_still(write: Write) -> None:
    path = write("a.json", '{"text": "to\n{"text": "b"}\n{"text": "c"}\n')
    assert reasons(path) == ["not_json"]
    assert [one.text for one in read(path) if isinstance(one, Item)] == ["b", "c"]


def test_a_missing_file_a_folder_and_an_unknown_format(tmp_path: Path, write: Write) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(read(tmp_path / "gone.jsonl"))
    with pytest.raises(InputError, match="is a folder"):
        list(read(tmp_path))
    with pytest.raises(InputError, match="did you mean 'jsonl'"):
        list(read(write("a", "{}"), Options(format="jsonll")))
