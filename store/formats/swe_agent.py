"""SWE-agent's `.traj` files: each step's observation is an item, the first user message is the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .chat import first_question
from .records import Record, as_text


def matches(document: Any) -> bool:
    """Whether this is a trajectory."""
    if not isinstance(document, Mapping):
        return False
    steps = document.get("trajectory")
    return isinstance(steps, list) and all(isinstance(s, Mapping) and "observation" in s for s in steps)


def records(document: Mapping[str, Any], *, line: int, where: str, run: str) -> Iterator[Record]:
    """The observations of a trajectory."""
    query = first_question(document.get("history") or ())
    for index, step in enumerate(document["trajectory"]):
        kept = {name: step[name] for name in ("action", "thought", "execution_time") if step.get(name)}
        yield Record(
            line=line,
            where=f"{where} step {index}",
            own={
                "text": as_text(step["observation"]),
                "kind": "tool_output",
                "step": str(index),
                "meta": kept,
            },
            guess={"run": run, "query": query, "agent": document.get("environment")},
        )
