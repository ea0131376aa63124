"""What a `[summarize.models.NAME]` section means, and what is refused before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from afterpass import summarize
from afterpass.core.config import SummarizerConfig
from afterpass.core.errors import ConfigError, EngineError, ModelNotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a model without weights."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[])).save(str(made / "tokenizer.json"))
    (made / "chat_template.jinja").write_text(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    )
    return made


def test_a_local_folder(folder: Path) -> None:
    config = SummarizerConfig(model=str(folder))
    summarize.check_config(config)
    assert summarize.context_length(config) == 2048
    assert summarize.context_length(config.model_copy(update={"max_model_len": 512})) == 512
    assert summarize.context_length(config.model_copy(update={"max_model_len": 9999})) == 2048
    counter = summarize.token_counter(config)
    assert counter("abab") == 4
    assert counter.spans("ab") == [(0, 1), (1, 2)]
    assert counter.chat([{"role": "user", "content": "ab"}]) >= 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (SummarizerConfig(model="/nowhere/at/all"), "no model at"),
        (SummarizerConfig(model="./nowhere"), "no model at"),
        (SummarizerConfig(model="x", backend="openai"), "no url"),
        (SummarizerConfig(model="embedded", url="http://127.0.0.1:1/v1"), "has a url"),
        (SummarizerConfig(model="embedded", engine={"trust_remote_code": True}), "trust_remote_code"),
    ],
)
def test_what_cannot_work_is_refused_early(config: SummarizerConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        summarize.check_config(config)
    assert caught.value.hint


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        summarize.check_config(SummarizerConfig(model=str(tmp_path)))


def test_the_key_names_what_could_change_an_answer(folder: Path) -> None:
    config = SummarizerConfig(model=str(folder))
    key = summarize.model_key(config)
    assert key == summarize.model_key(config)
    changed = [
        {"dtype": "float16"},
        {"max_model_len": 1024},
        {"engine": {"quantization": "fp8"}},
        {"revision": "v2"},
        {"model": "embedded"},
    ]
    others = [summarize.model_key(config.model_copy(update=change)) for change in changed]
    assert len({key, *others}) == 6
    # How the work is done changes no answer that the key should tell apart.
    assert summarize.model_key(config.model_copy(update={"max_in_flight": 3})) == key


def test_other_weights_in_the_same_folder_are_another_model(folder: Path) -> None:
    config = SummarizerConfig(model=str(folder))
    before = summarize.model_key(config)
    (folder / "model.safetensors").write_bytes(b"other")
    assert summarize.model_key(config) != before


def test_nothing_answers() -> None:
    config = SummarizerConfig(model="x", backend="openai", url="http://127.0.0.1:9/v1")
    with pytest.raises(EngineError, match="nothing answers"):
        summarize.load(config)


def test_counting_and_keys_load_nothing_heavy() -> None:
    code = (
        "import sys; from afterpass import summarize;"
        "from afterpass.core.config import SummarizerConfig as C;"
        "summarize.model_key(C(model='embedded'));"
        "summarize.token_counter(C(model='extractive'))('a b');"
        "print([m for m in ('torch', 'vllm', 'transformers', 'duckdb', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
