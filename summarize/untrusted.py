"""Agent text is untrusted: what is done to it before a language model reads it.

Three things bound what a hostile item can do. Nothing in it becomes a control token (`neutral`); it stands
between marks that it does not contain (`mark`); and the reply's schema allows only ids that were shown.
What is left is persuasion: a model may still believe what it reads.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zlib
from collections.abc import Iterable
from functools import lru_cache

from .tokens import TokenCounter

# Whatever the tokenizer at hand lists: this shape is used for turns by most models.
_SHAPE = re.compile(r"<(?=[|\uff5c][^<>\n]{0,60}[|\uff5c]>)")
# Invisible characters that hide text from people and split words for filters; joiners that scripts need
# (ZWJ, ZWNJ) stay.
_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
# Control characters but tab and newline.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RUN = re.compile(r"(.{1,40}?)\1{19,}", re.DOTALL)

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeio"


def neutral(text: str, counter: TokenCounter) -> str:
    """A text that the tokenizer reads as text alone: what would become a control token is split by a space.

    Also takes out invisible and control characters and shortens what is repeated twenty times and more,
    since a giant repeat would spend a whole budget on nothing. The stored text stays as it was recorded.
    """
    text = _CONTROL.sub(" ", _INVISIBLE.sub("", text))
    if _repetitive(text):
        text = _RUN.sub(lambda match: match[1] * 3 + " [...] ", text)
    text = _split(text, counter.specials)
    if counter.controls(text):
        # A normaliser inside the tokenizer folded look-alikes into a control token: fold first, split again.
        text = _split(unicodedata.normalize("NFKC", text), counter.specials)
    if counter.controls(text):
        text = "\n".join(" ".join(line) if counter.controls(line) else line for line in text.split("\n"))
    return "" if counter.controls(text) else text


def _split(text: str, specials: Iterable[str]) -> str:
    """Put a space after the first character of every control token."""
    text = _SHAPE.sub("< ", text)
    pattern = _pattern(tuple(specials))
    for _ in range(3):  # a space can complete another token only where one has spaces inside
        if not pattern.search(text):
            return text
        text = pattern.sub(lambda match: match[0][0] + " " + match[0][1:], text)
    return pattern.sub(" ", text)


@lru_cache(maxsize=8)
def _pattern(specials: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted((word for word in specials if len(word) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _repetitive(text: str) -> bool:
    # The pattern for repeats is slow, so ask a compressor first whether there can be any.
    return len(text) > 400 and len(zlib.compress(text.encode("utf-8"), 1)) < len(text) // 7


def mark(texts: Iterable[str], salt: str = "") -> str:
    """A word that stands in none of the texts, to put around each of them.

    It follows from all the texts together, so that nobody who writes one of them can foresee it, while the
    same request gets the same mark in every run (replies stay cached, answers repeatable). Where it happens
    to occur in a text, the next one is taken: so it never does.
    """
    texts = list(texts)
    digest = hashlib.sha256(salt.encode("utf-8", "surrogatepass"))
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    seed = digest.digest()
    for turn in range(1000):
        word = _word(hashlib.sha256(seed + turn.to_bytes(4, "big")).digest())
        if not any(word in text.lower() for text in texts):
            return word
    raise AssertionError("a thousand unforeseeable words all occur in the texts")


def _word(digest: bytes) -> str:
    return "".join(_CONSONANTS[digest[i] % 16] + _VOWELS[digest[i + 1] % 4] for i in range(0, 10, 2))
