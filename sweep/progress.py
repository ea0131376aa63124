"""How a sweep tells where it stands, to whoever draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of phases and of what got done in them; draws or stays silent, never fails."""

    def phase(self, name: str, total: int | None, unit: str) -> None:
        """A phase begins: "ingesting", "loading", "scoring", "summarising", "checking"."""
        ...

    def advance(self, done: int, **rates: float) -> None:
        """`done` more units are finished; `rates` are shown as they are (tokens per second, ...)."""
        ...

    def note(self, text: str) -> None:
        """Something that a person at the terminal should see."""
        ...

    def finish(self) -> None:
        """No more will come."""
        ...


class Silent:
    """Draws nothing."""

    def phase(self, name: str, total: int | None, unit: str) -> None:
        pass

    def advance(self, done: int, **rates: float) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def finish(self) -> None:
        pass
