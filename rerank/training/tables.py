"""The head's fixed tables, made from training texts: document frequencies, stems, digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

SMALLEST_RATE = 1e-4
"""Rarer than one text in ten thousand counts as that."""


def stems(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """For each vocabulary id the smallest id whose word has the same English stem; itself for word pieces."""
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    first: dict[str, int] = {}
    table = np.arange(len(vocabulary), dtype=np.int32)
    for word, index in vocabulary:
        if word.isascii() and word.isalpha() and len(word) > 2:
            table[index] = first.setdefault(stemmer.stemWord(word), index)
    return table


def digits(tokenizer: Tokenizer) -> NDArray[np.float32]:
    """1 for each vocabulary id that holds a digit."""
    table = np.zeros(tokenizer.get_vocab_size(), np.float32)
    for word, index in tokenizer.get_vocab().items():
        table[index] = any(letter.isdigit() for letter in word)
    return table


def idf(texts: Mapping[str, Sequence[Sequence[int]]], stem: NDArray[np.int32]) -> NDArray[np.float32]:
    """BM25's idf for each vocabulary id, from token ids of texts by set.

    A term's rate is the mean of its rates in the sets, so that a large set weighs no more than a small one.
    Special tokens get 0, which is how the head knows that they are no words.
    """
    rates = np.zeros(len(stem))
    for documents in texts.values():
        counts = np.zeros(len(stem))
        for document in documents:
            counts[np.unique(stem[np.asarray(document, np.int64)])] += 1
        rates += counts / max(1, len(documents)) / len(texts)
    rates = np.maximum(rates, SMALLEST_RATE)
    values = np.log1p((1 - rates) / rates)
    values = np.clip(values, 0.02, math.log(1 / SMALLEST_RATE))[stem]
    values[[0, 100, 101, 102, 103]] = 0.0  # [PAD], [UNK], [CLS], [SEP], [MASK]
    return values.astype(np.float32)
