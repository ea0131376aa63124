"""Groups that are large, deep or not in English, through a whole engine."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from afterpass import summarize
from afterpass.core.config import SummarizePolicy, SummarizerConfig
from afterpass.core.types import SummaryStatus

CONFIG = SummarizerConfig(model="extractive", max_model_len=4096, max_in_flight=10_000)

# ruff: noqa: RUF001 - other scripts have their own commas
TEXTS = {
    "Korean": (
        "한국의 수도는 서울이다. 서울은 한강을 끼고 있으며 약 940만 명이 산다.",
        "부산은 한국에서 두 번째로 큰 도시이고 큰 항구가 있다.",
    ),
    "Chinese": (
        "中国的首都是北京。北京有两千多万人口，是政治和文化的中心。",
        "上海是中国最大的城市之一，有世界上最繁忙的港口。",
    ),
    "Arabic": (
        "عاصمة مصر هي القاهرة. تقع على نهر النيل ويسكنها نحو عشرة ملايين نسمة.",
        "الإسكندرية مدينة كبيرة على البحر المتوسط وفيها ميناء قديم.",
    ),
    "Hindi": (
        "भारत की राजधानी नई दिल्ली है। यहाँ संसद और सरकार के मुख्य भवन हैं।",
        "मुंबई भारत का सबसे बड़ा शहर है और समुद्र के किनारे है।",
    ),
    "mixed": ("Wien ist die Hauptstadt. Vienna 🇦🇹 is the capital.", "維也納是奧地利的首都。 фёдор писал."),
}


def finish(job: summarize.GroupJob) -> Counter[int]:
    """Drive a job to its end; how many replies each level took."""
    engine = summarize.load(CONFIG)
    levels: Counter[int] = Counter()
    for prompt in job.start():
        engine.submit(prompt)
    while engine.pending:
        for reply in engine.step():
            levels[job.level_of(reply)] += 1
            for prompt in job.feed(reply):
                engine.submit(prompt)
    assert job.summaries is not None
    return levels


def job_of(group: Any, kept: Any, **policy: Any) -> summarize.GroupJob:
    counter, context = summarize.token_counter(CONFIG), summarize.context_length(CONFIG)
    return summarize.GroupJob(group, kept, SummarizePolicy(**policy), counter, context)


@pytest.mark.parametrize("language", TEXTS)
def test_a_group_in_any_script(group_of: Any, language: str) -> None:
    group, kept = group_of(*TEXTS[language], query=TEXTS[language][0].split()[0])
    job = job_of(group, kept)
    finish(job)
    (summary,) = job.summaries or []
    assert summary.status is SummaryStatus.DONE
    assert {item for point in summary.points for item in point.items} == {item.item_id for item in kept}
    for point in summary.points:
        text = point.text.removesuffix(" ...").rstrip(".")
        assert any(text in item.text for item in kept), "nothing is garbled on the way"


def test_a_group_of_five_thousand_items(group_of: Any) -> None:
    group, kept = group_of(*(f"Item {number} says that thing {number} is so." for number in range(5000)))
    job = job_of(group, kept, input_tokens=10**6)
    levels = finish(job)
    (summary,) = job.summaries or []
    assert summary.status is SummaryStatus.DONE
    assert summary.left_out == 0
    assert summary.levels == max(levels) >= 3
    assert summary.calls == sum(levels.values())
    assert levels[max(levels)] == 1

    job = job_of(group, kept)
    assert finish(job).total() < 10
    (summary,) = job.summaries or []
    assert summary.left_out == job.budget.left_out > 4000
    assert job.budget.sent < 6000 < job.budget.wanted


@pytest.mark.slow
def test_a_million_characters_under_map_reduce(group_of: Any) -> None:
    chance = random.Random(1)
    words = [f"word{number}" for number in range(3000)]
    texts = [" ".join(chance.choices(words, k=14_000)) + "." for _ in range(12)]
    assert sum(map(len, texts)) > 1_000_000
    group, kept = group_of(*texts, query="word7 word77 word777")
    job = job_of(group, kept, input_tokens=10**6)
    levels = finish(job)
    (summary,) = job.summaries or []
    assert summary.status is SummaryStatus.DONE
    assert job.budget.cut == job.budget.left_out == 0
    assert job.budget.sent == job.budget.wanted
    assert summary.levels == len(levels) >= 3
    assert list(levels) == sorted(levels)
    assert [levels[level] for level in sorted(levels)] == sorted(levels.values(), reverse=True)
    assert summary.calls == levels.total()
    assert summary.points
