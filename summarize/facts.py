"""Numbers, dates and names of a point that stand in none of its sources.

What this covers, exactly:

* Numbers in digits of any script, with thousands separators read either way ("1,000" is 1000, "1.5" may be 15
  nowhere but 1.5 or, as "1.500", 1500). English number words up to twelve in a source count as their digits.
  Units, currencies and magnitudes ("million") are not compared, nor is anything computed ("half of 10").
* Dates with a year: 2024-03-05, 5 March 2024, March 5, 2024, March 2024, 05/03/2024 (read both ways),
  compared by value, so that a source may write them another way. A point may be less exact than its source,
  not more.
* Names: identifiers (`os.path`, `snake_case`, `camelCase`, `sha256`), words in capitals, and capitalised
  words inside a sentence; at its start only where the next word is capitalised too (and is no acronym).
  Compared without case, by whole words. In titles and in German (two of its function words) capitalised
  words are not checked; scripts without case have identifiers and numbers only.

A mark says "look here", no more: what a sentence claims about its numbers and names is not read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_MONTH = {name: number for number, full in enumerate(_MONTHS, 1) for name in (full, full[:3])} | {"sept": 9}
_MONTH_WORD = "|".join(sorted(_MONTH, key=len, reverse=True))
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905

_DATES = (
    re.compile(r"\b(?P<y>\d{4})-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2}))?\b"),
    re.compile(
        rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?P<n>{_MONTH_WORD})\.?,?\s+(?P<y>\d{{4}})\b", re.I
    ),
    re.compile(
        rf"\b(?P<n>{_MONTH_WORD})\.?\s+(?:(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+)?(?P<y>\d{{4}})\b", re.I
    ),
    re.compile(r"\b(?P<a>\d{1,2})[/.](?P<b>\d{1,2})[/.](?P<y>\d{4})\b"),
)
_NUMBER = re.compile(r"(?<![^\W_])\d+(?:[.,]\d+)*")
_IDENTIFIER = re.compile(r"(?<!\w)[^\W\d]\w*(?:\.[^\W\d]\w*)+|\w*[^\W_]_+[^\W_]\w*|(?<!\w)[^\W\d_]+\d\w*")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019\-][^\W\d_]+)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;]\s+|[-*•(\"\u201c'\u2018]\s*)$")

_GERMAN = frozenset(
    "der die das den dem des und ist ein eine einen nicht mit von zu auf für im wird oder auch".split()  # noqa: SIM905
)

Date = tuple[int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class _Facts:
    numbers: frozenset[str]
    dates: frozenset[Date]
    words: frozenset[str]
    folded: str


def unsourced(point: str, sources: Iterable[str]) -> tuple[str, ...]:
    """The numbers, dates and names of a point, as it writes them, that stand in none of the sources."""
    known = [_facts(source) for source in sources]
    text = _ascii_digits(point)
    missing: list[str] = []
    for found, dates in _dates(text):
        if not any(
            _agrees(date, known_one) for date in dates for facts in known for known_one in facts.dates
        ):
            missing.append(found)
        text = text.replace(found, " ")
    for name in _names(text):
        if not any(_stands(name, facts) for facts in known):
            missing.append(name)
    for number in _NUMBER.findall(_IDENTIFIER.sub(" ", text)):
        if not any(_forms(number) & facts.numbers for facts in known):
            missing.append(number)
    return tuple(dict.fromkeys(missing))


@lru_cache(maxsize=512)
def _facts(text: str) -> _Facts:
    text = _ascii_digits(text)
    words = frozenset(word.casefold() for word in _words(text))
    numbers = {form for number in re.findall(r"\d+(?:[.,]\d+)*", text) for form in _forms(number)}
    numbers |= {str(value) for value, word in enumerate(_WORDS) if word in words}
    return _Facts(
        numbers=frozenset(numbers),
        dates=frozenset(date for _, dates in _dates(text) for date in dates),
        words=words,
        folded=text.casefold(),
    )


def _ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    return "".join(
        str(unicodedata.digit(one)) if one.isdigit() and not one.isascii() else one for one in text
    ).translate({0x066B: ".", 0x066C: ","})


def _forms(number: str) -> frozenset[str]:
    """The values that a number may mean: separators as thousands, or the last one as the decimal point."""
    forms = {number, number.replace(",", ".")}
    if re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", number):
        forms.add(re.sub(r"[.,]", "", number))
    elif match := re.fullmatch(r"(\d{1,3}(?:,\d{3})+)(\.\d+)?|(\d{1,3}(?:\.\d{3})+)(,\d+)?", number):
        whole, part = (match[1], match[2]) if match[1] else (match[3], match[4])
        forms.add(re.sub(r"[.,]", "", whole) + (part or "").replace(",", "."))
    # 2.0 and 2 are one value; 3.10 and 3.1 are not always, so only zeros alone go.
    forms |= {form.partition(".")[0] for form in forms if re.fullmatch(r"\d+\.0+", form)}
    return frozenset(form.lstrip("0") or "0" for form in forms)


def _dates(text: str) -> list[tuple[str, tuple[Date, ...]]]:
    found: list[tuple[str, tuple[Date, ...]]] = []
    taken: list[tuple[int, int]] = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            part = match.groupdict()
            year = int(part["y"])
            if "a" in part:
                first, second = int(part["a"]), int(part["b"])
                dates: tuple[Date, ...] = tuple(
                    (year, month, day)
                    for month, day in ((first, second), (second, first))
                    if 1 <= month <= 12
                )
            else:
                month = _MONTH[part["n"].casefold()] if part.get("n") else int(part["m"])
                dates = ((year, month, int(part["d"]) if part.get("d") else None),) if month <= 12 else ()
            if dates:
                taken.append(match.span())
                found.append((match[0], dates))
    return found


def _agrees(claimed: Date, known: Date) -> bool:
    return all(one is None or one == other for one, other in zip(claimed, known, strict=True))


def _names(text: str) -> list[str]:
    found = _IDENTIFIER.findall(text)
    rest = _IDENTIFIER.sub(lambda match: " " * len(match[0]), text)
    matches = list(_WORD.finditer(rest))
    inside = [match for match in matches if not _SENTENCE_START.search(rest[: match.start()])]
    capitalised = sum(match[0][0].isupper() for match in inside)
    title = len(inside) >= 4 and capitalised * 10 >= len(inside) * 7
    if title or len({match[0].casefold() for match in matches} & _GERMAN) >= 2:
        return found
    for number, match in enumerate(matches):
        word = match[0]
        following = matches[number + 1] if number + 1 < len(matches) else None
        paired = (
            following is not None
            and following[0][0].isupper()
            and not following[0].isupper()  # "See RFC 9562" starts with no name
            and rest[match.end() : following.start()] == " "
        )
        camel = len(word) > 2 and word[1:] != word[1:].lower() and not word.isupper()
        capitals = len(word) > 1 and word.isupper()
        named = word[0].isupper() and len(word) > 1 and (match in inside or paired)
        if camel or capitals or named:
            found.append(word)
    return found


def _stands(name: str, facts: _Facts) -> bool:
    folded = re.sub(r"['\u2019]s$", "", name.casefold())
    if folded in facts.words or folded.rstrip("s") in facts.words or folded + "s" in facts.words:
        return True
    if re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", facts.folded):
        return True
    parts = [part for part in re.split(r"[.\-]", folded) if part]
    return len(parts) > 1 and all(
        re.search(rf"(?<!\w){re.escape(part)}(?!\w)", facts.folded) for part in parts
    )


def _words(text: str) -> Sequence[str]:
    return re.findall(r"[^\W_]+(?:['\u2019\-][^\W_]+)*|[^\W_]+", text)
