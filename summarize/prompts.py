"""From kept items to requests: templates rendered, passages marked, and the hash that finds replies again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any
from uuid import UUID

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..core import keys
from ..core.config import SummarizePolicy
from ..core.errors import ConfigError
from ..core.types import Prompt
from .tokens import TokenCounter
from .untrusted import mark, neutral

NAMES = ("system", "item", "map", "reduce")


@dataclass(frozen=True, slots=True)
class Passage:
    """What stands between two marks: an item's stretch, or a note of a lower level."""

    id: str
    text: str
    kind: str = ""
    agent: str = ""


def prompt_hash(prompt: Prompt) -> UUID:
    """What a reply is found again by: all that the model sees and is held to, and not the request's own id.

    The same items under the same policy give the same hash in every run and on every machine.
    """
    said = {
        "messages": [dict(message) for message in prompt.messages],
        "schema": prompt.schema,
        "max_tokens": prompt.max_tokens,
        "temperature": prompt.temperature,
        "seed": prompt.seed,
    }
    return keys.content_hash(json.dumps(said, ensure_ascii=False, separators=(",", ":")))


def ask(
    query: str,
    passages: Sequence[Passage],
    policy: SummarizePolicy,
    counter: TokenCounter,
    *,
    schema: Mapping[str, Any],
    max_tokens: int,
    points: int,
    parts: int | None = None,
) -> Prompt:
    """One request. What is the same for many comes first, so that an engine's prefix cache serves it.

    Args:
        query: what the passages were found for.
        passages: as they are to be read; untrusted.
        policy: for templates, language and sampling.
        counter: whose control tokens are taken out of query and passages.
        schema: what the reply must satisfy.
        max_tokens: the reply's bound.
        points: how many points to ask for.
        parts: for the reduce template: how many parts the notes were taken in; None for the map template.

    Raises:
        ConfigError: a template of the policy is wrong.
    """
    clean = [
        replace(
            passage,
            text=neutral(passage.text, counter),
            kind=neutral(passage.kind, counter),
            agent=neutral(passage.agent, counter),
        )
        for passage in passages
    ]
    query = " ".join(neutral(query, counter).split())
    word = mark([query, *(passage.text for passage in clean)])
    item = _template(policy, "item")
    rendered = [
        _render(
            item, "item", mark=word, id=passage.id, text=passage.text, kind=passage.kind, agent=passage.agent
        )
        for passage in clean
    ]
    name = "map" if parts is None else "reduce"
    user = _render(
        _template(policy, name),
        name,
        mark=word,
        query=query,
        passages=rendered,
        ids=[passage.id for passage in clean],
        points=points,
        per_item=policy.per_item,
        language=policy.language,
        parts=parts,
    )
    system = _render(_template(policy, "system"), "system", language=policy.language)
    messages = tuple(
        {"role": role, "content": content}
        for role, content in (("system", system), ("user", user))
        if content
    )
    return Prompt(
        id=keys.new_id().hex,
        messages=messages,
        schema=schema,
        max_tokens=max_tokens,
        temperature=policy.temperature,
        seed=policy.seed,
    )


def frames(query: str, policy: SummarizePolicy, counter: TokenCounter) -> tuple[int, int]:
    """(tokens of a request without passages, tokens of the marks around one), on the high side."""
    bare = ask(query, [], policy, counter, schema={}, max_tokens=1, points=policy.max_points)
    reduce = ask(query, [], policy, counter, schema={}, max_tokens=1, points=policy.max_points, parts=999)
    one = ask(
        query, [Passage("9999", "x")], policy, counter, schema={}, max_tokens=1, points=policy.max_points
    )
    base = counter.chat(bare.messages)
    return max(base, counter.chat(reduce.messages)) + 16, max(8, counter.chat(one.messages) - base + 4)


def check_templates(policy: SummarizePolicy) -> None:
    """Render every template once with made-up values.

    Raises:
        ConfigError: one is not valid, or needs a value that it will not get.
    """
    from .tokens import GuessCounter

    for parts in (None, 2):
        ask(
            "query",
            [Passage("1", "text")],
            policy,
            GuessCounter(),
            schema={},
            max_tokens=16,
            points=1,
            parts=parts,
        )


def _render(template: Any, name: str, **values: Any) -> str:
    try:
        return str(template.render(**values)).strip()
    except Exception as error:  # a template can divide by zero or call what cannot be called, too
        raise ConfigError(
            f"the summarize template {name!r} cannot be filled in: {error}",
            hint=f"it may use: {', '.join(sorted(values))}",
        ) from error


def _template(policy: SummarizePolicy, name: str) -> Any:
    given = getattr(policy, name)
    return _compiled(given if given is not None else _default(name), name)


@lru_cache(maxsize=64)
def _compiled(source: str, name: str) -> Any:
    # Sandboxed: a policy is configuration, not code. Items come in as values and are never compiled.
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(
            f"the summarize template {name!r} is not valid Jinja2: {error}", hint="mend it in the policy"
        ) from error


@cache
def _default(name: str) -> str:
    return (resources.files(__package__ or "afterpass.summarize") / "templates" / f"{name}.jinja").read_text(
        "utf-8"
    )
