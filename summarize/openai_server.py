"""A summarizer behind any OpenAI-compatible server: `vllm serve`, a gateway, a hosted model.

Requests run in a bounded pool of threads; `step` hands out what came back. What may pass (no connection,
408, 409, 425, 429, 5xx) is tried again with growing pauses, or after what `Retry-After` says; what will not
(another 4xx) is that request's error at once. A server that does not answer at the start is an engine that
did not start.
"""

from __future__ import annotations

import json
import os
import queue
import random
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ..core.config import SummarizerConfig
from ..core.errors import ConfigError, EngineError, EngineMissing
from ..core.types import Prompt, Reply
from . import models
from .replies import answered, failed, unfit

if TYPE_CHECKING:
    import httpx

ATTEMPTS = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_STEP_S = 0.5
_OWN = frozenset({"tokenizer", "headers", "extra_body", "schema"})
"""Keys of `engine` that this summarizer reads; any other goes into each request's body."""


class OpenAIServer:
    """An engine (`core.seams.Summarizer`) that asks a server.

    Args:
        config: `url` up to and including `/v1`; `concurrency` requests at once; `engine.headers`,
            `engine.extra_body`, `engine.schema` ("json_schema", the default; "json_object" for servers that
            know no more; "none").

    Raises:
        EngineMissing: httpx is not installed.
        ConfigError: `api_key_env` names a variable that is not set.
        EngineError: nothing answers at the url, or it refuses the key or does not know the model.
    """

    def __init__(self, config: SummarizerConfig) -> None:
        try:
            import httpx
        except ImportError as error:
            raise EngineMissing(
                "httpx is not installed, and a server cannot be asked without it", hint="pip install httpx"
            ) from error
        headers = {str(key): str(value) for key, value in dict(config.engine.get("headers", {})).items()}
        if config.api_key_env:
            key = os.environ.get(config.api_key_env)
            if not key:
                raise ConfigError(
                    f"the environment has no {config.api_key_env}, which api_key_env names",
                    hint="set it where the sweep runs",
                )
            headers["Authorization"] = f"Bearer {key}"
        self._config = config
        self._counter = models.token_counter(config)
        self._context = models.context_length(config)
        self._client = httpx.Client(
            base_url=str(config.url).rstrip("/") + "/",
            headers=headers,
            timeout=httpx.Timeout(config.timeout.total_seconds(), connect=10.0),
            limits=httpx.Limits(max_connections=config.concurrency),
            trust_env=not _is_loopback(str(config.url)),
        )
        self._todo: queue.SimpleQueue[Prompt | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._pending = 0
        self._retries = 0
        self._lock = threading.Lock()
        self._served = self._reach()
        self._threads = [
            threading.Thread(target=self._work, name=f"afterpass-ask-{number}", daemon=True)
            for number in range(config.concurrency)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def key(self) -> str:
        return models.model_key(self._config)

    @property
    def pending(self) -> int:
        return self._pending

    @property
    def room(self) -> int:
        # A few more than run at once, so that a thread never waits for the caller's next turn.
        return max(0, self._config.concurrency * 2 - self._pending)

    def submit(self, request: Prompt) -> None:
        self._pending += 1
        tokens = self._counter.chat(request.messages)
        if reason := unfit(request, tokens, self._context):
            self._done.put(failed(Reply(id=request.id), reason))
        else:
            self._todo.put(request)

    def step(self) -> list[Reply]:
        done: list[Reply] = []
        try:
            if self._pending:
                done.append(self._done.get(timeout=_STEP_S))
            while True:
                done.append(self._done.get_nowait())
        except queue.Empty:
            pass
        self._pending -= len(done)
        return done

    def about(self) -> Mapping[str, Any]:
        return {
            "engine": "openai",
            "url": self._config.url,
            "model": self._config.model,
            "concurrency": self._config.concurrency,
            "context": self._context,
            "serves": list(self._served),
            "retries": self._retries,
        }

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join(timeout=1.0)  # a request on its way ends with its process
        self._client.close()

    def _reach(self) -> list[str]:
        """Names of the models that it serves; [] where it does not list them."""
        import httpx

        try:
            answer = self._client.get("models", timeout=10.0)
        except httpx.HTTPError as error:
            raise EngineError(
                f"nothing answers at {self._config.url}: {type(error).__name__}: {error}",
                hint="start the server (`vllm serve MODEL`) or mend the url",
            ) from error
        if answer.status_code in (401, 403):
            raise EngineError(
                f"{self._config.url} refuses us: {answer.status_code}",
                hint="api_key_env names the environment variable that holds the key",
            )
        if answer.status_code != 200:
            return []  # some gateways list nothing
        try:
            served = [str(one["id"]) for one in answer.json()["data"]]
        except (ValueError, KeyError, TypeError):
            return []
        if served and self._config.model not in served:
            raise EngineError(
                f"{self._config.url} does not serve {self._config.model!r}",
                hint=f"it serves: {', '.join(served[:10])}",
            )
        return served

    def _work(self) -> None:
        while (prompt := self._todo.get()) is not None:
            try:
                reply = self._ask(prompt)
            except Exception as error:  # a thread that dies would take its request with it
                reply = failed(Reply(id=prompt.id), f"{type(error).__name__}: {error}")
            self._done.put(reply)

    def _ask(self, prompt: Prompt) -> Reply:
        import httpx

        problem = ""
        for attempt in range(ATTEMPTS):
            if self._closing.is_set():
                return failed(Reply(id=prompt.id), "the engine was closed")
            pause: float | None = None
            try:
                answer = self._client.post("chat/completions", json=self._body(prompt))
            except httpx.TimeoutException:
                problem = f"no answer within {self._config.timeout.total_seconds():.0f} s"
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if answer.status_code == 200:
                    return _reply(prompt, answer)
                problem = f"{answer.status_code}: {_said(answer)}"
                if answer.status_code not in _PASSING:
                    return failed(Reply(id=prompt.id), problem)
                pause = _retry_after(answer)
            if attempt + 1 < ATTEMPTS:
                with self._lock:
                    self._retries += 1
                wait = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt) * random.uniform(0.75, 1.25)
                self._closing.wait(pause if pause is not None else wait)
        return failed(Reply(id=prompt.id), f"{problem} ({ATTEMPTS} attempts)")

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        engine = self._config.engine
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [dict(message) for message in prompt.messages],
            "max_tokens": prompt.max_tokens,
            "temperature": prompt.temperature,
            "seed": prompt.seed,
            **{key: value for key, value in engine.items() if key not in _OWN},
            **dict(engine.get("extra_body", {})),
        }
        shape = engine.get("schema", "json_schema")
        if prompt.schema is not None and shape == "json_schema":
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "summary", "strict": True, "schema": prompt.schema},
            }
        elif prompt.schema is not None and shape == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body


def _reply(prompt: Prompt, answer: httpx.Response) -> Reply:
    try:
        data = answer.json()
        choice = data["choices"][0]
        message = choice["message"]
        text = message.get("content") or ""
        finish = str(choice.get("finish_reason") or "stop")
    except (ValueError, KeyError, IndexError, TypeError):
        return failed(Reply(id=prompt.id), "the server's answer is not a chat completion")
    usage = data.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    reply = Reply(
        id=prompt.id,
        text=text,
        finish_reason=finish,
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        output_tokens=int(usage.get("completion_tokens") or 0),
    )
    if message.get("refusal"):
        return failed(reply, f"the model refused: {message['refusal']}")
    if finish not in ("stop", "length"):
        return failed(reply, f"the server ended it: {finish}")
    return answered(reply)


def _said(answer: httpx.Response) -> str:
    """What an error answer says, in a line."""
    try:
        body = answer.json()
        error = body.get("error", body) if isinstance(body, dict) else body
        said = error.get("message", error) if isinstance(error, dict) else error
        text = said if isinstance(said, str) else json.dumps(said)
    except ValueError:
        text = answer.text
    return " ".join(text.split())[:300] or answer.reason_phrase


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds that `Retry-After` asks for, as a number or a date; bounded, since we do not wait for ever."""
    given = answer.headers.get("retry-after")
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_PAUSE_S)


def _is_loopback(url: str) -> bool:
    # A proxy from the environment must not be asked for what runs here.
    from urllib.parse import urlsplit

    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
