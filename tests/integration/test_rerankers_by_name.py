"""Every kind of reranker, tiny and random: loaded by its folder, scored as its own library scores it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from afterpass import rerank
from afterpass.core.config import ScorerConfig
from afterpass.core.errors import ConfigError, EngineError
from afterpass.core.keys import content_hash
from afterpass.core.paths import cache_folder
from afterpass.core.types import Pair, Score
from afterpass.rerank import embedded, modules

QUERY = "how to kill a child process"
TEXTS = ["subprocess.run with a timeout", "bananas are yellow", "日本語 🧵 café", "one " * 30]
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "initializer_range": 0.5,
}


def bpe(specials: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = "yes no Query Document Instruct Judge whether the a child process with timeout is yellow"
    tokenizer.train_from_iterator([*TEXTS, QUERY, "yes", "no", words] * 5, trainer)
    return tokenizer


def save_bert(path: Path, labels: list[str]) -> None:
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    source = embedded.prepare(cache_folder()) / "tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(source),
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    tokenizer.save_pretrained(path)
    config = BertConfig(vocab_size=30522, id2label=dict(enumerate(labels)), **SIZES)
    BertForSequenceClassification(config).save_pretrained(path)


def save_roberta(path: Path) -> None:
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

    tokenizer = bpe(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        sep_token="</s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(path)
    config = RobertaConfig(
        vocab_size=600, max_position_embeddings=514, pad_token_id=1, type_vocab_size=1, num_labels=1, **SIZES
    )
    RobertaForSequenceClassification(config).save_pretrained(path)


def save_qwen(path: Path) -> None:
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    PreTrainedTokenizerFast(
        tokenizer_object=bpe(specials),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=2048,
    ).save_pretrained(path)
    config = Qwen3Config(vocab_size=600, num_key_value_heads=2, head_dim=8, pad_token_id=0, **SIZES)
    Qwen3ForCausalLM(config).save_pretrained(path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import torch

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("models")
    found = {name: root / name for name in ("bert", "pair", "nli", "roberta", "Qwen3-Reranker-tiny")}
    save_bert(found["bert"], ["LABEL_0"])
    save_bert(found["pair"], ["LABEL_0", "LABEL_1"])
    save_bert(found["nli"], ["contradiction", "entailment", "neutral"])
    save_roberta(found["roberta"])
    save_qwen(found["Qwen3-Reranker-tiny"])
    return found


def score(config: ScorerConfig, texts: list[str] = TEXTS) -> list[Score]:
    scorer = rerank.load(config)
    try:
        assert rerank.model_key(config) == scorer.key
        for text in texts:
            scorer.submit(Pair(content_hash(QUERY), content_hash(text), QUERY, text))
        done: list[Score] = []
        while scorer.pending:
            done += scorer.step()
    finally:
        scorer.close()
    by_hash = {s.text_hash: s for s in done}
    return [by_hash[content_hash(text)] for text in texts]


def config(path: Path, **options: Any) -> ScorerConfig:
    return ScorerConfig(model=str(path), backend="torch", dtype="float32", threads=1, **options)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_one_label(folders: dict[str, Path], name: str) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folders[name]), activation_fn=torch.nn.Identity())
    expected = [float(x) for x in model.predict([(QUERY, text) for text in TEXTS])]
    assert [s.logit for s in score(config(folders[name]))] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("name", "yes", "no"), [("pair", [1], [0]), ("nli", [1], [0, 2])])
def test_log_odds_of_labels(folders: dict[str, Path], name: str, yes: list[int], no: list[int]) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folders[name]), activation_fn=torch.nn.Identity())
    logits = torch.tensor(model.predict([(QUERY, text) for text in TEXTS]))
    expected = torch.logsumexp(logits[:, yes], 1) - torch.logsumexp(logits[:, no], 1)
    assert [s.logit for s in score(config(folders[name]))] == pytest.approx(expected.tolist(), abs=1e-4)


def test_chat_style(folders: dict[str, Path]) -> None:
    """As Qwen3-Reranker's card does it: the whole prompt, the last token's logits of yes and no."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = str(folders["Qwen3-Reranker-tiny"])
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    yes, no = (tokenizer(word)["input_ids"][0] for word in ("yes", "no"))
    system = (
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".'
    )
    task = "Given a web search query, retrieve relevant passages that answer the query"
    expected = []
    for text in TEXTS:
        prompt = (
            f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n<Instruct>: {task}\n"
            f"<Query>: {QUERY}\n"
            f"<Document>: {text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        logits = model(**tokenizer(prompt, return_tensors="pt")).logits[0, -1].detach()
        expected.append(float(logits[yes] - logits[no]))
    found = score(config(folders["Qwen3-Reranker-tiny"], max_length=1024))
    assert [s.logit for s in found] == pytest.approx(expected, abs=1e-3)
    assert all((s.excerpt_start, s.excerpt_end) == (0, len(t)) for s, t in zip(found, TEXTS, strict=True))


def test_byte_level_chunks_read_back(folders: dict[str, Path]) -> None:
    text = "日本語のテキスト 🧵👩‍👩‍👧 café " * 40 + "subprocess timeout " + "été 🎉 " * 60
    for name in ("roberta", "Qwen3-Reranker-tiny"):
        longer = 512 if name == "roberta" else 1024
        options = {"max_length": longer, "chunk_overlap": 16}
        (whole,) = score(config(folders[name], **options), [text])
        assert whole.chunks > 1
        excerpt = text[whole.excerpt_start : whole.excerpt_end]
        assert 0 < len(excerpt) < len(text)
        assert not excerpt.startswith(("\u200d", "\u0301"))


def test_a_prompt_that_leaves_no_room_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="max_length"):
        rerank.load(config(folders["Qwen3-Reranker-tiny"], max_length=200))


def test_a_model_replaced_while_it_is_read_is_refused(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the old weights' scores and exports would be kept under the new ones' name."""
    folder = tmp_path / "bert"
    shutil.copytree(folders["bert"], folder)
    build = modules.build

    def slow(*given: Any) -> Any:
        built = build(*given)
        save_bert(folder, ["LABEL_0"])
        return built

    monkeypatch.setattr(modules, "build", slow)
    with pytest.raises(EngineError, match="changed while"):
        rerank.load(config(folder))
    monkeypatch.undo()
    rerank.load(config(folder)).close()
