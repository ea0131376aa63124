"""The scorer without a model."""

from __future__ import annotations

import math

import pytest

from afterpass.core.keys import content_hash
from afterpass.core.types import Pair, Score
from afterpass.rerank.lexical import LexicalScorer, score, words


def pair(query: str, text: str) -> Pair:
    return Pair(content_hash(query), content_hash(text), query, text)


def test_more_of_the_query_is_more() -> None:
    query = "kill a child process that takes too long"
    good = score(pair(query, "subprocess.run(timeout=...): the child process is killed if it takes too long"))
    some = score(pair(query, "A process is an instance of a program."))
    none = score(pair(query, "Bananas are yellow."))
    assert good.logit is not None
    assert some.logit is not None
    assert none.logit is not None
    assert good.logit > some.logit > none.logit


@pytest.mark.parametrize(
    ("query", "good", "bad"),
    [
        ("機械学習の評価", "これは機械学習モデルの評価です", "今日は天気がいい"),
        ("الذكاء الاصطناعي", "مقدمة في الذكاء الاصطناعي", "الطقس جميل اليوم"),
        ("café crème", "un CAFÉ crème, s'il vous plaît", "a cup of tea"),
        ("서울 날씨", "오늘 서울 날씨는 맑음", "부산 맛집"),
    ],
)
def test_scripts(query: str, good: str, bad: str) -> None:
    best, worst = score(pair(query, good)).logit, score(pair(query, bad)).logit
    assert best is not None
    assert worst is not None
    assert best > worst


def test_excerpt_of_a_long_text_holds_the_answer() -> None:
    text = "filler words here " * 20_000 + "the needle 🧵 stands here " + "more of it " * 20_000
    result = score(pair("needle", text))
    assert "needle" in text[result.excerpt_start : result.excerpt_end]
    assert result.excerpt_end - result.excerpt_start < 3000


@pytest.mark.parametrize("text", ["", " ", "\0", "!!!", "\ud800", "🧵"])
def test_odd_texts_have_a_finite_logit(text: str) -> None:
    logit = score(pair("anything", text)).logit
    assert logit is not None
    assert math.isfinite(logit)


def test_words_offsets_read_back() -> None:
    text = "Ünïcode 機械学習とcats 🧵 x1"
    for word, start, end in words(text):
        assert text[start:end].casefold().startswith(word[:1])


def test_one_result_for_each_request() -> None:
    scorer = LexicalScorer()
    assert scorer.step() == []
    pairs = [pair("query", f"text {n}") for n in range(200)]
    for p in pairs:
        scorer.submit(p)
    done: list[Score] = []
    while scorer.pending:
        done += scorer.step()
    assert {s.text_hash for s in done} == {p.text_hash for p in pairs}
    assert len(done) == 200
    scorer.close()
    scorer.close()
