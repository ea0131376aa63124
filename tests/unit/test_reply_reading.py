"""From a reply's text to points: schema, thinking, ids, and what counts as saying nothing."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from afterpass.core.config import SummarizePolicy
from afterpass.core.errors import ConfigError
from afterpass.core.types import Reply
from afterpass.summarize import replies
from afterpass.summarize.conform import problem
from afterpass.summarize.schema import bounded, own_schema, points_schema, width_of

POLICY = SummarizePolicy()
SCHEMA = points_schema(["1", "2", "3"], POLICY, 1, 768)


def test_the_largest_reply_fits_at_one_token_a_byte() -> None:
    for policy in (POLICY, SummarizePolicy(max_tokens=256), SummarizePolicy(max_tokens=4000, max_points=20)):
        for ids in (["1"], [str(n) for n in range(1, 200)]):
            for width, character in ((1, "x"), (2, "ж"), (3, "汉")):
                schema = points_schema(ids, policy, width, policy.max_tokens)
                points = schema["properties"]["points"]
                text = character * points["items"]["properties"]["text"]["maxLength"]
                cited = ids[-points["items"]["properties"]["items"]["maxItems"] :]
                largest = {"points": [{"items": cited, "text": text}] * points["maxItems"]}
                assert problem(largest, schema) is None
                said = json.dumps(largest, ensure_ascii=False, separators=(",", ":")).encode()
                assert len(said) <= policy.max_tokens


def test_width_is_that_of_the_script() -> None:
    assert width_of(["plain English with one é"]) == 1
    assert width_of(["Всё по-русски"]) == 2
    assert width_of(["全部都是中文"]) == 3
    assert width_of([]) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(id="r", text="", finish_reason="stop"), "empty"),
        (Reply(id="r", text="   ", finish_reason="stop"), "empty"),
        (Reply(id="r", text='{"points":[', finish_reason="length"), "cut"),
        (Reply(id="r", text="Sure! Here it is", finish_reason="stop"), "not JSON"),
        (Reply(id="r", text="[1]", finish_reason="stop"), "type"),
        (Reply(id="r", text='{"points":[]}', finish_reason="stop"), "too few"),
        (
            Reply(id="r", text='{"points":[{"text":"It is so, in truth.","items":["9"]}]}'),
            "not one of the values",
        ),
        (Reply(id="r", text='{"points":[{"items":["1"],"text":"' + "x" * 999 + '"}]}'), "too long"),
        (Reply(id="r", text='{"points":[{"items":["1"],"text":"4"}]}'), "too short"),
        (
            Reply(id="r", text='{"points":[{"items":["1"],"text":"It is so, in truth."}],"keep":true}'),
            "not asked for",
        ),
        (Reply(id="r", text="[" * 100_000), "not JSON"),
        (Reply(id="r", finish_reason="error", error="the engine died"), "the engine died"),
    ],
)
def test_what_is_no_result(reply: Reply, reason: str) -> None:
    with pytest.raises(replies.BadReply, match=reason):
        replies.read(reply, SCHEMA)


def test_a_fence_around_json_is_taken_off() -> None:
    said = '```json\n{"points":[{"items":["1"],"text":"It is so, in truth."}]}\n```'
    assert replies.read(Reply(id="r", text=said), SCHEMA)["points"][0]["text"] == "It is so, in truth."


def test_ids_become_items_and_repetitions_are_joined() -> None:
    one, two = uuid4(), uuid4()
    value = {
        "points": [
            {"items": ["1"], "text": "- It is so. "},
            {"items": ["2"], "text": "It is so"},
            {"items": ["1", "7"], "text": "Another thing."},
        ]
    }
    points = replies.points(value, {"1": (one,), "2": (two,)}, "a question", 100)
    assert [(point.text, point.items) for point in points] == [
        ("It is so.", (one, two)),
        ("Another thing.", (one,)),
    ]


@pytest.mark.parametrize("text", ["1", "1, 2", "...", "A Question?", "a question"])
def test_what_says_nothing_is_marked(text: str) -> None:
    (point,) = replies.points(
        {"points": [{"items": ["1"], "text": text}]}, {"1": (uuid4(),)}, "a question", 100
    )
    assert point.marks == (replies.NOTHING_SAID,)


def test_a_point_cut_by_the_bound_ends_at_a_word() -> None:
    text = "This sentence was cut in the mid"
    (point,) = replies.points({"points": [{"items": ["1"], "text": text}]}, {}, "q", len(text))
    assert point.text == "This sentence was cut in the ..."


def test_thinking_is_taken_off() -> None:
    assert replies.without_thinking("<think>hm {</think>\n{}") == "{}"
    assert replies.without_thinking("hm</think>{}", opened=True) == "{}"
    assert replies.without_thinking('{"a":1}') == '{"a":1}'


@pytest.mark.parametrize(("text", "opened"), [("<think>for ever", False), ("for ever", True)])
def test_thinking_that_never_ends_is_no_answer(text: str, opened: bool) -> None:
    with pytest.raises(replies.BadReply, match="not closed"):
        replies.without_thinking(text, opened)


def test_a_policy_can_name_its_own_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "verdict": {"type": "string", "enum": ["yes", "no"]},
            "why": {"type": "string"},
            "from": {"type": "array", "items": {"type": "string", "format": "item-id"}},
        },
        "required": ["verdict", "why"],
    }
    filled = bounded(own_schema(SummarizePolicy(output_schema=schema)) or {}, ["1", "2"], 1, 256)
    assert filled["properties"]["from"]["items"]["enum"] == ["1", "2"]
    assert filled["properties"]["from"]["maxItems"] == 8
    assert filled["properties"]["why"]["maxLength"] <= 256
    assert filled["additionalProperties"] is False
    item = uuid4()
    value = {"verdict": "yes", "why": "so", "from": ["2"]}
    assert replies.own_output(value, schema, {"2": (item,)}) == {**value, "from": [str(item)]}


def test_a_pydantic_model_can_be_named(tmp_path, monkeypatch) -> None:
    (tmp_path / "triage_model.py").write_text(
        "from pydantic import BaseModel\n\n\nclass Triage(BaseModel):\n    urgent: bool\n    why: str\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    schema = own_schema(SummarizePolicy(output_schema="triage_model:Triage"))
    assert schema is not None
    assert set(schema["properties"]) == {"urgent", "why"}


@pytest.mark.parametrize("given", ["nowhere:Model", "json:loads", "json", {"type": "array"}])
def test_what_is_no_schema_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="output_schema"):
        own_schema(SummarizePolicy(output_schema=given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "schema", "ok"),
    [
        (1, {"type": "integer"}, True),
        (True, {"type": "integer"}, False),
        (1.5, {"type": ["number", "null"]}, True),
        (None, {"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        (3, {"anyOf": [{"type": "string"}, {"type": "null"}]}, False),
        ({"a": 1}, {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "required": ["a"]}}}, True),
        ({}, {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "required": ["a"]}}}, False),
        ({"a": 1}, {"type": "object", "additionalProperties": {"type": "string"}}, False),
        (5, {"minimum": 6}, False),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}, False),
        ("x", {"const": "y"}, False),
    ],
)
def test_conformance(value: object, schema: dict[str, object], ok: bool) -> None:
    assert (problem(value, schema) is None) is ok
