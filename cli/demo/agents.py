"""A demo agent, a process of its own: `python -m afterpass.cli.demo.agents NAME LIBRARY`.

For each question it searches, and records every passage that it comes across, as agents do: good hits, bad
hits, the same passage twice, and some that it only stumbled on.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from ... import close, flush, record
from .corpus import Passage
from .library import Library
from .questions import Question, questions

# name -> (which of a question's searches is its own, hits taken for the question itself, for its own search)
AGENTS = {"reader": (0, 9, 6), "scout": (1, 4, 7)}
STUMBLED_ON = 2


def main() -> None:
    """Work through all questions and say what was recorded, one JSON line a question."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    library = Library.load(folder)
    for question in questions():
        found = gather(name, question, library)
        for step, passage in enumerate(found):
            record(
                passage.text,
                query=question.text,
                group=question.name,
                run=f"demo-{name}",
                step=str(step),
                kind="passage",
                agent=name,
                meta={"symbol": passage.symbol},
            )
        print(json.dumps({"agent": name, "question": question.name, "recorded": len(found)}), flush=True)
    close(run=f"demo-{name}")
    if not flush(30):
        sys.exit("the recorded passages did not reach the disk")


def gather(name: str, question: Question, library: Library) -> list[Passage]:
    """What an agent comes across on its way to an answer, in that order."""
    own, hits, own_hits = AGENTS[name]
    chance = random.Random(f"{name}:{question.text}")
    stumbled = chance.sample(list(library.passages), STUMBLED_ON)
    return [
        *library.search(question.text, hits),
        *library.search(question.searches[own], own_hits),
        *stumbled,
    ]


if __name__ == "__main__":
    main()
