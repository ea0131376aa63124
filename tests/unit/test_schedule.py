"""Windows, on ordinary days and on the two nights when the clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from afterpass.core.config import ScheduleConfig
from afterpass.core.errors import ConfigError
from afterpass.sweep.schedule import Schedule

BERLIN = ZoneInfo("Europe/Berlin")


def schedule(*windows: str) -> Schedule:
    return Schedule.of(ScheduleConfig(windows=windows, timezone="Europe/Berlin"))


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def test_no_window_means_any_time() -> None:
    assert schedule().is_open(berlin("2026-06-01T12:00"))


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-06-01T21:59", False),
        ("2026-06-01T22:00", True),
        ("2026-06-02T05:59", True),
        ("2026-06-02T06:00", False),
    ],
)
def test_a_window_past_midnight(moment: str, is_open: bool) -> None:
    assert schedule("22:00-06:00").is_open(berlin(moment)) is is_open


def test_a_weekday_is_the_one_on_which_the_window_opens() -> None:
    nights = schedule("Mon-Fri 22:00-06:00")
    assert nights.is_open(berlin("2026-06-06T03:00"))  # Saturday morning belongs to Friday's window
    assert not nights.is_open(berlin("2026-06-08T03:00"))  # Monday morning would belong to Sunday's


def test_days_wrap_around_the_week() -> None:
    assert schedule("Sat-Mon 10:00-11:00").is_open(berlin("2026-06-07T10:30"))
    assert not schedule("Sat-Mon 10:00-11:00").is_open(berlin("2026-06-09T10:30"))


def test_it_says_when_the_window_closes() -> None:
    assert schedule("22:00-06:00").closes(berlin("2026-06-01T23:00")) == berlin("2026-06-02T06:00")


def test_the_night_that_has_an_hour_twice() -> None:
    window = schedule("01:00-04:00")
    first, second = berlin("2026-10-25T02:30"), berlin("2026-10-25T02:30", fold=1)
    assert window.is_open(first)
    assert window.is_open(second)
    closes = window.closes(first)
    assert closes is not None
    assert closes.timestamp() - first.timestamp() == timedelta(hours=2.5).total_seconds()


def test_the_night_that_lacks_an_hour() -> None:
    window = schedule("01:00-04:00")
    opened = berlin("2026-03-29T01:00")
    closes = window.closes(opened)
    assert closes is not None
    assert closes.timestamp() - opened.timestamp() == timedelta(hours=2).total_seconds()


@pytest.mark.parametrize("text", ["", "22-06", "Foo 22:00-06:00", "25:00-06:00"])
def test_what_is_no_window_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="not a window"):
        schedule(text)


def test_what_is_no_time_zone_is_named() -> None:
    with pytest.raises(ConfigError, match="Europe/Nowhere"):
        Schedule.of(ScheduleConfig(timezone="Europe/Nowhere"))
