"""Numbers, dates and names that stand in none of a point's sources: what the module says it covers."""

from __future__ import annotations

import pytest

from afterpass.summarize.facts import unsourced

SOURCE = (
    "Ada Lovelace wrote to Charles Babbage on 5 March 1843. The engine had 1,000 wheels and cost 17.5 "
    "pounds; three drawings survive. Call subprocess.run with timeout_s or maxLength; RFC 9562 and sha256."
)


@pytest.mark.parametrize(
    "point",
    [
        "The engine had 1000 wheels.",
        "The engine had 1,000 wheels and 3 drawings survive.",
        "It cost 17.5 pounds.",
        "Lovelace wrote on March 5, 1843.",
        "She wrote in March 1843.",
        "It was written on 1843-03-05 by Ada Lovelace.",
        "It was on 05/03/1843.",
        "Use `subprocess.run` with timeout_s.",
        "Babbage's engine is described in RFC 9562.",
        "See ADA LOVELACE and SHA256.",
        "The run is in subprocess.",
        "Nothing to see here.",
        "٣ drawings survive.",
    ],
)
def test_what_stands_in_the_source_is_not_marked(point: str) -> None:
    assert unsourced(point, [SOURCE]) == ()


@pytest.mark.parametrize(
    ("point", "marked"),
    [
        ("The engine had 2000 wheels.", ("2000",)),
        ("It cost 17.4 pounds.", ("17.4",)),
        ("She wrote on 6 March 1843.", ("6 March 1843",)),
        ("She wrote on 1844-03-05.", ("1844-03-05",)),
        ("Letters went to Grace Hopper.", ("Grace", "Hopper")),
        ("Use os.kill for that.", ("os.kill",)),
        ("Set time_limit to 3.", ("time_limit",)),
        ("It is md5, not sha256.", ("md5",)),
        ("See RFC 4122.", ("4122",)),
        ("The NASA engine.", ("NASA",)),
        ("Grace Hopper wrote it.", ("Grace", "Hopper")),
    ],
)
def test_what_stands_nowhere_is_named(point: str, marked: tuple[str, ...]) -> None:
    assert unsourced(point, [SOURCE]) == marked


def test_any_of_several_sources_will_do() -> None:
    assert unsourced("Alice met Bob in 1999.", ["It was Alice.", "then Bob came, in 1999"]) == ()
    assert unsourced("It was 1999.", []) == ("1999",)


@pytest.mark.parametrize(
    ("point", "source"),
    [
        ("Der Motor treibt die Pumpe und den Lüfter der Anlage an.", "Ein Elektromotor."),
        ("How To Kill A Child Process In Python", "kill a child"),
        ("北京是中国的首都", "别的"),
    ],
)
def test_what_is_not_covered_is_not_guessed(point: str, source: str) -> None:
    assert unsourced(point, [source]) == ()


@pytest.mark.parametrize(
    ("claimed", "written", "same"),
    [
        ("1.000", "1000", True),
        ("1.500.000", "1,500,000", True),
        ("2.0", "2", True),
        ("3.10", "3.1", False),
        ("3.10", "310", False),
        ("007", "7", True),
        ("12", "123", False),
        ("1,234.5", "1234.5", True),
    ],
)
def test_numbers_are_compared_by_value(claimed: str, written: str, same: bool) -> None:
    assert (unsourced(f"it is {claimed} units", [f"we saw {written} units"]) == ()) is same
