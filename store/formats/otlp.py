"""OpenTelemetry traces as OTLP has them: spans that carry what a tool returned or a retriever found.

Two conventions are read: the GenAI one (`gen_ai.tool.call.result`, `gen_ai.retrieval.documents`) and
OpenInference (`output.value`, `retrieval.documents.N.document.content`). Content is opt-in in both, so
spans without text are counted and said, never taken for an error. A repeated span (exporters retry) has
the same id, and so counts once.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import strict_json
from .chat import content_text, first_question
from .records import Record, Skipped, as_text

_RUN = ("gen_ai.conversation.id", "session.id", "thread.id", "langfuse.session.id")
_TOOL_TEXT = ("gen_ai.tool.call.result", "gen_ai.tool.result", "traceloop.entity.output")
_QUESTIONS = ("gen_ai.retrieval.query.text", "gen_ai.input.messages", "gen_ai.prompt", "input.value")


@dataclass(frozen=True, slots=True)
class Span:
    """What is needed of one span; ids are lower-case hex."""

    trace: str
    span: str
    parent: str
    name: str
    started: datetime | None
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class Family:
    """Which span is whose child, and what its question was: gathered in a first pass, as parents end last."""

    parents: dict[tuple[str, str], str] = field(default_factory=dict)
    questions: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Any]) -> Family:
        """From all the documents of a file."""
        family = cls()
        for document in documents:
            for span in spans(document) if matches(document) else ():
                key = span.trace, span.span
                family.parents[key] = span.parent
                if question := _question(span.attributes):
                    family.questions[key] = question
        return family

    def question(self, span: Span) -> str | None:
        """The question of the outermost span above that has one: what the user asked."""
        found, key = None, (span.trace, span.parent)
        for _ in range(1000):  # a loop of parents is nonsense, but no reason to hang
            if key not in self.parents:
                break
            found = self.questions.get(key, found)
            key = span.trace, self.parents[key]
        return found


def matches(document: Any) -> bool:
    """Whether this is an OTLP trace export."""
    return isinstance(document, Mapping) and isinstance(
        document.get("resourceSpans", document.get("resource_spans")), list
    )


def records(
    document: Mapping[str, Any], family: Family, *, line: int, where: str
) -> Iterator[Record | Skipped]:
    """The texts in a document's spans."""
    for span in spans(document):
        place = f"{where} span {span.span or span.name}"
        found = list(_texts(span))
        if not found:
            yield Skipped(where=place, reason="span without text")
        run = next((str(span.attributes[name]) for name in _RUN if name in span.attributes), span.trace)
        own_query = _own_query(span)
        for part, (text, own) in enumerate(found):
            yield Record(
                line=line,
                where=place,
                own={
                    "text": text,
                    "id": f"{span.trace}:{span.span}:{part}" if span.span else None,
                    "step": span.span or None,
                    "created_at": span.started,
                    **own,
                },
                guess={"run": run, "query": own_query or family.question(span)},
            )


def spans(document: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of an export request; malformed ones are passed over."""
    for resource in _list(document, "resourceSpans"):
        for scope in (*_list(resource, "scopeSpans"), *_list(resource, "instrumentationLibrarySpans")):
            for span in _list(scope, "spans"):
                events = [_attributes(event) for event in _list(span, "events")]
                attributes = {name: value for event in events for name, value in event.items()}
                yield Span(
                    trace=_hex(span.get("traceId")),
                    span=_hex(span.get("spanId")),
                    parent=_hex(span.get("parentSpanId")),
                    name=str(span.get("name", "")),
                    started=_nanoseconds(span.get("startTimeUnixNano")),
                    attributes={**attributes, **_attributes(span)},
                )


def _texts(span: Span) -> Iterator[tuple[str, dict[str, Any]]]:
    attributes = span.attributes
    kind = str(attributes.get("openinference.span.kind", "")).upper()
    agent = attributes.get("gen_ai.agent.name") or attributes.get("agent.name")
    if "gen_ai.retrieval.documents" in attributes:
        for document in _loaded(attributes["gen_ai.retrieval.documents"]):
            yield from _document(document, agent)
    elif indexed := sorted(_indexed(attributes, "retrieval.documents.").items()):
        for _, document in indexed:
            yield from _document(document, agent)
    else:
        text = next((attributes[name] for name in _TOOL_TEXT if name in attributes), None)
        if text is None and kind in ("TOOL", "RETRIEVER", "RERANKER"):
            text = attributes.get("output.value")
        if text is not None:
            tool = attributes.get("gen_ai.tool.name") or attributes.get("tool.name") or span.name
            arguments = attributes.get("gen_ai.tool.call.arguments") or attributes.get("input.value")
            meta = {"tool": tool, **({"arguments": arguments} if arguments is not None else {})}
            yield as_text(text) or "", {"kind": "tool_output", "agent": agent or tool, "meta": meta}


def _document(document: Any, agent: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(document, str):
        document = {"content": document}
    if not isinstance(document, Mapping):
        return
    inner = document.get("document", document)
    text = next((inner[n] for n in ("content", "page_content", "text") if inner.get(n) is not None), None)
    if text is not None:
        meta = {name: inner[name] for name in ("id", "score", "metadata") if inner.get(name) is not None}
        yield as_text(text) or "", {"kind": "passage", "agent": agent, "meta": meta}


def _indexed(attributes: Mapping[str, Any], prefix: str) -> dict[int, dict[str, Any]]:
    """`prefix.N.document.content` and its like as {N: {"content": ...}}."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        number, _, rest = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and number.isdigit():
            found.setdefault(int(number), {})[rest.removeprefix("document.")] = value
    return found


def _own_query(span: Span) -> str | None:
    """A retriever's own query: what it was asked, which for passages beats what the user asked first."""
    kind = str(span.attributes.get("openinference.span.kind", "")).upper()
    if query := span.attributes.get("gen_ai.retrieval.query.text"):
        return str(query)
    return _question(span.attributes) if kind in ("RETRIEVER", "RERANKER") else None


def _question(attributes: Mapping[str, Any]) -> str | None:
    for name in _QUESTIONS:
        if (value := attributes.get(name)) is None:
            continue
        loaded = _loaded(value)
        if loaded and all(isinstance(message, Mapping) for message in loaded):
            asked = first_question([_with_content(message) for message in loaded])
            if asked or name == "gen_ai.input.messages":
                return asked
        if isinstance(value, str) and value.strip():
            return value
    messages = _indexed(attributes, "llm.input_messages.")
    for _, message in sorted(messages.items()):
        if message.get("message.role") == "user" and message.get("message.content"):
            return str(message["message.content"])
    return None


def _with_content(message: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = message.get("parts")
    if "content" in message or not isinstance(parts, list):
        return message
    texts = [part.get("content", part.get("text")) for part in parts if isinstance(part, Mapping)]
    return {**message, "content": content_text([text for text in texts if isinstance(text, str)])}


def _loaded(value: Any) -> list[Any]:
    """An attribute that holds a list, as a list or as JSON text."""
    if isinstance(value, str):
        try:
            value = strict_json.loads(value)
        except strict_json.NotJSON:
            return []
    return value if isinstance(value, list) else []


def _attributes(owner: Mapping[str, Any]) -> dict[str, Any]:
    return {str(entry.get("key")): _value(entry.get("value")) for entry in _list(owner, "attributes")}


def _value(value: Any) -> Any:
    """OTLP's AnyValue as a plain one."""
    if not isinstance(value, Mapping) or not value:
        return None
    (kind, inner), *_ = value.items()
    match kind:
        case "intValue" | "int_value":
            return int(inner) if isinstance(inner, int | str) else None
        case "arrayValue" | "array_value":
            return [_value(entry) for entry in _list(inner, "values")]
        case "kvlistValue" | "kvlist_value":
            return {str(entry.get("key")): _value(entry.get("value")) for entry in _list(inner, "values")}
    return inner


def _list(owner: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(owner, Mapping):
        return []
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    value = owner.get(name, owner.get(snake))
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _hex(value: Any) -> str:
    """An id in hex. JSON dumps carry hex by OTLP's rule; some write protobuf's base64 all the same."""
    if isinstance(value, bytes):
        return value.hex()
    text = str(value or "")
    if len(text) in (12, 24) and not all(c in "0123456789abcdefABCDEF" for c in text):
        try:
            return base64.b64decode(text, validate=True).hex()
        except ValueError:
            return text
    return text.lower()


def _nanoseconds(value: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(value) / 1e9, UTC) if value else None
    except (ValueError, TypeError, OverflowError, OSError):
        return None
