"""The questions of the demo, with what is known to answer them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the library.

    Attributes:
        name: of its group.
        searches: what the two agents type into the search.
        answers: full names; a passage about any of them is right.
    """

    name: str
    text: str
    searches: tuple[str, str]
    answers: frozenset[str]


def questions() -> list[Question]:
    """All of them, from questions.toml."""
    text = (resources.files("afterpass.cli.demo") / "questions.toml").read_text("utf-8")
    return [
        Question(
            name=f"question {number:02}",
            text=entry["text"],
            searches=(entry["searches"][0], entry["searches"][1]),
            answers=frozenset(entry["answers"]),
        )
        for number, entry in enumerate(tomllib.loads(text)["question"], 1)
    ]
