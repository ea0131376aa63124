"""The same logits from every backend, at every width in use."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from afterpass import rerank
from afterpass.core.config import ScorerConfig
from afterpass.core.errors import EngineMissing
from afterpass.core.keys import content_hash
from afterpass.core.paths import cache_folder
from afterpass.core.types import Pair
from afterpass.rerank import choice, modules, trials
from afterpass.rerank.kinds import Kind, Spec

SPEC = Spec(Kind.EMBEDDED, "embedded")
CONFIG = ScorerConfig(model="embedded", threads=1, max_length=96, query_length=16, chunk_overlap=16)


@pytest.fixture(scope="module")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, conversions: Path) -> pytest.MonkeyPatch:
    """Choices and conversions of these tests' own, weights from the shared cache."""
    monkeypatch.setattr(choice, "cache_folder", lambda: conversions)
    return monkeypatch


@pytest.mark.parametrize("backend", ["openvino", pytest.param("onnx", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("own_cache")
def test_every_width_agrees_with_torch(backend: str) -> None:
    module, tokenizer, encoding = modules.build(SPEC, cache_folder())
    rows, lengths = trials.probe(tokenizer, encoding, CONFIG.max_length)
    assert {-(-length // 16) for length in lengths} == set(range(1, 7))
    plain = trials.start(SPEC, CONFIG, module, encoding, tokenizer, ("torch", "float32"))
    other = trials.start(SPEC, CONFIG, module, encoding, tokenizer, (backend, "float32"))
    for budget in (96, 1024):
        expected = trials.score_rows(plain, encoding, rows, lengths, budget)
        found = trials.score_rows(other, encoding, rows, lengths, budget)
        assert np.abs(expected - found).max() < 1e-3
        difference, tau = trials.compare(expected, found)
        assert tau > 0.999
        assert difference < 1e-3
    other.close()


def test_torch_in_bfloat16_keeps_the_head_in_float32() -> None:
    module, tokenizer, encoding = modules.build(SPEC, cache_folder())
    rows, lengths = trials.probe(tokenizer, encoding, CONFIG.max_length)
    expected, found = (
        trials.score_rows(
            trials.start(SPEC, CONFIG, copy.deepcopy(module), encoding, tokenizer, ("torch", dtype)),
            encoding,
            rows,
            lengths,
            1024,
        )
        for dtype in ("float32", "bfloat16")
    )
    difference, tau = trials.compare(expected, found)
    assert 0 < difference <= trials.MAX_DIFFERENCE
    assert tau >= trials.MIN_TAU
    narrow = copy.deepcopy(module).to(torch.bfloat16)
    kept = dict(module.head.named_buffers()) | dict(module.head.named_parameters())
    for name, tensor in (dict(narrow.head.named_buffers()) | dict(narrow.head.named_parameters())).items():
        assert torch.equal(tensor, kept[name]), name


def test_auto_tries_once_and_keeps(own_cache: pytest.MonkeyPatch) -> None:
    assert rerank.model_key(CONFIG) is None
    chosen = rerank.prepare(CONFIG)
    assert chosen is not None
    assert {(t.backend, t.dtype) for t in chosen.trials} == set(choice.ways(SPEC, CONFIG))
    plain = next(t for t in chosen.trials if t.backend == "torch")
    assert plain.passed
    assert plain.difference == 0
    key = rerank.model_key(CONFIG)
    assert key is not None
    assert f"/{chosen.backend}/{chosen.dtype}/" in key
    own_cache.setattr(trials, "_try", lambda *_: pytest.fail("tried again"))
    scorer = rerank.load(CONFIG)
    assert scorer.key == key
    assert scorer.about()["chosen"]["backend"] == chosen.backend
    scorer.close()


def test_a_backend_that_disagrees_is_not_taken(own_cache: pytest.MonkeyPatch) -> None:
    from afterpass.rerank.backends.openvino import OpenVINOBackend

    honest: Callable[..., list[np.ndarray]] = OpenVINOBackend.run
    own_cache.setattr(OpenVINOBackend, "run", lambda self, batches: [-x for x in honest(self, batches)])
    chosen = rerank.prepare(CONFIG.model_copy(update={"max_length": 64}))
    assert chosen is not None
    assert chosen.backend == "torch"
    wrong = next(t for t in chosen.trials if t.backend == "openvino")
    assert not wrong.passed
    assert "differs" in wrong.why


def test_a_missing_package_is_named(own_cache: pytest.MonkeyPatch) -> None:
    own_cache.setattr("afterpass.core.machine.has", lambda _: False)
    with pytest.raises(EngineMissing, match="openvino"):
        rerank.load(CONFIG.model_copy(update={"backend": "openvino"}))


def test_batches_in_flight_come_back_to_their_pairs() -> None:
    """Several batches at once through OpenVINO's queue: every pair keeps its own logit."""
    texts = [f"passage {n} " * (n % 17 + 1) for n in range(60)]
    scores = []
    for backend in ("torch", "openvino"):
        scorer = rerank.load(
            CONFIG.model_copy(update={"backend": backend, "dtype": "float32", "batch_tokens": 128})
        )
        for text in texts:
            scorer.submit(Pair(content_hash("q"), content_hash(text), "which passage", text))
        done = {}
        while scorer.pending:
            done |= {score.text_hash: score.logit for score in scorer.step()}
        scores.append([done[content_hash(text)] for text in texts])
        scorer.close()
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)
