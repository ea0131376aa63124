"""Draws a sweep's progress on stderr: bars on a terminal, a line now and then elsewhere, or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

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
    match style:
        case Style.BAR:
            return Bars()
        case Style.LINES:
            return Lines()
        case Style.JSON:
            return JsonLines()
        case _:
            from ..sweep.progress import Silent

            return Silent()


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
        self._tasks: dict[tuple[str, str], Any] = {}
        self._task: Any = None
        self._done: dict[Any, int] = {}
        self._worked: dict[Any, float] = {}
        self._since = 0.0
        self._drawing.start()

    def phase(self, name: str, total: int | None, unit: str) -> None:
        """Begin a bar, or go on with one: a phase told again has another total, or was left for a while."""
        self._leave()
        task = self._tasks.get((name, unit))
        if task is None:
            task = self._tasks[name, unit] = self._drawing.add_task(name, total=total, unit=unit, rate="")
            self._done[task], self._worked[task] = 0, 0.0
        else:
            self._drawing.update(task, total=total)
            self._drawing.tasks[self._drawing.task_ids.index(task)].stop_time = None
        self._task, self._since = task, time.monotonic()

    def advance(self, done: int, **rates: float) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._done[self._task] += done
        passed = self._worked[self._task] + time.monotonic() - self._since
        shown = rates or ({"/s": self._done[self._task] / passed} if passed > 1 else {})
        self._drawing.update(self._task, advance=done, rate=rate_text(shown))

    def note(self, text: str) -> None:
        """A line above the bars."""
        from rich.text import Text

        from .output import printable

        self._drawing.console.print(Text(printable(text)))

    def finish(self) -> None:
        """Leave the bars as they are."""
        self._leave()
        self._drawing.stop()

    def _leave(self) -> None:
        if self._task is None:
            return
        self._worked[self._task] += time.monotonic() - self._since
        task = self._drawing.tasks[self._drawing.task_ids.index(self._task)]
        if task.total is None:  # a phase without a measure is over when the next begins
            self._drawing.update(self._task, total=max(1, task.completed), completed=max(1, task.completed))
        self._drawing.stop_task(self._task)
        self._task = None


class Lines:
    """For logs: a line when a phase begins, every ten seconds, and when it ends."""

    def __init__(self) -> None:
        self._name = self._unit = ""
        self._total: int | None = None
        self._done = 0
        self._began = self._said = 0.0

    def phase(self, name: str, total: int | None, unit: str) -> None:
        """Say what begins; a phase told again only has another total."""
        if name == self._name:
            self._total = total
            return
        self._leave()
        self._name, self._unit, self._total, self._done = name, unit, total, 0
        self._began = self._said = time.monotonic()

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
            left = f", {span(max(0, self._total - self._done) * passed / self._done)} left"
        shown = rate_text(rates) or f"{self._done / passed:,.1f} {self._unit}/s"
        of = f" of {self._total:,}" if self._total is not None else ""
        note(f"{self._name} {self._done:,}{of} {self._unit}, {shown}{left}")

    def note(self, text: str) -> None:
        """Say it."""
        note(text)

    def finish(self) -> None:
        """Say how the last phase ended."""
        self._leave()

    def _leave(self) -> None:
        passed = span(time.monotonic() - self._began)
        if self._done:
            note(f"{self._name} {self._done:,} {self._unit} in {passed}")
        elif self._name and self._total is None:
            note(f"{self._name} {self._unit} took {passed}")
        self._name, self._done = "", 0


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
