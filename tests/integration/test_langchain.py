# ruff: noqa: ARG002, ARG005  (the signatures are LangChain's)
"""The LangChain handler under real LangGraph agents, on a chat model that follows a script."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool

from afterpass.core.paths import Home
from afterpass.core.types import Item
from afterpass.hooks.langchain import AfterpassCallbackHandler
from afterpass.hooks.recorder import Recorder
from afterpass.store.spool import item_of, read_segment, sealed_segments

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Script(BaseChatModel):
    """A chat model that says its lines in turn."""

    lines: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Script:
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        said = sum(isinstance(message, AIMessage) for message in messages)
        return ChatResult(generations=[ChatGeneration(message=self.lines[said])])


class Shelf(BaseRetriever):
    """Two documents for any query."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [
            Document(id=f"d{n}", page_content=f"page {n} on {query}", metadata={"page": n, "when": object()})
            for n in (1, 2)
        ]


@tool
def search(topic: str) -> str:
    """Look a topic up."""
    return "\n".join(document.page_content for document in Shelf().invoke(topic))


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fails() -> str:
    """Never works."""
    raise RuntimeError("broken")


def calls(*wanted: tuple[str, dict[str, Any]]) -> AIMessage:
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": given, "id": f"{name}-{n}"} for n, (name, given) in enumerate(wanted)
        ],
    )


def agent(name: str, tools: list[Any], *lines: AIMessage) -> Any:
    from langgraph.prebuilt import create_react_agent

    return create_react_agent(Script(lines=list(lines)), tools, name=name)


@tool
def ask_the_mathematician(question: str) -> str:
    """Have another agent reckon."""
    expert = agent("mathematician", [add], calls(("add", {"a": 1, "b": 2})), AIMessage("It is three."))
    return str(expert.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content)


def boss() -> Any:
    return agent(
        "boss",
        [search, ask_the_mathematician],
        calls(("search", {"topic": "sums"}), ("ask_the_mathematician", {"question": "1 + 2?"})),
        AIMessage("Three, says the book."),
    )


@pytest.fixture
def recorder(home: Home) -> Iterator[Recorder]:
    with Recorder(home) as recorder:
        yield recorder


def recorded(recorder: Recorder) -> list[Item]:
    assert recorder.flush()
    return [
        item_of(record)
        for path in sealed_segments(recorder.home)
        for _, record in read_segment(path)
        if isinstance(record, dict) and record["type"] == "item"
    ]


def test_tools_passages_and_a_sub_agent_meet_in_one_group(recorder: Recorder) -> None:
    run_id = uuid4()
    boss().invoke(
        {"messages": [("user", "What is one and two?")]},
        {
            "callbacks": [AfterpassCallbackHandler(recorder)],
            "run_id": run_id,
            "configurable": {"thread_id": 7},
        },
    )
    items = recorded(recorder)
    assert {(item.kind, item.text) for item in items} == {
        ("passage", "page 1 on sums"),
        ("passage", "page 2 on sums"),
        ("tool", "3"),
        ("report", "It is three."),
    }
    assert {item.query for item in items} == {"What is one and two?"}
    assert {item.run for item in items} == {str(run_id)}
    assert {item.group for item in items} == {"7"}
    assert len({item.group_id for item in items}) == 1
    assert {item.agent for item in items if item.text == "3"} == {"mathematician"}
    assert {item.agent for item in items if item.kind != "tool"} == {"boss"}
    passage = next(item for item in items if item.text == "page 2 on sums")
    assert passage.meta["page"] == 2
    assert passage.meta["retrieved_rank"] == 2
    assert passage.meta["document_id"] == "d2"
    assert passage.meta["input"] == "sums"
    assert passage.step == "2"
    assert recorder.counts.refused == 0


def test_the_same_holds_in_asyncio(recorder: Recorder) -> None:
    handler = AfterpassCallbackHandler(recorder, answers=True)

    async def three() -> None:
        asks = ({"messages": [("user", f"Question {n}?")]} for n in range(3))
        await asyncio.gather(*(boss().ainvoke(ask, {"callbacks": [handler]}) for ask in asks))

    asyncio.run(three())
    items = recorded(recorder)
    assert len(items) == 3 * 5
    by_run: dict[str | None, set[str | None]] = {}
    for item in items:
        by_run.setdefault(item.run, set()).add(item.query)
        assert item.group is None
    assert sorted(by_run.values(), key=str) == [{f"Question {n}?"} for n in range(3)]
    assert [item.text for item in items if item.kind == "answer"] == ["Three, says the book."] * 3
    assert handler._runs == {}  # all forgotten


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("root", {"One?"}),
        ("agent", {"One?", "1 + 2?"}),
        ("own", {"sums", "{'a': 1, 'b': 2}", "1 + 2?"}),
    ],
)
def test_which_question_counts(recorder: Recorder, which: Any, expected: set[str]) -> None:
    handler = AfterpassCallbackHandler(recorder, query=which)
    boss().invoke({"messages": [("user", "One?")]}, {"callbacks": [handler]})
    assert {item.query for item in recorded(recorder)} == expected


def test_a_tool_by_itself_is_judged_by_its_own_input(recorder: Recorder) -> None:
    handler = AfterpassCallbackHandler(recorder)
    Shelf().invoke("maps", {"callbacks": [handler]})
    add.invoke({"a": 2, "b": 2}, {"callbacks": [handler]})
    with pytest.raises(RuntimeError):
        fails.invoke({}, {"callbacks": [handler]})
    items = recorded(recorder)
    assert {(item.text, item.query) for item in items} == {
        ("page 1 on maps", "maps"),
        ("page 2 on maps", "maps"),
        ("4", "{'a': 2, 'b': 2}"),
    }
    assert handler._runs == {}


def test_a_closed_run_says_so(recorder: Recorder) -> None:
    run_id = uuid4()
    handler = AfterpassCallbackHandler(recorder, close_runs=True, group="sums", meta={"tenant": "a"})
    boss().invoke({"messages": [("user", "One?")]}, {"callbacks": [handler], "run_id": run_id})
    items = recorded(recorder)
    assert {item.group for item in items} == {"sums"}
    assert {item.meta["tenant"] for item in items} == {"a"}
    closed = [
        record
        for path in sealed_segments(recorder.home)
        for _, record in read_segment(path)
        if isinstance(record, dict) and record["type"] == "close"
    ]
    assert [record["run"] for record in closed] == [str(run_id)]


def test_runs_without_an_end_do_not_pile_up(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afterpass.hooks.langchain._MOST_RUNS", 50)
    handler = AfterpassCallbackHandler(recorder)
    for _ in range(200):
        handler.on_tool_start({"name": "t"}, "x", run_id=uuid4(), parent_run_id=uuid4())
    assert len(handler._runs) == 50
    # One that was forgotten meanwhile, or started before the handler came, still gets its output recorded.
    handler.on_tool_end("late", run_id=uuid4(), parent_run_id=UUID(int=5))
    assert [(item.text, item.run) for item in recorded(recorder)] == [("late", str(UUID(int=5)))]


def test_nothing_that_comes_in_reaches_the_run(recorder: Recorder) -> None:
    class Rude:
        def __str__(self) -> str:
            raise ValueError("no")

        content = property(lambda self: 1 / 0)

    handler = AfterpassCallbackHandler(recorder)
    handler.on_chain_start(None, Rude(), run_id=uuid4())
    handler.on_tool_end(Rude(), run_id=uuid4())
    handler.on_retriever_end([Rude()], run_id=uuid4())  # type: ignore[list-item]
    assert recorded(recorder) == []


def test_every_run_of_a_process_can_be_recorded(home: Home, tmp_path: Path) -> None:
    """In a process of its own: the hook stays for good."""
    program = (
        "from langchain_core.tools import tool\n"
        "from afterpass.hooks.langchain import record_everything\n"
        "record_everything()\n"
        "@tool\n"
        "def shout(text: str) -> str:\n"
        "    'Shout.'\n"
        "    return text.upper()\n"
        "shout.invoke({'text': 'hello'})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=120)
    (path,) = sealed_segments(home)
    (record,) = [record for _, record in read_segment(path)]
    assert isinstance(record, dict)
    assert (record["text"], record["query"]) == ("HELLO", "hello")
