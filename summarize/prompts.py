"""From kept items to requests: templates rendered, passages marked, and the hash that finds replies again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from .tokens import GuessCounter, TokenCounter
from .untrusted import mark, neutral

NAMES = ("system", "item", "note", "map", "reduce")


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
    own: bool = False,
    parts: int | None = None,
    note: bool = False,
) -> Prompt:
    """One request. What is the same for many comes first, so that an engine's prefix cache serves it.

    Args:
        query: what the passages were found for.
        passages: as they are to be read; untrusted.
        policy: for templates, language and sampling.
        counter: whose control tokens are taken out of query and passages.
        schema: what the reply must satisfy.
        max_tokens: the reply's bound.
        own: the schema is the policy's own, and not points.
        parts: for the reduce template: how many parts the notes were taken in; None for the map template.
        note: for the note template: one passage of several, and no question.

    Raises:
        ConfigError: a template of the policy is wrong.
    """
    clean = [_cleaned(passage, counter) for passage in passages]
    query = " ".join(neutral(query, counter).split())
    word = mark([query, *(passage.text for passage in clean)])
    system = _render(policy, "system", points=policy.max_points, language=policy.language, own=own, note=note)
    turns = [("system", system)]
    if policy.example and not own:
        shown, reply = (_EXAMPLE_PASSAGES[:1], _EXAMPLE_NOTE) if note else (_EXAMPLE_PASSAGES, _EXAMPLE_REPLY)
        turns += [
            ("user", _user(policy, _EXAMPLE_QUERY, shown, "fabokidule", None, note)),
            ("assistant", reply),
        ]
    turns.append(("user", _user(policy, query, clean, word, parts, note)))
    return Prompt(
        id=keys.new_id().hex,
        messages=tuple({"role": role, "content": content} for role, content in turns if content),
        schema=schema,
        max_tokens=max_tokens,
        temperature=policy.temperature,
        seed=policy.seed,
    )


# Small models follow one example better than any description, and it is read once: it is the same for all.
_EXAMPLE_QUERY = "How can I water every plant at once?"
_EXAMPLE_PASSAGES = (
    Passage("1", "rain(hours)\nWater all plants of the garden for some hours. Available since version 3.2."),
    Passage(
        "2",
        "water(plant, litres=1.0)\nPour water on one plant. Raises DryTank when the tank is empty.",
    ),
)
_EXAMPLE_NOTE = (
    '{"points":[{"text":"rain(hours) waters all plants of the garden for some hours.","items":["1"]}]}'
)
_EXAMPLE_REPLY = (
    '{"points":[{"text":"rain(hours) waters all plants of the garden for some hours.","items":["1"]},'
    '{"text":"rain is available since version 3.2.","items":["1"]},'
    '{"text":"water(plant, litres=1.0) pours water on one plant only.","items":["2"]}]}'
)


def _cleaned(passage: Passage, counter: TokenCounter) -> Passage:
    return Passage(
        id=passage.id,
        text=neutral(passage.text, counter),
        kind=neutral(passage.kind, counter),
        agent=neutral(passage.agent, counter),
    )


def _user(
    policy: SummarizePolicy,
    query: str,
    passages: Sequence[Passage],
    word: str,
    parts: int | None,
    note: bool,
) -> str:
    rendered = [
        _render(policy, "item", mark=word, id=one.id, text=one.text, kind=one.kind, agent=one.agent)
        for one in passages
    ]
    return _render(
        policy,
        "note" if note else "map" if parts is None else "reduce",
        mark=word,
        query=query,
        passages=rendered,
        ids=[one.id for one in passages],
        points=policy.max_points,
        language=policy.language,
        parts=parts,
    )


def frames(query: str, policy: SummarizePolicy, counter: TokenCounter) -> tuple[int, int]:
    """(tokens of a request without passages, tokens of the marks around one), on the high side."""

    def tokens(passages: Sequence[Passage], parts: int | None = None) -> int:
        prompt = ask(query, passages, policy, counter, schema={}, max_tokens=1, parts=parts)
        return counter.chat(prompt.messages)

    base = tokens([])
    return max(base, tokens([], parts=999)) + 16, max(8, tokens([Passage("9999", "x")]) - base + 4)


def check_templates(policy: SummarizePolicy) -> None:
    """Render every template once with made-up values.

    Raises:
        ConfigError: one is not valid, or needs a value that it will not get.
    """
    shapes: Sequence[tuple[int | None, bool]] = ((None, False), (2, False), (None, True))
    for parts, note in shapes:
        passages = [Passage("1", "x")]
        ask("query", passages, policy, GuessCounter(), schema={}, max_tokens=16, parts=parts, note=note)


def _render(policy: SummarizePolicy, name: str, **values: Any) -> str:
    template = _template(policy, name)
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
