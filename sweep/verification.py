"""What `verify` found, and how it is told."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from . import compare
from .compare import State

VERSION = 1


@dataclass(slots=True)
class Verification:
    """What was found.

    Attributes:
        scores, decisions, replies: the figures.
        why: part -> what a person should know of it.
        keys: part -> judgement keys: `stored` (with how many) and `now`.
        changed: items or groups that came out otherwise, the first few: {"group", "item", "was", "is"}.
    """

    home: str
    sample: int
    seed: int
    groups: int = 0
    scores: compare.Scores = field(default_factory=compare.Scores)
    decisions: compare.Decisions = field(default_factory=compare.Decisions)
    replies: compare.Replies = field(default_factory=compare.Replies)
    why: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    changed: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def states(self) -> dict[str, State]:
        """The state of each part."""
        return {
            "scores": self.scores.state,
            "decisions": self.decisions.state(self.scores.state),
            "replies": self.replies.state,
        }

    @property
    def state(self) -> State:
        """The worst of all parts."""
        found = set(self.states.values())
        return next((s for s in (State.CHANGED, State.NOISE, State.SAME) if s in found), State.NONE)

    def as_json(self) -> dict[str, Any]:
        """The contract of `afterpass verify --json`."""
        parts: dict[str, compare.Scores | compare.Decisions | compare.Replies] = {
            "scores": self.scores,
            "decisions": self.decisions,
            "replies": self.replies,
        }
        return {
            "version": VERSION,
            "home": self.home,
            "state": self.state,
            "sample": self.sample,
            "seed": self.seed,
            "groups": self.groups,
            **{
                name: {
                    "state": self.states[name],
                    "why": self.why[name],
                    **self.keys.get(name, {}),
                    **compare.figures(part),
                }
                for name, part in parts.items()
            },
            "changed": self.changed,
            "seconds": round(self.seconds, 1),
        }
