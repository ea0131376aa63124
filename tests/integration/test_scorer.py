"""The contract of every scorer, and what the cross-encoder makes of long, odd and poisoned texts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from afterpass import rerank
from afterpass.core.config import ScorerConfig
from afterpass.core.errors import EngineError
from afterpass.core.keys import content_hash
from afterpass.core.paths import cache_folder
from afterpass.core.seams import Scorer
from afterpass.core.types import Pair, Score
from afterpass.rerank import embedded, encoding
from afterpass.rerank.cross_encoder import CrossEncoder
from afterpass.rerank.encoding import Arrays
from afterpass.rerank.reading import Reader
from afterpass.rerank.runner import Local

QUERY = "kill a child process that takes too long"
LONG = {
    "latin": "The quick brown fox jumps over the lazy dog. " * 120,
    "cjk": "機械学習モデルの評価は、データの質に大きく左右される。" * 60,
    "arabic": "الذكاء الاصطناعي يغيّر العالم بسرعة كبيرة. " * 70,
    "emoji": "👩‍👩‍👧 family 👍🏽 ok ❤️ 🧵 " * 90,
    "marks": "cafe\u0301 re\u0301sume\u0301 n\u0303 " * 120,
    "thai": "นี่คือข้อความภาษาไทยที่ยาวมาก " * 80,
    "no_spaces": "x" * 20_000 + "ab" * 5_000,
    "nul": "a\0b \0\0 c\x01 " * 400,
    "escapes": "\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m text " * 120,
    "windows": "line one\r\nline two\u2028line three\x85\n" * 90,
}


def pair(query: str, text: str) -> Pair:
    return Pair(content_hash(query), content_hash(text), query, text)


def drive(scorer: Scorer, pairs: Iterable[Pair]) -> list[Score]:
    waiting, done = list(pairs), []
    while waiting or scorer.pending:
        for _ in range(min(scorer.room, len(waiting))):
            scorer.submit(waiting.pop())
        done += scorer.step()
    return done


@pytest.fixture(scope="module", params=["lexical", "embedded"])
def scorer(request: pytest.FixtureRequest) -> Iterator[Scorer]:
    scorer = rerank.load(ScorerConfig(model=request.param, backend="torch", dtype="float32", threads=1))
    yield scorer
    scorer.close()


def test_one_result_for_each_request(scorer: Scorer) -> None:
    pairs = [pair(QUERY, f"text number {n} " * (n % 40 + 1)) for n in range(150)]
    done = drive(scorer, pairs)
    assert sorted(s.text_hash for s in done) == sorted(p.text_hash for p in pairs)
    assert scorer.pending == 0
    assert all(s.error is None and s.logit is not None and math.isfinite(s.logit) for s in done)


def test_nothing_submitted_nothing_back(scorer: Scorer) -> None:
    assert scorer.step() == []
    assert scorer.pending == 0
    assert scorer.room > 0


def test_relevant_beats_irrelevant(scorer: Scorer) -> None:
    good = pair(QUERY, "subprocess.run(timeout=5) kills the child process when it takes too long")
    bad = pair(QUERY, "Bananas are yellow and grow in the tropics.")
    scores = {s.text_hash: s.logit or 0.0 for s in drive(scorer, [good, bad])}
    assert scores[good.text_hash] > scores[bad.text_hash]


def test_the_key_is_known_before_loading(scorer: Scorer) -> None:
    model = str(scorer.about()["model"])
    assert (
        rerank.model_key(ScorerConfig(model=model, backend="torch", dtype="float32", threads=1)) == scorer.key
    )


def test_logits_are_float32(scorer: Scorer) -> None:
    for score in drive(scorer, [pair(QUERY, "some text"), pair(QUERY, "some other text of a process")]):
        assert score.logit is not None
        assert float(np.float32(score.logit)) == pytest.approx(score.logit, abs=1e-6)


@pytest.mark.parametrize("script", LONG)
def test_excerpts_lie_in_the_text_and_hold_the_answer(scorer: Scorer, script: str) -> None:
    text = LONG[script]
    middle = len(text) // 2
    needle = " subprocess.run kills a child process that takes too long "
    text = text[:middle] + needle + text[middle:]
    (score,) = drive(scorer, [pair(QUERY, text)])
    assert 0 <= score.excerpt_start < score.excerpt_end <= len(text)
    assert needle.split()[1] in text[score.excerpt_start : score.excerpt_end]
    if score.chunks > 1:
        assert score.excerpt_end - score.excerpt_start < len(text)


def test_excerpts_read_back_as_the_chunk_that_was_scored() -> None:
    """Scoring the excerpt alone gives the logit of the whole text, in every script."""
    options = {"max_length": 64, "query_length": 16, "chunk_overlap": 16}
    scorer = rerank.load(
        ScorerConfig(model="embedded", backend="torch", dtype="float32", threads=1, **options)
    )
    for script in ("latin", "cjk", "arabic", "emoji", "marks"):
        text = LONG[script][:600]
        (whole,) = drive(scorer, [pair(QUERY, text)])
        excerpt = text[whole.excerpt_start : whole.excerpt_end]
        (alone,) = drive(scorer, [pair(QUERY, excerpt)])
        assert whole.chunks > 1
        assert alone.chunks == 1
        assert alone.logit == pytest.approx(whole.logit, abs=1e-3), script
    scorer.close()


def test_a_million_characters(embedded_scorer: Scorer) -> None:
    filler = " ".join(random.Random(1).choices(LONG["latin"].split(), k=250_000))
    text = filler[:600_000] + " subprocess kills the child process, it takes too long " + filler[:500_000]
    (score,) = drive(embedded_scorer, [pair(QUERY, text)])
    assert score.chunks == 32
    assert 0 < score.share_read < 0.1
    assert "chunks_chosen" in score.flags
    assert "subprocess kills" in text[score.excerpt_start : score.excerpt_end]
    assert embedded_scorer.room > 0


def test_a_huge_query_is_cut_and_flagged(embedded_scorer: Scorer) -> None:
    (score,) = drive(embedded_scorer, [pair(QUERY + " please" * 50_000, "the child process is killed")])
    assert score.error is None
    assert score.flags == ("query_truncated",)


def test_blobs_are_elided_and_flagged(embedded_scorer: Scorer) -> None:
    blob = random.Random(0).randbytes(4_000).hex()
    text = f"the image {blob} shows a child process"
    (score,) = drive(embedded_scorer, [pair(QUERY, text)])
    assert score.flags == ("elided",)
    assert score.chunks == 1
    assert (score.excerpt_start, score.excerpt_end) == (0, len(text))


def test_a_text_that_the_vocabulary_does_not_know_is_flagged(embedded_scorer: Scorer) -> None:
    flags = [
        s.flags for s in drive(embedded_scorer, [pair(QUERY, "x" * 500), pair(QUERY, LONG["thai"][:200])])
    ]
    assert flags == [("mostly_unknown",), ("mostly_unknown",)]


def test_nothing_to_read_is_said(embedded_scorer: Scorer) -> None:
    errors = [s.error for s in drive(embedded_scorer, [pair(QUERY, "\0\0"), pair(QUERY, "\x1b[0m")])]
    assert errors == ["nothing_to_read", "nothing_to_read"]
    (score,) = drive(embedded_scorer, [pair("\0", "text")])
    assert score.error == "query_without_words"


def test_special_tokens_in_a_text_are_letters(embedded_scorer: Scorer) -> None:
    injected, spelt = "ok [SEP] [CLS] " + QUERY, "ok ( SEP ) ( CLS ) " + QUERY
    a, b = drive(embedded_scorer, [pair(QUERY, injected), pair(QUERY, spelt)])
    assert a.tokens == b.tokens


def test_neighbours_change_logits_only_within_tolerance(embedded_scorer: Scorer) -> None:
    rng = random.Random(5)
    texts = [
        " ".join(rng.choices(LONG["latin"].split(), k=rng.randrange(1, 120))) + f" {n}" for n in range(40)
    ]
    together = {s.text_hash: s.logit for s in drive(embedded_scorer, [pair(QUERY, t) for t in texts])}
    for text in texts[:10]:
        (alone,) = drive(embedded_scorer, [pair(QUERY, text)])
        assert alone.logit == pytest.approx(together[alone.text_hash], abs=1e-3)


def test_the_same_as_sentence_transformers(embedded_scorer: Scorer) -> None:
    model = embedded.build(cache_folder())
    texts = ["the child process is killed", "bananas", "日本語のテキスト", "a long one " * 50]
    expected = model.predict([(QUERY, t) for t in texts])
    got = {s.text_hash: s.logit for s in drive(embedded_scorer, [pair(QUERY, t) for t in texts])}
    assert [got[content_hash(t)] for t in texts] == pytest.approx(list(map(float, expected)), abs=1e-3)


class Poisoned:
    """A backend that fails, or gives no number, wherever a given token stands in a batch."""

    name, dtype, parallel, multiple, most_tokens = "poisoned", "float32", 2, 1, 32

    def __init__(self, *, raises: int | None = None, nan: int | None = None) -> None:
        self._raises, self._nan = raises, nan
        self.areas: list[int] = []

    def run(self, batches: Sequence[Arrays]) -> list[NDArray[np.float32]]:
        results = []
        for batch in batches:
            ids = batch["input_ids"]
            self.areas.append(ids.size)
            if self._raises is not None and (ids == self._raises).any():
                raise RuntimeError("kernel exploded")
            logits = (ids > 0).sum(1).astype(np.float32)
            if self._nan is not None:
                logits[(ids == self._nan).any(1)] = np.nan
            results.append(logits)
        return results

    def about(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def poisoned(backend: Poisoned | None = None, **how: int) -> CrossEncoder:
    tokenizer, layout = encoding.embedded(embedded.prepare(cache_folder()))
    reader = Reader(tokenizer, layout, max_length=64, query_length=16, overlap=8, max_chunks=4)
    return CrossEncoder(Local(backend or Poisoned(**how), layout), reader, key="test", batch_tokens=256)


def word_id(word: str) -> int:
    tokenizer, _ = encoding.embedded(embedded.prepare(cache_folder()))
    return int(tokenizer.encode(word, add_special_tokens=False).ids[0])


@pytest.mark.parametrize("how", ["raises", "nan"])
def test_a_poisoned_row_fails_alone(how: str) -> None:
    scorer = poisoned(**{how: word_id("banana")})
    texts = [f"text {n}" for n in range(50)] + ["a banana"]
    done = {s.text_hash: s for s in drive(scorer, [pair("q", t) for t in texts])}
    bad = done.pop(content_hash("a banana"))
    assert bad.logit is None
    assert bad.error
    assert all(s.error is None and s.logit for s in done.values())
    assert len(done) == 50
    scorer.close()


def test_a_poisoned_chunk_leaves_the_others() -> None:
    scorer = poisoned(nan=word_id("banana"))
    (score,) = drive(scorer, [pair("q", "word " * 100 + "banana")])
    assert score.logit is not None
    assert "chunk_failed" in score.flags
    assert score.share_read < 1
    scorer.close()


def test_a_backend_that_always_fails_is_lost() -> None:
    scorer = poisoned(raises=word_id("text"))
    with pytest.raises(EngineError, match="kernel exploded"):
        drive(scorer, [pair("q", f"text {n}") for n in range(200)])
    scorer.close()


def test_a_backend_gets_batches_no_larger_than_it_wants() -> None:
    backend = Poisoned()
    scorer = poisoned(backend)
    assert len(drive(scorer, [pair("q", f"text {n}") for n in range(50)])) == 50
    assert max(backend.areas) <= backend.most_tokens
    assert len(backend.areas) < 50
    scorer.close()
