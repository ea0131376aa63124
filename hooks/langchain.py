# ruff: noqa: ARG002  (the methods' arguments are LangChain's to choose)
"""LangChain and LangGraph: tool outputs, retrieved documents, sub-agents' reports and answers as items.

    agent.invoke({"messages": [...]}, config={"callbacks": [AfterpassCallbackHandler()]})

or, for every run of the process, `record_everything()`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, ParamSpec
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.tracers.context import register_configure_hook

from . import record as default
from .langchain_text import answer_of, plain, question_of, text_of
from .recorder import Recorder

log = logging.getLogger("afterpass")

WhichQuery = Literal["root", "agent", "own"]

_MOST_RUNS = 10_000
"""Runs kept in mind. Each is forgotten at its end; those whose end never came make room by age."""

P = ParamSpec("P")


@dataclass(slots=True)
class _Run:
    """A chain, tool or retriever at work, with what its children inherit."""

    root: UUID
    question: str | None
    thread: str | None
    agent: str | None
    agent_question: str | None
    own: str | None = None
    kind: str = "tool"
    step: str | None = None
    name: str | None = None
    documents: list[str] = field(default_factory=list)


def _quietly(method: Callable[P, None]) -> Callable[P, None]:
    """A hook's failure never reaches the run."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:
            global _failed
            if not _failed:
                _failed = True
                log.warning("%s failed; this is said once: %r", method.__name__, error)

    return call


_failed = False


class AfterpassCallbackHandler(BaseCallbackHandler):
    """Records what the tools, retrievers and sub-agents of a run give.

    Each item's run is the root run's id. Its group is the thread (`metadata["thread_id"]`, LangGraph's
    conversation) where there is one, else the root run. What stands for the question:

    - "root": what the user asked of the outermost run, so that sub-agents' finds compete with all others;
    - "agent": what was asked of the agent that called the tool;
    - "own": the tool's or the retriever's own input.

    Where the first two know of no question, the own input stands in.

    A tool's output that only repeats documents retrieved inside it is not recorded a second time.

    Args:
        recorder: where to; the process's own (`afterpass.configure`) where not given.
        query: which question counts.
        tools, documents, answers: what to record; an answer is the last message of the outermost run.
        close_runs: say at the end of the outermost run that it is complete, so that a sweep which starts
            at once need not wait for quiet. Costs a segment for each run.
        meta: put into each item's metadata.
    """

    # record() never blocks: a hop to another thread would cost more than the call.
    run_inline = True
    raise_error = False

    def __init__(
        self,
        recorder: Recorder | None = None,
        *,
        query: WhichQuery = "root",
        namespace: str = "default",
        policy: str = "default",
        group: str | None = None,
        tools: bool = True,
        documents: bool = True,
        answers: bool = False,
        close_runs: bool = False,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._recorder = recorder
        self._query = query
        self._namespace = namespace
        self._policy = policy
        self._group = group
        self._tools = tools
        self._documents = documents
        self._answers = answers
        self._close_runs = close_runs
        self._meta = dict(meta or {})
        self._runs: dict[UUID, _Run] = {}

    # Nothing here comes of model calls and the like, and not being called costs nothing. (Tools come under
    # `ignore_agent`.)

    @property
    def ignore_llm(self) -> bool:
        """Not called for it."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """Not called for it."""
        return True

    @property
    def ignore_retry(self) -> bool:
        """Not called for it."""
        return True

    @property
    def ignore_custom_event(self) -> bool:
        """Not called for it."""
        return True

    # -------------------------------------------------------------------------------------- chains

    @_quietly
    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain starts; an outermost one brings the user's question, an agent's brings its own."""
        run = self._start(run_id, parent_run_id, metadata)
        # LangGraph tags its nodes, and runnables the parts of a sequence: what has no such tag is called by
        # somebody for itself, as an agent or as a sub-agent inside a tool.
        if parent_run_id is None or not any(
            tag.startswith(("graph:step:", "seq:step:")) for tag in tags or ()
        ):
            run.agent = kwargs.get("name") or run.agent
            run.agent_question = question_of(inputs) or run.agent_question
            if parent_run_id is None:
                run.question = run.agent_question
            elif (caller := self._runs.get(parent_run_id)) is not None:
                caller.kind = "report"

    @_quietly
    def on_chain_end(
        self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A chain ends; the outermost one's output may be an answer."""
        run = self._runs.pop(run_id, None)
        if run is None or parent_run_id is not None:
            return
        if self._answers and (text := answer_of(outputs)):
            run.kind = "answer"
            self._record(run, text, {})
        self._close(run)

    @_quietly
    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A chain failed."""
        run = self._runs.pop(run_id, None)
        if run is not None and parent_run_id is None:
            self._close(run)

    # --------------------------------------------------------------------------------------- tools

    @_quietly
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool starts."""
        run = self._start(run_id, parent_run_id, metadata)
        run.name = kwargs.get("name") or (serialized or {}).get("name")
        values = list(inputs.values()) if isinstance(inputs, Mapping) else []
        alone = len(values) == 1 and isinstance(values[0], str)
        run.own = values[0] if alone else input_str

    @_quietly
    def on_tool_end(
        self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A tool gave its output."""
        run = self._runs.pop(run_id, None) or self._unknown(run_id, parent_run_id)
        if not self._tools:
            return
        text = text_of(output)
        if text is None or _repeats(text, run.documents):
            return
        meta = {"tool": run.name or kwargs.get("name"), "input": run.own}
        if getattr(output, "status", None) == "error":
            meta["status"] = "error"
        self._record(run, text, meta)

    @_quietly
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool failed; it gave nothing to judge."""
        self._runs.pop(run_id, None)

    # ---------------------------------------------------------------------------------- retrievers

    @_quietly
    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever starts."""
        run = self._start(run_id, parent_run_id, metadata)
        run.own, run.name = query, kwargs.get("name")

    @_quietly
    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A retriever gave its documents: each is an item."""
        run = self._runs.pop(run_id, None) or self._unknown(run_id, parent_run_id)
        if not self._documents:
            return
        run.kind = "passage"
        for rank, document in enumerate(documents, start=1):
            meta = {"retriever": run.name, "input": run.own, "retrieved_rank": rank}
            if document.id is not None:
                meta["document_id"] = document.id
            self._record(run, document.page_content, {**document.metadata, **meta})
        if parent_run_id is not None and (caller := self._runs.get(parent_run_id)) is not None:
            caller.documents += [document.page_content for document in documents]

    @_quietly
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A retriever failed."""
        self._runs.pop(run_id, None)

    # ---------------------------------------------------------------------------------- the depths

    def _start(self, run_id: UUID, parent_run_id: UUID | None, metadata: Mapping[str, Any] | None) -> _Run:
        metadata = metadata or {}
        thread, step = metadata.get("thread_id"), metadata.get("langgraph_step")
        parent = self._runs.get(parent_run_id) if parent_run_id is not None else None
        if parent is not None:
            run = _Run(parent.root, parent.question, parent.thread, parent.agent, parent.agent_question)
        else:
            run = self._unknown(run_id, parent_run_id)
        if run.thread is None and thread is not None:
            run.thread = str(thread)
        run.step = str(step) if step is not None else None
        if len(self._runs) >= _MOST_RUNS:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread may be at it, too
                del self._runs[next(iter(self._runs))]
        self._runs[run_id] = run
        return run

    def _unknown(self, run_id: UUID, parent_run_id: UUID | None) -> _Run:
        """A run whose parent is not known: outermost, or the handler came in half-way."""
        return _Run(parent_run_id or run_id, None, None, None, None)

    def _record(self, run: _Run, text: str, meta: Mapping[str, Any]) -> None:
        recorder = self._recorder or default.recorder()
        if recorder is None:
            return
        asked = {"root": run.question, "agent": run.agent_question, "own": None}[self._query]
        recorder.record(
            text,
            query=asked or run.own,
            group=self._group or run.thread,
            run=run.root,
            step=run.step,
            kind=run.kind,
            agent=run.agent,
            policy=self._policy,
            namespace=self._namespace,
            meta=plain({**self._meta, **{key: value for key, value in meta.items() if value is not None}}),
        )

    def _close(self, run: _Run) -> None:
        recorder = self._recorder or default.recorder()
        if self._close_runs and recorder is not None:
            recorder.close(run=run.root, namespace=self._namespace)


def record_everything(handler: AfterpassCallbackHandler | None = None) -> AfterpassCallbackHandler:
    """Have a handler called for every LangChain run of this process, whoever starts it."""
    handler = handler or AfterpassCallbackHandler()
    register_configure_hook(ContextVar("afterpass", default=handler), inheritable=True)
    return handler


def _repeats(text: str, documents: Sequence[str]) -> bool:
    """Whether a text is those documents and hardly more."""
    return (
        bool(documents)
        and sum(map(len, documents)) >= 0.8 * len(text)
        and all(document in text for document in documents)
    )
