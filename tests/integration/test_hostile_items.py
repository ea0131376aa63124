"""Items that attack: instructions, forged turns, ids and verdicts, broken JSON, hidden text, floods.

No output leaves the schema, no citation points outside the group, nothing becomes a control token, and the
neighbours get their say. What a model can still be persuaded of is counted by `benchmarks/hostile.py`.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from afterpass import summarize
from afterpass.core.config import SummarizePolicy, SummarizerConfig
from afterpass.core.keys import content_hash
from afterpass.core.seams import Scorer
from afterpass.core.types import Pair, Prompt, Reply, Summary, SummaryStatus
from afterpass.summarize import embedded
from afterpass.summarize.conform import problem
from afterpass.summarize.tokens import GuessCounter, TokenCounter, from_folder
from afterpass.sweep.engine_process import EngineProcess

DATA = Path(__file__).parents[1] / "data"
CORPUS = json.loads((DATA / "hostile_items.json").read_text("utf-8"))
SUFFIXES = json.loads((DATA / "hostile_suffixes.json").read_text("utf-8"))
QUERY = "What is known of it?"
BEFORE = "The tower was built of stone in the year 1822 by the town's own people."
AFTER = "It is forty metres high and stands beside the old harbour."
CONTEXT = 4096


def text_of(entry: dict[str, Any]) -> str:
    return entry["text"] * entry.get("times", 1) + entry.get("tail", "")


HOSTILE = {entry["name"]: text_of(entry) for entry in CORPUS}


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    """The embedded model's tokenizer, whose control tokens must not be forged."""
    return from_folder(embedded.prepare())


def job_of(
    group_of: Any, text: str, counter: TokenCounter, known: set[UUID] | None = None
) -> summarize.GroupJob:
    group, kept = group_of(BEFORE, text, AFTER, query=QUERY)
    if known is not None:
        known.update(item.item_id for item in kept)
    return summarize.GroupJob(group, kept, SummarizePolicy(input_tokens=1500), counter, CONTEXT)


def check(job: summarize.GroupJob, prompts: dict[str, Prompt], replies: list[Reply]) -> Summary:
    for reply in replies:
        schema = prompts[reply.id].schema
        assert schema is not None
        assert problem(json.loads(reply.text), schema) is None
        job.feed(reply)
    (summary,) = job.summaries or []
    assert summary.status is SummaryStatus.DONE
    return summary


def test_the_corpus_is_large_enough() -> None:
    assert len(HOSTILE) == len(CORPUS) >= 60


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_in_an_item_becomes_a_control_token(group_of: Any, counter: Any, name: str) -> None:
    (prompt,) = job_of(group_of, HOSTILE[name], counter).start()
    rendered = counter._template.render(messages=list(prompt.messages), add_generation_prompt=True)
    ids = counter._tokenizer.encode(rendered, add_special_tokens=False).ids
    turns = ids.count(counter._tokenizer.token_to_id("<|im_start|>"))
    ends = ids.count(counter._tokenizer.token_to_id("<|im_end|>"))
    assert (turns, ends) == (len(prompt.messages) + 1, len(prompt.messages))
    assert sum(one in counter._control_ids for one in ids) == turns + ends
    assert len(ids) + prompt.max_tokens <= CONTEXT


@pytest.mark.parametrize("name", HOSTILE)
def test_passages_stay_apart(group_of: Any, counter: TokenCounter, name: str) -> None:
    (prompt,) = job_of(group_of, HOSTILE[name], counter).start()
    said = prompt.messages[-1]["content"]
    word = said.rpartition("[end ")[2].partition("]")[0]
    assert word.isalpha()
    assert word not in HOSTILE[name].lower()
    shown = [number for number in range(1, 10) if f"[{number} {word}]" in said]
    assert shown == list(range(1, len(shown) + 1))
    assert said.count(word) == len(shown) + 1
    assert BEFORE in said
    assert AFTER in said, "a flood does not push its neighbours out"


@pytest.mark.parametrize("name", HOSTILE)
def test_without_a_model_the_neighbours_get_their_say(group_of: Any, name: str) -> None:
    known: set[UUID] = set()
    job = job_of(group_of, HOSTILE[name], GuessCounter(), known)
    engine = summarize.load(SummarizerConfig(model="extractive"))
    prompts = {prompt.id: prompt for prompt in job.start()}
    for prompt in prompts.values():
        engine.submit(prompt)
    summary = check(job, prompts, engine.step())
    assert {item for point in summary.points for item in point.items} <= known
    texts = [point.text for point in summary.points]
    assert any("1822" in text for text in texts)
    assert any("forty metres" in text for text in texts)


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess[Prompt, Reply]]:
    config = SummarizerConfig(model="embedded", max_model_len=CONTEXT, memory="1GiB")
    log = tmp_path_factory.mktemp("vllm") / "engine.log"
    engine: EngineProcess[Prompt, Reply] = EngineProcess("summarizer", config, log=log)
    with engine:
        yield engine


def test_a_hostile_suffix_moves_a_passage_within_the_stated_bound(embedded_scorer: Scorer) -> None:
    """docs/summaries.md: at most a rank of twenty on average, and one in ten from below comes into the first
    five."""
    names = [name for name in sorted(shutil.__all__) if inspect.getdoc(getattr(shutil, name))][:20]
    texts = [f"{name}: {inspect.getdoc(getattr(shutil, name))}"[:400] for name in names]
    rises, below, entered = [], 0, 0
    for query in ("how to copy a whole folder", "free space of a disk", "make a zip archive"):
        before = logits(embedded_scorer, query, texts)
        for suffix in SUFFIXES:
            after = logits(embedded_scorer, query, [f"{text}\n{suffix}" for text in texts])
            for at, logit in enumerate(after):
                rank = sum(other > before[at] for other in before)
                moved = sum(other > logit for other in before[:at] + before[at + 1 :])
                rises.append(rank - moved)
                below += rank >= 5
                entered += rank >= 5 > moved
    assert sum(rises) / len(rises) <= 1
    assert entered / below <= 0.1


def logits(scorer: Scorer, query: str, texts: list[str]) -> list[float]:
    for text in texts:
        scorer.submit(Pair(content_hash(query), content_hash(text), query, text))
    found: dict[UUID, float] = {}
    while scorer.pending:
        for score in scorer.step():
            assert score.logit is not None, score.error
            found[score.text_hash] = score.logit
    return [found[content_hash(text)] for text in texts]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_output_of_the_model_leaves_the_schema(
    group_of: Any, counter: TokenCounter, vllm: EngineProcess[Prompt, Reply]
) -> None:
    known: dict[str, set[UUID]] = {name: set() for name in HOSTILE}
    jobs = {name: job_of(group_of, text, counter, known[name]) for name, text in HOSTILE.items()}
    asked: dict[str, tuple[str, Prompt]] = {}

    def ask(name: str, prompts: list[Prompt]) -> None:
        asked.update({prompt.id: (name, prompt) for prompt in prompts})
        vllm.submit(prompts)

    for name, job in jobs.items():
        ask(name, job.start())
    while vllm.outstanding:
        for reply in vllm.poll():
            name, prompt = asked[reply.id]
            if reply.error is None and reply.finish_reason == "stop":
                assert prompt.schema is not None
                assert problem(json.loads(reply.text), prompt.schema) is None, name
            ask(name, jobs[name].feed(reply))
    failed = []
    for name, job in jobs.items():
        (summary,) = job.summaries or []
        assert all(set(point.items) <= known[name] for point in summary.points), name
        if summary.status is not SummaryStatus.DONE:
            failed.append((name, summary.reason))
    assert not failed
