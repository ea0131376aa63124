"""Texts that say almost the same."""

from __future__ import annotations

import random

from afterpass.core.keys import content_hash
from afterpass.rerank import near_duplicates

BASE = " ".join(random.Random(3).choices([f"word{n}" for n in range(500)], k=300))


def test_near_texts_join_the_longest_and_others_stay() -> None:
    longer = BASE + " and a few words more"
    other = " ".join(reversed(BASE.split()))
    texts = {content_hash(t): t for t in (BASE, longer, other)}
    assert near_duplicates(texts, 0.9) == {content_hash(BASE): content_hash(longer)}


def test_order_does_not_matter_and_nobody_follows_a_follower() -> None:
    rng = random.Random(0)
    texts = {}
    for _ in range(60):
        words = BASE.split()
        for _ in range(rng.randrange(40)):
            words[rng.randrange(len(words))] = f"x{rng.randrange(1000)}"
        text = " ".join(words)
        texts[content_hash(text)] = text
    shuffled = list(texts.items())
    rng.shuffle(shuffled)
    found = near_duplicates(texts, 0.7)
    assert found
    assert found == near_duplicates(dict(shuffled), 0.7)
    assert not set(found.values()) & set(found)


def test_exactly_at_the_threshold_counts() -> None:
    a, b = "one two three four", "one two three five"  # shingles: 2 and 2, one shared: 1/3
    texts = {content_hash(t): t for t in (a, b)}
    assert len(near_duplicates(texts, 1 / 3)) == 1
    assert near_duplicates(texts, 0.34) == {}


def test_none_one_and_blank() -> None:
    assert near_duplicates({}, 0.8) == {}
    assert near_duplicates({content_hash("a"): "a"}, 0.8) == {}
    texts = {content_hash(t): t for t in ("", "  ", "!!")}
    assert len(near_duplicates(texts, 0.8)) == 2
