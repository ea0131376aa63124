"""What a model is shown of a text: without terminal escapes and blobs, and with a way back.

Agents' outputs carry colour codes and encoded files, which cost tokens and say nothing. What is stored stays
as it was recorded; `Cleaned.original` maps a span of the cleaned text to the recorded one, so that excerpts
are always cut from what the agent really got.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

VERSION = 1
"""Part of the judgement key: changes when the same text would be shown differently."""

BLOB = 256
"""Characters from which an encoded run is elided."""

# ECMA-48: CSI sequences, OSC/DCS/APC/PM/SOS strings with their terminator, and the short escapes.
_ANSI = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-~]"
)
_RUN = r"[A-Za-z0-9+/_-]"
# Possessive, and only from a run's first character on: linear however long the text. Lines of a wrapped blob
# are joined where each is at least 40 long; a short last line only where it ends in padding.
_BLOB = rf"(?<!{_RUN})(?>{_RUN}{{40,}}+(?:\r?\n{_RUN}{{40,}}+)*+(?:\r?\n{_RUN}++(?==))?={{0,2}})"
_FIND = re.compile(f"(?P<ansi>{_ANSI})|(?P<blob>{_BLOB})")
_HEX = re.compile(r"[0-9a-fA-F\s]+")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text as a model is shown it.

    Attributes:
        text: what the model reads.
        elided: how many characters of the recorded text stand behind a note of their size.
        cuts: where the texts differ, in order: (first and one-past-last character in `text`, first and
            one-past-last in the recorded text).
    """

    text: str
    elided: int = 0
    cuts: tuple[tuple[int, int, int, int], ...] = ()

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The recorded text's span for the span `start`, `end` of `text`.

        A span that touches a note covers all that the note stands for; one that ends beside removed escapes
        leaves them out.
        """
        if not self.cuts:
            return start, end
        if start >= end:
            at = self._first(start)
            return at, at
        return self._first(start), self._last(end)

    def _first(self, at: int) -> int:
        index = bisect_right(self.cuts, at, key=lambda cut: cut[0]) - 1
        if index < 0:
            return at
        _, shown_end, first, last = self.cuts[index]
        return first if at < shown_end else last + at - shown_end

    def _last(self, at: int) -> int:
        # The last cut that starts before the character `at - 1` ends; one that starts at `at` is beyond it.
        index = bisect_right(self.cuts, at - 1, key=lambda cut: cut[0]) - 1
        if index < 0:
            return at
        _, shown_end, _, last = self.cuts[index]
        return last if at <= shown_end else last + at - shown_end


def clean(text: str) -> Cleaned:
    """Strip terminal escapes and elide encoded runs of 256 characters and more, noting their size."""
    shown: list[str] = []
    cuts: list[tuple[int, int, int, int]] = []
    at = length = elided = 0
    for match in _FIND.finditer(text):
        start, end = match.span()
        note = ""
        if match["blob"] is not None:
            if (kind := _kind(match[0])) is None:
                continue
            note = f"[{end - start} characters of {kind}]"
            elided += end - start
        shown += (text[at:start], note)
        length += start - at
        cuts.append((length, length + len(note), start, end))
        length += len(note)
        at = end
    if not cuts:
        return Cleaned(text)
    shown.append(text[at:])
    return Cleaned("".join(shown), elided, tuple(cuts))


def _kind(run: str) -> str | None:
    """ "base64" or "hex" where a long run is one; None for paths, identifiers and repeated characters."""
    if len(run) < BLOB:
        return None
    sample = run if len(run) <= 4096 else run[:2048] + run[-2048:]
    if len(set(sample)) < 12:
        return None
    if _HEX.fullmatch(sample):
        return "hex"
    n = len(sample)
    digits = sum(map(str.isdigit, sample)) / n
    upper = sum(map(str.isupper, sample)) / n
    lower = sum(map(str.islower, sample)) / n
    # Of 64 equally likely signs 16 % are digits and 41 % each upper and lower case.
    return "base64" if digits > 0.04 and upper > 0.15 and lower > 0.15 else None
