"""The summarizer behind an OpenAI-compatible server, against a small real HTTP server on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from afterpass import summarize
from afterpass.core.config import SummarizePolicy, SummarizerConfig
from afterpass.core.errors import ConfigError, EngineError
from afterpass.core.types import Prompt, Reply, SummaryStatus

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@dataclass
class Server:
    """What it answers, and what it was asked. `answer(body, earlier) -> (status, headers, body)`."""

    answer: Callable[[dict[str, Any], int], tuple[int, dict[str, str], Any]]
    models: tuple[int, Any] = (200, {"data": [{"id": "small"}]})
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def completion(text: str, finish: str = "stop", **message: Any) -> tuple[int, dict[str, str], Any]:
    return (
        200,
        {},
        {
            "choices": [
                {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
            ],
            "usage": {
                "prompt_tokens": 11,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 3},
            },
        },
    )


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(answer=lambda _body, _earlier: completion('{"a":"b"}'))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.keys.append(self.headers.get("Authorization"))
            self.send(*state.models)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                earlier = sum(one["messages"] == body["messages"] for one in state.asked)
                state.asked.append(body)
                state.at_once += 1
                state.most_at_once = max(state.most_at_once, state.at_once)
            status, headers, said = state.answer(body, earlier)
            with state.lock:
                state.at_once -= 1
            if status == 0:
                self.close_connection = True
                self.connection.close()
                return
            self.send(status, said, headers)

        def send(self, status: int, said: Any, headers: dict[str, str] | None = None) -> None:
            data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{listening.server_port}/v1"
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield state
    listening.shutdown()
    listening.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afterpass.summarize.openai_server.FIRST_PAUSE_S", 0.01)


def config_of(server: Server, **more: Any) -> SummarizerConfig:
    return SummarizerConfig(model="small", backend="openai", url=server.url, **more)


def prompt_of(name: str, text: str = "hello", **more: Any) -> Prompt:
    return Prompt(
        id=name, messages=({"role": "user", "content": text},), schema=SCHEMA, max_tokens=64, **more
    )


def ask(server: Server, *prompts: Prompt, **more: Any) -> dict[str, Reply]:
    engine = summarize.load(config_of(server, **more))
    try:
        for prompt in prompts:
            engine.submit(prompt)
        found: dict[str, Reply] = {}
        while engine.pending:
            found |= {reply.id: reply for reply in engine.step()}
        return found
    finally:
        engine.close()
        engine.close()


def test_a_reply_and_what_was_asked(server: Server) -> None:
    replies = ask(server, prompt_of("one", seed=5), engine={"top_p": 0.9, "extra_body": {"x": 1}})
    assert replies["one"] == Reply(
        id="one", text='{"a":"b"}', prompt_tokens=11, cached_tokens=3, output_tokens=7
    )
    (body,) = server.asked
    assert body["model"] == "small"
    assert body["max_tokens"] == 64
    assert body["seed"] == 5
    assert body["top_p"] == 0.9
    assert body["x"] == 1
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_requests_run_at_once_up_to_the_bound(server: Server) -> None:
    def slow(_body: dict[str, Any], _earlier: int) -> tuple[int, dict[str, str], Any]:
        time.sleep(0.05)
        return completion('{"a":"b"}')

    server.answer = slow
    replies = ask(server, *(prompt_of(str(number), f"text {number}") for number in range(20)), concurrency=4)
    assert set(replies) == {str(number) for number in range(20)}
    assert 2 <= server.most_at_once <= 4


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 0])
def test_what_may_pass_is_tried_again(server: Server, status: int) -> None:
    server.answer = lambda _body, earlier: (status, {}, "busy") if earlier < 2 else completion('{"a":"b"}')
    replies = ask(server, prompt_of("one"))
    assert replies["one"].finish_reason == "stop"
    assert len(server.asked) == 3


def test_it_waits_as_long_as_it_is_told(server: Server) -> None:
    asked: list[float] = []

    def answer(_body: dict[str, Any], earlier: int) -> tuple[int, dict[str, str], Any]:
        asked.append(time.monotonic())
        return (429, {"Retry-After": "0.4"}, "slow down") if not earlier else completion('{"a":"b"}')

    server.answer = answer
    assert ask(server, prompt_of("one"))["one"].finish_reason == "stop"
    assert asked[1] - asked[0] >= 0.4


def test_it_gives_up_with_the_reason(server: Server) -> None:
    server.answer = lambda body, _earlier: (
        (503, {}, {"error": {"message": "no room"}})
        if body["messages"][0]["content"] == "bad"
        else completion('{"a":"b"}')
    )
    replies = ask(server, prompt_of("one", "bad"), prompt_of("two"))
    assert replies["one"].finish_reason == "error"
    assert replies["one"].error == "503: no room (5 attempts)"
    assert replies["two"].finish_reason == "stop"


def test_what_will_not_pass_is_not_tried_again(server: Server) -> None:
    server.answer = lambda _body, _earlier: (400, {}, {"error": {"message": "schema not supported"}})
    assert ask(server, prompt_of("one"))["one"].error == "400: schema not supported"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {}, "not json"), "not a chat completion"),
        ((200, {}, {"choices": []}), "not a chat completion"),
        (completion("", "content_filter"), "content_filter"),
        (completion("", refusal="I will not"), "I will not"),
        (completion("<think>for ever"), "not closed"),
    ],
)
def test_what_is_no_answer_is_that_requests_error(server: Server, answer: Any, error: str) -> None:
    server.answer = lambda _body, _earlier: answer
    reply = ask(server, prompt_of("one"))["one"]
    assert reply.finish_reason == "error"
    assert error in (reply.error or "")


def test_a_cut_reply_says_so_and_thinking_is_taken_off(server: Server) -> None:
    server.answer = lambda body, _earlier: (
        completion('{"a":', "length")
        if body["messages"][0]["content"] == "cut"
        else completion('<think>{"x"}</think>{"a":"b"}')
    )
    replies = ask(server, prompt_of("one", "cut"), prompt_of("two"))
    assert replies["one"].finish_reason == "length"
    assert replies["two"].text == '{"a":"b"}'


def test_empty_and_over_long_prompts_are_never_sent(server: Server) -> None:
    replies = ask(server, prompt_of("empty", " "), prompt_of("long", "word " * 5000), max_model_len=1024)
    assert "empty" in (replies["empty"].error or "")
    assert "exceed the context of 1024" in (replies["long"].error or "")
    assert server.asked == []


def test_the_key_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="OUR_KEY"):
        summarize.load(config_of(server, api_key_env="OUR_KEY"))
    monkeypatch.setenv("OUR_KEY", "secret")
    engine = summarize.load(config_of(server, api_key_env="OUR_KEY"))
    engine.close()
    assert server.keys[-1] == "Bearer secret"
    assert "secret" not in repr(engine.about())
    assert "secret" not in engine.key


@pytest.mark.parametrize(
    ("models", "said"),
    [((401, {}), "refuses"), ((200, {"data": [{"id": "other"}]}), "does not serve 'small'")],
)
def test_a_server_that_cannot_help_is_an_engine_error(server: Server, models: Any, said: str) -> None:
    server.models = models
    with pytest.raises(EngineError, match=said):
        summarize.load(config_of(server))


def test_a_gateway_that_lists_nothing_will_do(server: Server) -> None:
    server.models = (404, "nothing here")
    assert ask(server, prompt_of("one"))["one"].finish_reason == "stop"


def test_a_schema_that_the_server_does_not_know(server: Server) -> None:
    ask(server, prompt_of("one"), engine={"schema": "json_object"})
    assert server.asked[0]["response_format"] == {"type": "json_object"}
    ask(server, prompt_of("two"), engine={"schema": "none"})
    assert "response_format" not in server.asked[1]


def test_a_whole_group(server: Server, group_of: Any) -> None:
    def answer(body: dict[str, Any], _earlier: int) -> tuple[int, dict[str, str], Any]:
        assert body["messages"][0]["role"] == "system"
        return completion('```json\n{"points":[{"items":["2"],"text":"It is so, in truth."}]}\n```')

    server.answer = answer
    group, kept = group_of("First text of the group.", "Second text of the group.")
    config = config_of(server)
    job = summarize.GroupJob(
        group, kept, SummarizePolicy(), summarize.token_counter(config), summarize.context_length(config)
    )
    replies = ask(server, *job.start())
    for reply in replies.values():
        job.feed(reply)
    (summary,) = job.summaries or []
    assert summary.status is SummaryStatus.DONE
    assert summary.points[0].items == (kept[1].item_id,)
