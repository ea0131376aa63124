"""What every summarizer behind the seam keeps to: the one without a model, a server's, and vLLM."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import pytest

from afterpass import summarize
from afterpass.core.config import SummarizePolicy, SummarizerConfig
from afterpass.core.types import Prompt, Reply, SummaryStatus
from afterpass.summarize.conform import problem
from afterpass.sweep.engine_process import EngineProcess

Ask = Callable[..., dict[str, Reply]]

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "minLength": 1, "maxLength": 40}},
    "required": ["answer"],
    "additionalProperties": False,
}


class Engine(Protocol):
    key: str

    def ask(self, *prompts: Prompt) -> list[Reply]: ...


class InProcess:
    """An engine loaded here."""

    def __init__(self, config: SummarizerConfig) -> None:
        self.config = config
        self.engine = summarize.load(config)
        self.key = self.engine.key

    def ask(self, *prompts: Prompt) -> list[Reply]:
        todo = list(prompts)
        replies: list[Reply] = []
        while todo or self.engine.pending:
            while todo and self.engine.room:
                before = self.engine.pending
                self.engine.submit(todo.pop())
                assert self.engine.pending == before + 1
            replies += self.engine.step()
        assert self.engine.step() == []
        return replies

    def close(self) -> None:
        self.engine.close()
        self.engine.close()


class Apart:
    """An engine in a process of its own, as a sweep runs it."""

    def __init__(self, config: SummarizerConfig, log: Path) -> None:
        self.config = config
        self.engine: EngineProcess[Prompt, Reply] = EngineProcess("summarizer", config, log=log)
        self.engine.start()
        self.key = self.engine.key

    def ask(self, *prompts: Prompt) -> list[Reply]:
        self.engine.submit(prompts)
        replies: list[Reply] = []
        while self.engine.outstanding:
            replies += self.engine.poll()
        return replies

    def close(self) -> None:
        self.engine.close()


@pytest.fixture(scope="module")
def parrot() -> Iterator[str]:
    """A server that answers as the extractive engine does; its url."""
    config = SummarizerConfig(model="extractive", max_model_len=4096)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"data": [{"id": "parrot"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            shape = body.get("response_format", {}).get("json_schema", {}).get("schema")
            engine = summarize.load(config)
            engine.submit(
                Prompt(id="x", messages=tuple(body["messages"]), schema=shape, max_tokens=body["max_tokens"])
            )
            (reply,) = engine.step()
            self._send(
                {
                    "choices": [{"message": {"content": reply.text}, "finish_reason": reply.finish_reason}],
                    "usage": {
                        "prompt_tokens": reply.prompt_tokens,
                        "completion_tokens": reply.output_tokens,
                    },
                }
            )

        def _send(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture(
    scope="module",
    params=[
        "extractive",
        "openai",
        pytest.param("vllm", marks=[pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def engine(
    request: pytest.FixtureRequest, parrot: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InProcess | Apart]:
    made: InProcess | Apart
    if request.param == "extractive":
        made = InProcess(SummarizerConfig(model="extractive", max_model_len=4096))
    elif request.param == "openai":
        made = InProcess(SummarizerConfig(model="parrot", backend="openai", url=parrot, max_model_len=4096))
    else:
        log = tmp_path_factory.mktemp("vllm") / "engine.log"
        made = Apart(SummarizerConfig(model="embedded", max_model_len=4096, memory="1GiB"), log)
    yield made
    made.close()


def prompt_of(name: str, text: str, **more: Any) -> Prompt:
    values = {"schema": SCHEMA, "max_tokens": 64, **more}
    return Prompt(id=name, messages=({"role": "user", "content": text},), **values)


def test_each_request_comes_back_once_by_its_id(engine: InProcess | Apart) -> None:
    prompts = [prompt_of(f"id {number}", f"Say something about number {number}.") for number in range(12)]
    replies = engine.ask(*prompts)
    assert sorted(reply.id for reply in replies) == sorted(prompt.id for prompt in prompts)
    for reply in replies:
        assert reply.error is None
        assert reply.finish_reason == "stop"
        assert problem(json.loads(reply.text), SCHEMA) is None
        assert reply.prompt_tokens > 0
        assert reply.output_tokens > 0
        assert reply.text == json.dumps(json.loads(reply.text), ensure_ascii=False, separators=(",", ":"))


def test_what_cannot_be_asked_is_its_own_error(engine: InProcess | Apart) -> None:
    good, empty = prompt_of("good", "Say something."), prompt_of("empty", " \n ")
    long, nothing = prompt_of("long", "word " * 20_000), Prompt(id="nothing", messages=())
    replies = {reply.id: reply for reply in engine.ask(good, empty, long, nothing)}
    assert replies["good"].error is None
    assert "empty" in (replies["empty"].error or "")
    assert "exceed the context of 4096" in (replies["long"].error or "")
    assert "empty" in (replies["nothing"].error or "")
    assert {replies[name].finish_reason for name in ("empty", "long", "nothing")} == {"error"}


def test_nothing_asked_nothing_comes(engine: InProcess | Apart) -> None:
    assert engine.ask() == []


def test_the_key_is_the_one_known_beforehand(engine: InProcess | Apart) -> None:
    assert engine.key == summarize.model_key(engine.config)


def test_free_text_without_a_schema(engine: InProcess | Apart) -> None:
    (reply,) = engine.ask(prompt_of("free", "Say hello to the world.", schema=None, max_tokens=16))
    assert reply.finish_reason in ("stop", "length")
    assert reply.text.strip()


def test_the_same_request_alone_has_the_same_answer(engine: InProcess | Apart) -> None:
    first = engine.ask(prompt_of("one", "Name a colour."))[0]
    assert engine.ask(prompt_of("two", "Name a colour."))[0].text == first.text


def test_a_group_becomes_a_summary(engine: InProcess | Apart, group_of: Any) -> None:
    group, kept = group_of(
        "subprocess.run(timeout=5) kills the child process when the timeout expires.",
        "os.kill(pid, sig) sends a signal to a process.",
        query="How do I kill a process that takes too long?",
    )
    counter, context = summarize.token_counter(engine.config), summarize.context_length(engine.config)
    job = summarize.GroupJob(group, kept, SummarizePolicy(), counter, context)
    for reply in engine.ask(*job.start()):
        job.feed(reply)
    (summary,) = job.summaries or []
    assert summary.status is SummaryStatus.DONE
    assert summary.points
    assert {item for point in summary.points for item in point.items} <= {item.item_id for item in kept}
