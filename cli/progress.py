"""Draws a sweep's progress on stderr: bars on a terminal, a line now and then elsewhere, or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from .output import note, span

if TYPE_CHECKING:
    from ..sweep.progress import Progress

LINE_EVERY_S = 10.0


class Style(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    BAR = "bar"
    LINES = "lines"
    JSON = "json"
    NONE = "none"


def progress(style: Style = Style.AUTO) -> Progress:
    """Who draws: `auto` means bars where stderr is a terminal and lines where it is not."""
    if style is Style.AUTO:
        style = Style.BAR if sys.stderr.isatty() else Style.LINES
    if style is Style.NONE:
        from ..sweep.progress import Silent

        return Silent()
    return {Style.BAR: Bars, Style.LINES: Lines, Style.JSON: JsonLines}[style]()


def rate_text(rates: dict[str, float]) -> str:
    """`{"pairs_per_s": 310.2}` as "310 pairs/s"."""
    return ", ".join(
        f"{value:,.0f} {name.replace('_per_s', '/s').replace('_', ' ')}" for name, value in rates.items()
    )


class Bars:
    """One bar a phase, with what is done, the rate and the time left; finished phases stay in sight."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._drawing = Progress(
            SpinnerColumn(finished_text="[green]\u2713"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("[dim]{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]left"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True, highlight=False),
            expand=False,
        )
        self._task: int | None = None
        self._done = 0
        self._began = 0.0
        self._drawing.start()

    def phase(self, name: str, total: int | None, unit: str) -> None:
        """Close the bar before, open the next."""
        self._close()
        self._done, self._began = 0, time.monotonic()
        self._task = self._drawing.add_task(name, total=total, unit=unit, rate="")

    def advance(self, done: int, **rates: float) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._done += done
        passed = time.monotonic() - self._began
        shown = rates or ({"/s": self._done / passed} if self._done and passed > 1 else {})
        self._drawing.update(self._task, advance=done, rate=rate_text(shown))  # type: ignore[arg-type]

    def note(self, text: str) -> None:
        """A line above the bars."""
        from rich.text import Text

        from .output import printable

        self._drawing.console.print(Text(printable(text)))

    def finish(self) -> None:
        """Leave the bars as they are."""
        self._close()
        self._drawing.stop()

    def _close(self) -> None:
        if self._task is None:
            return
        task = self._drawing.tasks[self._drawing.task_ids.index(self._task)]  # type: ignore[arg-type]
        self._drawing.update(task.id, total=task.completed if task.total is None else task.total)
        self._drawing.stop_task(task.id)
        self._task = None


class Lines:
    """For logs: a line when a phase begins, every ten seconds, and when it ends."""

    def __init__(self) -> None:
        self._name = ""

    def phase(self, name: str, total: int | None, unit: str) -> None:
        """Say what begins."""
        self._close()
        self._name, self._total, self._unit = name, total, unit
        self._done = 0
        self._began = self._said = time.monotonic()
        note(f"{name}{f' {total:,} {unit}' if total is not None else ''}")

    def advance(self, done: int, **rates: float) -> None:
        """Say where it stands, now and then."""
        self._done += done
        now = time.monotonic()
        if now - self._said < LINE_EVERY_S:
            return
        self._said = now
        passed = now - self._began
        left = ""
        if self._total and self._done:
            left = f", {span((self._total - self._done) * passed / self._done)} left"
        shown = rate_text(rates) or f"{self._done / passed:,.1f} {self._unit}/s"
        of = f" of {self._total:,}" if self._total is not None else ""
        note(f"{self._name} {self._done:,}{of} {self._unit}, {shown}{left}")

    def note(self, text: str) -> None:
        """Say it."""
        note(text)

    def finish(self) -> None:
        """Say how the last phase ended."""
        self._close()

    def _close(self) -> None:
        if self._name:
            note(f"{self._name} done: {self._done:,} {self._unit} in {span(time.monotonic() - self._began)}")
            self._name = ""


class JsonLines:
    """For programs: one JSON object a line, `{"event": "phase" | "advance" | "note" | "finish", ...}`."""

    def phase(self, name: str, total: int | None, unit: str) -> None:
        """`{"event": "phase", "name", "total", "unit"}`."""
        self._write({"event": "phase", "name": name, "total": total, "unit": unit})

    def advance(self, done: int, **rates: float) -> None:
        """`{"event": "advance", "done", "rates"}`."""
        self._write({"event": "advance", "done": done, "rates": rates})

    def note(self, text: str) -> None:
        """`{"event": "note", "text"}`."""
        self._write({"event": "note", "text": text})

    def finish(self) -> None:
        """`{"event": "finish"}`."""
        self._write({"event": "finish"})

    @staticmethod
    def _write(event: dict[str, object]) -> None:
        print(json.dumps(event), file=sys.stderr, flush=True)
