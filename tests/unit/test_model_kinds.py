"""What a folder's files say a model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from afterpass import rerank
from afterpass.core.config import ScorerConfig
from afterpass.core.errors import ConfigError, ModelNotFound, NotAReranker
from afterpass.rerank.kinds import Kind, Spec, recognise

CLASSIFIER = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}


def folder(root: Path, config: dict[str, Any] | None = None, name: str = "model", **files: Any) -> str:
    path = root / name
    path.mkdir()
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    for file, content in files.items():
        target = path / file.replace("__", "/")
        target.parent.mkdir(exist_ok=True)
        target.with_suffix(".json").write_text(json.dumps(content))
    return str(path)


def spec(model: str, **options: Any) -> Spec:
    found = recognise(ScorerConfig(model=model, **options))
    assert found is not None
    return found


def test_one_label_is_its_own_logit(tmp_path: Path) -> None:
    found = spec(folder(tmp_path, CLASSIFIER))
    assert (found.kind, found.name, found.positive, found.negative) == (Kind.CLASSIFIER, "model", (0,), ())


@pytest.mark.parametrize(
    ("labels", "positive", "negative"),
    [
        (["LABEL_0", "LABEL_1"], (1,), (0,)),
        (["irrelevant", "relevant"], (1,), (0,)),
        (["Yes", "No"], (0,), (1,)),
        (["contradiction", "entailment", "neutral"], (1,), (0, 2)),
        (["ENTAILMENT", "NOT_ENTAILMENT"], (0,), (1,)),
    ],
)
def test_labels_for_and_against(
    tmp_path: Path, labels: list[str], positive: tuple[int, ...], negative: tuple[int, ...]
) -> None:
    config = CLASSIFIER | {"id2label": dict(enumerate(labels))}
    found = spec(folder(tmp_path, config))
    assert (found.positive, found.negative) == (positive, negative)


def test_labels_left_out_are_two(tmp_path: Path) -> None:
    config = {"architectures": ["BertForSequenceClassification"]}
    assert spec(folder(tmp_path, config)).negative == (0,)


@pytest.mark.parametrize("labels", [["NEGATIVE", "POSITIVE"], ["joy", "anger", "fear"]])
def test_classifiers_of_something_else_are_refused(tmp_path: Path, labels: list[str]) -> None:
    model = folder(tmp_path, CLASSIFIER | {"id2label": dict(enumerate(labels))})
    with pytest.raises(NotAReranker, match=labels[1].lower()) as caught:
        recognise(ScorerConfig(model=model))
    assert "embedded" in caught.value.hint


def test_bi_encoders_are_refused(tmp_path: Path) -> None:
    bert = {"architectures": ["BertModel"]}
    old = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    for number, files in enumerate(
        [{"modules": old}, {"config_sentence_transformers": {"model_type": "SentenceTransformer"}}]
    ):
        model = folder(tmp_path, bert, name=f"bi{number}", **files)
        with pytest.raises(NotAReranker, match="bi-encoder"):
            rerank.check(ScorerConfig(model=model))
    with pytest.raises(NotAReranker, match="BertModel"):
        rerank.check(ScorerConfig(model=folder(tmp_path, bert)))


def test_remote_code_is_refused(tmp_path: Path) -> None:
    config = CLASSIFIER | {"auto_map": {"AutoModelForSequenceClassification": "theirs.TheirModel"}}
    with pytest.raises(NotAReranker, match=r"theirs\.TheirModel"):
        rerank.check(ScorerConfig(model=folder(tmp_path, config)))
    modules = [{"idx": 0, "path": "", "type": "evil.Module"}]
    with pytest.raises(NotAReranker, match=r"evil\.Module"):
        rerank.check(ScorerConfig(model=folder(tmp_path, CLASSIFIER, name="b", modules=modules)))


def test_language_models_rerank_only_where_they_say_so(tmp_path: Path) -> None:
    qwen = {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960}
    with pytest.raises(NotAReranker, match="language model"):
        recognise(ScorerConfig(model=folder(tmp_path, qwen, name="Qwen3-0.6B")))
    assert spec(folder(tmp_path, qwen, name="Qwen3-Reranker-0.6B")).kind is Kind.CHAT
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"idx": 1, "path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.LogitScore"},
    ]
    ids = {"true_token_id": 9, "false_token_id": 2}
    model = folder(
        tmp_path,
        qwen,
        name="judge",
        modules=modules,
        config_sentence_transformers={"model_type": "CrossEncoder"},
        **{"1_LogitScore__config": ids},
    )
    found = spec(model)
    assert (found.kind, found.yes, found.no) == (Kind.CHAT, 9, 2)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    for model in (str(tmp_path / "absent"), "./absent", "~/surely/absent"):
        with pytest.raises(ModelNotFound, match="no model folder"):
            rerank.check(ScorerConfig(model=model))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        rerank.check(ScorerConfig(model=str(tmp_path / "empty")))


def test_more_tokens_than_the_model_takes(tmp_path: Path) -> None:
    bert = folder(tmp_path, CLASSIFIER | {"max_position_embeddings": 512})
    assert spec(bert, max_length=512).longest == 512
    with pytest.raises(ConfigError, match="512"):
        recognise(ScorerConfig(model=bert, max_length=513))
    roberta = {"model_type": "xlm-roberta", "pad_token_id": 1, "max_position_embeddings": 514}
    assert spec(folder(tmp_path, CLASSIFIER | roberta, name="r")).longest == 512


def test_a_hub_name_that_is_not_cached_is_unknown_until_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = ScorerConfig(model="cross-encoder/ms-marco-MiniLM-L6-v2")
    rerank.check(config)
    assert rerank.model_key(config) is None
    with pytest.raises(ModelNotFound, match="hub") as caught:
        rerank.load(config)
    assert "embedded" in caught.value.hint


def test_keys_tell_models_and_settings_apart(tmp_path: Path) -> None:
    one = ScorerConfig(model=folder(tmp_path, CLASSIFIER, name="a"), backend="torch", dtype="float32")
    other = folder(tmp_path, CLASSIFIER | {"hidden_size": 5}, name="b")
    keys = {
        rerank.model_key(one.model_copy(update=change))
        for change in (
            {},
            {"model": other},
            {"max_length": 128},
            {"query_length": 32},
            {"chunk_overlap": 32},
            {"max_chunks": 8},
            {"dtype": "bfloat16"},
            {"model": "embedded"},
            {"model": "lexical"},
        )
    }
    assert len(keys) == 9
    assert None not in keys
    assert rerank.model_key(one) == rerank.model_key(
        one.model_copy(update={"batch_tokens": 64, "threads": 1})
    )
    Path(one.model, "model.safetensors").write_bytes(b"new weights")
    assert rerank.model_key(one) not in keys
