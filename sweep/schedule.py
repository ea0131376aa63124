"""When a sweep may run: windows in a named time zone, right on the nights when the clocks change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..core.config import ScheduleConfig
from ..core.errors import ConfigError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(
    r"(?:(?P<from>[a-z]{3})(?:-(?P<to>[a-z]{3}))?\s+)?(?P<begin>\d{1,2}:\d{2})\s*-\s*(?P<end>\d{1,2}:\d{2})",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Window:
    """A daily span of wall-clock time on some weekdays (0 is Monday); `end` <= `begin` runs past midnight.

    The weekday is the one on which the window opens.
    """

    days: frozenset[int]
    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> Window:
        """ "22:00-06:00" or "Mon-Fri 22:00-06:00". Raises ConfigError on anything else."""
        match = _WINDOW.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError("not a window")
            return cls(
                _days(match["from"], match["to"]), time.fromisoformat(match["begin"].zfill(5)),
                time.fromisoformat(match["end"].zfill(5)),
            )  # fmt: skip
        except ValueError as error:
            raise ConfigError(
                f"schedule.windows: {text!r} is not a window ({error})",
                hint='write "22:00-06:00" or "Mon-Fri 22:00-06:00"',
            ) from None

    def closes(self, local: datetime) -> datetime | None:
        """When the window that is open at `local` closes, or None when it is not open then."""
        for opened in (local.date(), local.date() - timedelta(days=1)):
            if opened.weekday() not in self.days:
                continue
            begin = datetime.combine(opened, self.begin, local.tzinfo)
            last = opened if self.end > self.begin else opened + timedelta(days=1)
            end = datetime.combine(last, self.end, local.tzinfo)
            # Compared as moments, not as wall-clock readings: a wall clock shows one hour twice a year.
            if begin.astimezone(UTC) <= local.astimezone(UTC) < end.astimezone(UTC):
                return end
        return None


@dataclass(frozen=True, slots=True)
class Schedule:
    """All windows of a configuration; none at all means any time."""

    windows: Sequence[Window]
    zone: ZoneInfo

    @classmethod
    def of(cls, config: ScheduleConfig) -> Schedule:
        """Raises ConfigError for a window or a time zone that is none."""
        try:
            zone = ZoneInfo(config.timezone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ConfigError(
                f"schedule.timezone: there is no time zone {config.timezone!r}",
                hint='name one such as "Europe/Berlin" or "UTC"',
            ) from None
        return cls(tuple(Window.parse(text) for text in config.windows), zone)

    def closes(self, now: datetime) -> datetime | None:
        """When the last of the windows open at `now` closes; None when none is open (or there are none)."""
        local = now.astimezone(self.zone)
        return max((end for window in self.windows if (end := window.closes(local))), default=None)

    def is_open(self, now: datetime) -> bool:
        """Whether a sweep may run at `now`."""
        return not self.windows or self.closes(now) is not None


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    begin = _DAYS.index(first.lower())
    end = _DAYS.index(last.lower()) if last else begin
    return frozenset((begin + step) % 7 for step in range((end - begin) % 7 + 1))
