"""The shipped reranker: its starting point, its inputs, its weights and what they may be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from afterpass.core.paths import cache_folder
from afterpass.rerank import embedded
from afterpass.rerank.embedded.model import CLOSED, SCALE, SHIFT, TwoSidedModel, load, pool
from afterpass.rerank.embedded.packing import QUERY, TEXT, pack

QUERIES = [[2129, 2000, 3102, 1037, 2775, 2832], [2054, 2003, 1017, 1009, 1018], [11372], []]
TEXTS = [[1996, 3117, 2003, 3140, 2043, 2051, 3216, 2041] * 9, [1021], [7592, 2088] * 20, [3793]]


@pytest.fixture(scope="module")
def base() -> Path:
    return embedded.prepare(cache_folder())


@pytest.fixture(scope="module")
def start(base: Path) -> TwoSidedModel:
    return load(base, None)


def scored(model: TwoSidedModel, queries: list[list[int]], texts: list[list[int]]) -> torch.Tensor:
    input_ids, side_ids = pack(queries, texts)
    with torch.inference_mode():
        return model(torch.from_numpy(input_ids), torch.from_numpy(side_ids))


def test_the_start_is_the_bi_encoder(base: Path, start: TwoSidedModel) -> None:
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    bert = transformers.BertModel(config, add_pooling_layer=False)
    from safetensors.torch import load_file

    missing = bert.load_state_dict(load_file(base / "model.safetensors"), strict=False).missing_keys
    assert not missing
    bert.eval()

    def vector(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            states = bert(input_ids=torch.tensor([[101, *ids, 102]])).last_hidden_state
        return torch.nn.functional.normalize(states.mean(1), dim=1)[0]

    expected = [SCALE * float(vector(q) @ vector(t)) + SHIFT for q, t in zip(QUERIES, TEXTS, strict=True)]
    assert scored(start, QUERIES, TEXTS).numpy() == pytest.approx(expected, abs=5e-6)


def test_no_attention_crosses_while_the_bias_is_closed(start: TwoSidedModel) -> None:
    def query_vector(text: list[int]) -> torch.Tensor:
        input_ids, side_ids = (torch.from_numpy(a) for a in pack([QUERIES[0]], [text]))
        with torch.inference_mode():
            return pool(start.encode(input_ids, side_ids), side_ids == QUERY)[0]

    assert torch.allclose(query_vector(TEXTS[0]), query_vector(TEXTS[1]), atol=1e-6)


def test_attention_crosses_once_the_bias_is_opened(base: Path) -> None:
    model = load(base, None)
    closed = scored(model, QUERIES[:1], TEXTS[:1])
    with torch.no_grad():
        model.cross_bias.fill_(-2.0)
    assert (scored(model, QUERIES[:1], TEXTS[:1]) - closed).abs().item() > 1e-3


def test_one_opened_head_changes_the_score(base: Path) -> None:
    model = load(base, None)
    closed = scored(model, QUERIES[:1], TEXTS[:1])
    with torch.no_grad():
        model.cross_bias[5, 3] = 0.0
    assert model.cross_bias.min() == CLOSED
    assert (scored(model, QUERIES[:1], TEXTS[:1]) - closed).abs().item() > 1e-5


def test_positions_restart_on_the_text_side(start: TwoSidedModel) -> None:
    input_ids, side_ids = (torch.from_numpy(a) for a in pack([QUERIES[0]], [TEXTS[0]]))
    with torch.inference_mode():
        states = start.embed(input_ids, side_ids)[0, (side_ids == TEXT)[0]]
        alone_ids, alone_sides = (torch.from_numpy(a) for a in pack([[]], [TEXTS[0]]))
        alone = start.embed(alone_ids, alone_sides)[0, (alone_sides == TEXT)[0]]
    assert torch.equal(states, alone)


@pytest.fixture(scope="module")
def shipped() -> TwoSidedModel:
    return embedded.load_model(cache_folder())


def test_padding_and_neighbours_change_nothing(shipped: TwoSidedModel) -> None:
    together = scored(shipped, QUERIES, TEXTS)
    alone = torch.cat([scored(shipped, [q], [t]) for q, t in zip(QUERIES, TEXTS, strict=True)])
    input_ids, side_ids = pack(QUERIES, TEXTS, width=160)
    with torch.inference_mode():
        padded = shipped(torch.from_numpy(input_ids), torch.from_numpy(side_ids))
    assert torch.allclose(together, alone, atol=2e-5)
    assert torch.allclose(together, padded, atol=2e-5)


def test_every_logit_is_finite_even_of_empty_sides(shipped: TwoSidedModel) -> None:
    logits = scored(shipped, [[], QUERIES[0], []], [[], [], TEXTS[0]])
    assert torch.isfinite(logits).all()


def test_an_answer_scores_above_something_else() -> None:
    model = embedded.build(cache_folder())
    query = "kill a child process that takes too long"
    good, bad = model.predict(
        [
            (
                query,
                "subprocess.run: if the timeout expires, the child process will be killed and waited for.",
            ),
            (query, "A child's birthday party took too long to prepare."),
        ]
    )
    assert good > bad


def test_saved_and_read_again_it_scores_the_same(tmp_path: Path) -> None:
    from afterpass.rerank.embedded.modules import load as load_saved

    model = embedded.build(cache_folder())
    pairs = [("what is seven", "7 is a number"), ("naïve café", "été 12, 日本語 ✨")]
    expected = model.predict(pairs)
    model.save_pretrained(str(tmp_path / "saved"))
    assert load_saved(tmp_path / "saved").predict(pairs) == pytest.approx(expected, abs=1e-6)
    assert not [p for p in (tmp_path / "saved").rglob("*") if p.suffix in (".bin", ".pkl", ".pt")]


def test_a_long_pair_is_cut_to_the_maximum_and_the_query_to_its_own() -> None:
    model = embedded.build(cache_folder(), query_length=16, max_length=64)
    found = model.preprocess([("word " * 100, "text " * 1000)])
    assert found["input_ids"].shape == (1, 64)
    assert int((found["side_ids"] == QUERY).sum()) == 16


def test_a_pair_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="does not fit a width of 8"):
        pack([[1, 2, 3]], [[4, 5, 6]], width=8)


def test_what_ships_is_small_and_no_pickle() -> None:
    folder = Path(embedded.__file__).parent
    weights = [p for p in folder.iterdir() if p.suffix not in (".py", ".md") and p.is_file()]
    assert {p.suffix for p in weights} <= {".safetensors"}
    assert sum(p.stat().st_size for p in weights) <= 4 * 2**20


def test_the_revision_names_the_adapter_and_needs_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from afterpass.rerank import embedded as e; e.revision(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    before = embedded.revision()
    other = tmp_path / "adapter.safetensors"
    other.write_bytes(b"another adapter")
    monkeypatch.setattr("afterpass.rerank.embedded.weights.ADAPTER", other)
    assert embedded.revision() != before


def test_prepare_mends_a_folder_with_a_part_missing(tmp_path: Path) -> None:
    folder = embedded.prepare(tmp_path)
    (folder / "tokenizer.json").unlink()
    assert embedded.prepare(tmp_path) == folder
    assert (folder / "tokenizer.json").is_file()


def test_packing_lays_out_two_sides() -> None:
    input_ids, side_ids = pack([[7], [8, 9]], [[10, 11], []])
    assert input_ids.tolist() == [[101, 7, 102, 101, 10, 11, 102], [101, 8, 9, 102, 101, 102, 0]]
    assert side_ids.tolist() == [[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 2, 2, 0]]
    assert input_ids.dtype == np.int64
