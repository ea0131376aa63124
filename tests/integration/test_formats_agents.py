"""Agents' own logs into items: chats, SWE-agent, Inspect, OpenTelemetry."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afterpass.core.errors import InputError
from afterpass.core.types import Item
from afterpass.store.formats import Bad, Options, Skipped, read

CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "where is it"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": '{"q": "it"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "it is here"},
    {"role": "assistant", "content": "here"},
]


def found(path: Path, value: Any, **options: Any) -> list[Any]:
    path.write_text(json.dumps(value), "utf-8")
    return list(read(path, Options(**options)))


def items(results: list[Any]) -> list[Item]:
    return [one for one in results if isinstance(one, Item)]


# ------------------------------------------------------------------------------------ chats


@pytest.mark.parametrize("value", [CHAT, {"messages": CHAT, "tools": []}, [{"traj": CHAT}]])
def test_tool_results_of_a_chat(tmp_path: Path, value: Any) -> None:
    results = found(tmp_path / "chat.json", value)
    (item,) = items(results)
    assert (item.text, item.query, item.kind, item.agent, item.step) == (
        "it is here", "where is it", "tool_output", "search", "3",
    )  # fmt: skip
    assert item.meta == {"tool_call_id": "c1", "arguments": '{"q": "it"}'}
    assert (item.run or "").startswith("chat")
    assert sorted(one.reason for one in results if isinstance(one, Skipped)) == [
        "assistant message", "assistant message", "system message", "user message",
    ]  # fmt: skip


def test_conversations_a_line_each_with_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    lines = [json.dumps({"id": name, "messages": CHAT}) for name in ("one", "two")]
    path.write_text("\n".join(lines))
    assert [item.run for item in items(list(read(path)))] == ["one", "two"]


def test_the_query_that_was_given_beats_the_guessed_one(tmp_path: Path) -> None:
    (item,) = items(found(tmp_path / "a.json", CHAT, defaults={"query": "given"}))
    assert item.query == "given"


def test_a_tool_message_without_content_is_quarantined_alone(tmp_path: Path) -> None:
    results = found(tmp_path / "a.json", [*CHAT, {"role": "tool", "content": None}])
    assert len(items(results)) == 1
    (bad,) = [one for one in results if isinstance(one, Bad)]
    assert bad.reason == "no_text"


def test_anthropic_and_responses_shapes(tmp_path: Path) -> None:
    anthropic = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "fetch", "input": {"u": 1}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "page"}]},
    ]
    responses = [
        {"role": "user", "content": "q"},
        {"type": "function_call", "call_id": "f1", "name": "fetch", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "f1", "output": "page"},
    ]
    for value in (anthropic, responses):
        (item,) = items(found(tmp_path / "a.json", value))
        assert (item.text, item.query, item.agent) == ("page", "q", "fetch")


# ------------------------------------------------------------------------- SWE-agent, Inspect


def test_a_trajectory(tmp_path: Path) -> None:
    trajectory = {
        "environment": "env",
        "history": [{"role": "system", "content": "s"}, {"role": "user", "content": "fix it"}],
        "trajectory": [
            {"action": "ls", "observation": "a.py", "thought": "look"},
            {"action": "cat a.py", "observation": "\x1b[31mred\x1b[0m"},
        ],
    }
    results = items(found(tmp_path / "try-1.traj", trajectory))
    assert [(i.text, i.query, i.run, i.step) for i in results] == [
        ("a.py", "fix it", "try-1", "0"),
        ("\x1b[31mred\x1b[0m", "fix it", "try-1", "1"),
    ]
    assert results[0].meta == {"action": "ls", "thought": "look"}


SAMPLE = {
    "id": "s1",
    "epoch": 2,
    "input": "where is it",
    "messages": [*CHAT[2:3], {"role": "tool", "tool_call_id": "c1", "content": "attachment://abc"}],
    "attachments": {"abc": "a long text"},
}
HEADER = {"version": 2, "status": "success", "eval": {"run_id": "r", "task": "t", "model": "m"}, "plan": {}}


def test_an_inspect_log_in_json_with_attachments(tmp_path: Path) -> None:
    (item,) = items(found(tmp_path / "log.json", {**HEADER, "samples": [SAMPLE]}))
    assert (item.text, item.query, item.run, item.agent) == ("a long text", "where is it", "r/s1/2", "search")
    assert (item.meta["task"], item.meta["model"], item.meta["sample"]) == ("t", "m", "s1")


def test_an_eval_file_packed_by_zip_or_zstd(tmp_path: Path) -> None:
    plain = tmp_path / "plain.eval"
    with zipfile.ZipFile(plain, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", json.dumps(HEADER))
        packed.writestr("samples/s1_epoch_2.json", json.dumps(SAMPLE))
        packed.writestr("samples/s2_epoch_1.json", "{ no json")
    results = list(read(plain))
    assert [item.text for item in items(results)] == ["a long text"]
    assert [one.reason for one in results if isinstance(one, Bad)] == ["not_json"]
    zstd = tmp_path / "zstd.eval"
    zstd.write_bytes(zip_by_zstd({"header.json": HEADER, "samples/s1_epoch_2.json": SAMPLE}))
    assert [item.text for item in items(list(read(zstd)))] == ["a long text"]


def zip_by_zstd(files: dict[str, Any]) -> bytes:
    """A zip whose members are packed with zstd (method 93), as Inspect writes them."""
    import io
    import struct
    import zlib

    contents = {name: json.dumps(value).encode() for name, value in files.items()}
    packed = {name: pa.compress(raw, codec="zstd", asbytes=True) for name, raw in contents.items()}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, raw in packed.items():
            archive.writestr(name, raw)
    data = bytearray(target.getvalue())
    # The library cannot write the method: say it afterwards, in each member's two headers.
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = 0
        for name, raw in contents.items():
            start = data.index(mark, start)
            struct.pack_into("<H", data, start + offset, 93)
            struct.pack_into("<I", data, start + offset + 6, zlib.crc32(raw))
            struct.pack_into("<I", data, start + offset + 14, len(raw))
            start += 4
            assert name.encode() in data
    return bytes(data)


@pytest.mark.parametrize("packed_by", ["zip", "zstd"])
def test_a_damaged_sample_costs_itself_alone(tmp_path: Path, packed_by: str) -> None:
    path, names = tmp_path / "a.eval", [f"samples/s{number}_epoch_1.json" for number in range(3)]
    if packed_by == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("header.json", json.dumps(HEADER))
            for name in names:
                packed.writestr(name, json.dumps(SAMPLE))
    else:
        path.write_bytes(zip_by_zstd({"header.json": HEADER, **dict.fromkeys(names, SAMPLE)}))
    with zipfile.ZipFile(path) as packed:
        entry = packed.getinfo(names[1])
    data = bytearray(path.read_bytes())
    start = entry.header_offset + 30 + len(entry.filename)
    for place in range(start, start + 20):
        data[place] ^= 0xFF
    path.write_bytes(data)
    results = list(read(path))
    assert [item.text for item in items(results)] == ["a long text"] * 2
    (bad,) = [one for one in results if isinstance(one, Bad)]
    assert (bad.where, bad.reason) == (names[1], "damaged")
    assert bad.raw == data[start : start + entry.compress_size]


def test_a_zip_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.eval").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(InputError, match="Inspect log"):
        list(read(tmp_path / "a.eval"))


# ------------------------------------------------------------------------------------- OTLP


def attributes(**values: Any) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in values.items()]


def span(span_id: str, parent: str = "", **values: Any) -> dict[str, Any]:
    return {
        "traceId": "AB" * 16,
        "spanId": span_id * 8,
        "parentSpanId": parent * 8,
        "name": "span",
        "startTimeUnixNano": "1767322800000000000",
        "attributes": attributes(**values),
    }


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


AGENT = span(
    "a1", gen_ai__input__messages='[{"role": "user", "parts": [{"type": "text", "content": "where is it"}]}]'
)
TOOL = span(
    "b2", "a1",
    gen_ai__tool__call__result="it is here", gen_ai__tool__name="search", gen_ai__conversation__id="talk",
)  # fmt: skip
RETRIEVER = span(
    "c3", "a1",
    openinference__span__kind="RETRIEVER", input__value="it",
    retrieval__documents__0__document__content="first",
    retrieval__documents__1__document__content="second", retrieval__documents__1__document__id="d2",
)  # fmt: skip


def test_tools_and_retrievers_in_both_conventions(tmp_path: Path) -> None:
    # Children end, and so are exported, before their parents.
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(json.dumps(export(one)) for one in (TOOL, RETRIEVER, AGENT)))
    results = list(read(path))
    assert [(i.text, i.query, i.run, i.kind) for i in items(results)] == [
        ("it is here", "where is it", "talk", "tool_output"),
        ("first", "it", "ab" * 16, "passage"),
        ("second", "it", "ab" * 16, "passage"),
    ]
    assert items(results)[2].meta == {"id": "d2"}
    assert [one.reason for one in results if isinstance(one, Skipped)] == ["span without text"]


def test_a_span_that_was_exported_twice_has_one_id(tmp_path: Path) -> None:
    one, two = items(found(tmp_path / "a.json", export(TOOL, TOOL)))
    assert one.item_id == two.item_id


def test_spans_without_content_are_said_and_not_quarantined(tmp_path: Path) -> None:
    results = found(tmp_path / "a.json", export(span("d4", gen_ai__tool__name="search")))
    assert [type(one).__name__ for one in results] == ["Skipped"]


@pytest.mark.parametrize("delimited", [False, True])
def test_protobuf_says_the_same_as_json(tmp_path: Path, delimited: bool) -> None:
    import base64

    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

    document = export(TOOL, RETRIEVER, AGENT)
    in_protobuf = json.loads(json.dumps(document))
    for one in in_protobuf["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):  # protobuf's own JSON has base64 there
            one[name] = base64.b64encode(bytes.fromhex(one[name])).decode()
    request = service.ExportTraceServiceRequest()
    json_format.ParseDict(in_protobuf, request)
    raw = request.SerializeToString()
    assert len(raw) > 127
    if delimited:
        raw = (bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7]) + raw) * 2
    (tmp_path / "traces.binpb").write_bytes(raw)
    from_json = items(found(tmp_path / "a.json", document))
    from_protobuf = items(list(read(tmp_path / "traces.binpb")))
    told = [(i.item_id, i.text, i.query, i.run, i.created_at) for i in from_json]
    assert [(i.item_id, i.text, i.query, i.run, i.created_at) for i in from_protobuf] == told * (
        1 + delimited
    )


def test_bytes_that_are_no_protobuf_are_quarantined(tmp_path: Path) -> None:
    (tmp_path / "a.binpb").write_bytes(b"\xff\x07 something else")
    (bad,) = read(tmp_path / "a.binpb")
    assert isinstance(bad, Bad)
    assert bad.reason == "not_protobuf"
