"""The training's tables, its factored scores and the file that it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from afterpass.core.paths import cache_folder
from afterpass.rerank import embedded
from afterpass.rerank.embedded.head import FEATURES, Head
from afterpass.rerank.embedded.model import TwoSidedModel, load
from afterpass.rerank.embedded.packing import QUERY, TEXT, pack
from afterpass.rerank.training import tables
from afterpass.rerank.training.adapter import LIMIT, write_adapter
from afterpass.rerank.training.encode import JOIN, Encoder, scores, token_ids, tokenizer

QUERY_WORDS = "running tests in parallel with 16 workers"
TEXT_WORDS = [
    "Run tests in parallel with 16 workers: pytest -n 16.",
    "The workers' union was founded in 1916 and tested its strength early.",
    "Nothing of the kind.",
]


@pytest.fixture(scope="module")
def base() -> Path:
    return embedded.prepare(cache_folder())


@pytest.fixture(scope="module")
def head(base: Path) -> Head:
    torch.manual_seed(0)
    tokens = tokenizer(base)
    stem = tables.stems(tokens)
    made = Head(hidden=8, pair_rank=4)
    made.stem.copy_(torch.from_numpy(stem))
    made.idf.copy_(torch.from_numpy(tables.idf({"one": token_ids(tokens, TEXT_WORDS, 200)}, stem)))
    made.digits.copy_(torch.from_numpy(tables.digits(tokens)))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return made


def opened(base: Path, head: Head) -> TwoSidedModel:
    model = load(base, None)
    model.head = head
    with torch.no_grad():
        model.cross_bias[JOIN:] = -2.0
    return model.eval().requires_grad_(False)


def whole(model: TwoSidedModel, queries: list[list[int]], texts: list[list[int]]) -> torch.Tensor:
    input_ids, side_ids = pack(queries, texts)
    with torch.inference_mode():
        return model(torch.from_numpy(input_ids), torch.from_numpy(side_ids))


def test_factored_scores_are_those_of_whole_passes(base: Path, head: Head) -> None:
    model = opened(base, head)
    tokens = tokenizer(base)
    queries = token_ids(tokens, [QUERY_WORDS, "what is nothing"], 60)
    texts = token_ids(tokens, TEXT_WORDS, 190)
    encoder = Encoder(model, (JOIN,))
    pairs = [(q, t) for q in range(2) for t in range(3)]
    factored, _, features = scores(
        model, encoder(queries, QUERY)[0], encoder(texts, TEXT)[0], pairs, join=JOIN
    )
    expected = whole(model, [queries[q] for q, _ in pairs], [texts[t] for _, t in pairs])
    assert features is not None
    assert features.shape == (6, len(FEATURES))
    assert torch.allclose(factored, expected, atol=2e-2)  # states are kept in half precision


def test_lexical_features_say_what_they_claim(base: Path, head: Head) -> None:
    tokens = tokenizer(base)
    model = load(base, None)
    input_ids, side_ids = (
        torch.from_numpy(a)
        for a in pack(token_ids(tokens, [QUERY_WORDS] * 3, 60), token_ids(tokens, TEXT_WORDS, 190))
    )
    with torch.inference_mode():
        hidden = model.encode(input_ids, side_ids)
        unit = torch.nn.functional.normalize(torch.ones(3, 384), dim=1)
        found = head.features(input_ids, side_ids, hidden, unit, unit)
    by_name = {name: found[:, column].tolist() for column, name in enumerate(FEATURES)}
    assert by_name["covered"][0] == pytest.approx(1.0, abs=1e-3)  # "running" meets "Run" by its stem
    assert by_name["covered"][0] > by_name["covered"][1] > by_name["covered"][2]
    assert by_name["numbers"] == [1.0, 0.0, 0.0]  # 1916 is not 16
    assert by_name["triples"][0] > 0.9 > by_name["triples"][1]
    assert by_name["missing"][0] == pytest.approx(0.0, abs=1e-3)
    assert by_name["soft"][0] > by_name["soft"][2]


def test_stems_join_forms_of_a_word_and_leave_pieces_alone(base: Path) -> None:
    tokens = tokenizer(base)
    stem = tables.stems(tokens)
    vocabulary = tokens.get_vocab()
    assert stem[vocabulary["tests"]] == stem[vocabulary["testing"]] == stem[vocabulary["test"]]
    assert stem[vocabulary["##ing"]] == vocabulary["##ing"]


def test_a_rare_word_weighs_more_than_a_frequent_one(base: Path) -> None:
    tokens = tokenizer(base)
    texts = token_ids(tokens, ["the cat", "the dog", "the cow", "the zebra"], 10)
    idf = tables.idf({"one": texts}, tables.stems(tokens))
    vocabulary = tokens.get_vocab()
    assert idf[vocabulary["the"]] < idf[vocabulary["cat"]]
    assert idf[[0, 101, 102]].tolist() == [0.0, 0.0, 0.0]


def test_an_adapter_written_is_the_adapter_read(base: Path, head: Head, tmp_path: Path) -> None:
    lora = {"layers.5.qkv.lora_a": torch.randn(4, 384) / 20, "layers.5.qkv.lora_b": torch.randn(1152, 4) / 20}
    bias = torch.full((6, 12), -1e4)
    bias[5] = -3.0
    path = tmp_path / "adapter.safetensors"
    write_adapter(path, head, cross_bias=bias, lora=lora)
    assert path.stat().st_size < LIMIT
    model = load(base, path)
    untouched = load(base, None)
    change = model.layers[5].qkv.weight - untouched.layers[5].qkv.weight
    expected = lora["layers.5.qkv.lora_b"] @ lora["layers.5.qkv.lora_a"]
    assert torch.allclose(change, expected, atol=1e-3)
    assert model.cross_bias[5].tolist() == [-3.0] * 12
    assert model.head is not None
    assert np.array_equal(model.head.stem.numpy(), head.stem.numpy())


def test_an_adapter_over_the_limit_is_refused(head: Head, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than"):
        write_adapter(tmp_path / "big", head, lora={"layers.0.qkv.lora_a": torch.zeros(6000, 384)})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_quality_benchmark_runs_without_data() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "rerank_quality.py"
    done = subprocess.run(
        [sys.executable, str(script), "--json", "--limit", "4"], capture_output=True, text=True, check=True
    )
    import json

    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["mean"]) == {"ours", "fusion", "bi", "bm25"}
    assert list(found["sets"]) == ["docstrings"]
