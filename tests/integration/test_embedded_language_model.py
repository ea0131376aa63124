"""The embedded language model: unpacked once, whole or not at all, and the same model that it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from afterpass import summarize
from afterpass.core.config import SummarizerConfig
from afterpass.core.errors import ModelNotFound
from afterpass.summarize import embedded
from afterpass.summarize.tokens import from_folder

PREPARE = "from afterpass.summarize import embedded; print(embedded.prepare())"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_prepare_it_once(tmp_path: Path) -> None:
    environment = {**os.environ, "AFTERPASS_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", PREPARE], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    said = [process.communicate()[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] == str(embedded.location(tmp_path))
    left = [path.name for path in (tmp_path / "models").iterdir() if not path.name.endswith(".lock")]
    assert left == [embedded.location(tmp_path).name], "nothing half-made is left"
    assert (embedded.location(tmp_path) / "model.safetensors").stat().st_size > 200 * 10**6


def test_what_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: Path, target: Path) -> None:
        assert source.is_file()
        target.mkdir()
        (target / "config.json").write_text("{}")
        raise OSError("the disk is full")

    monkeypatch.setattr(embedded, "convert", broken)
    with pytest.raises(ModelNotFound, match="disk is full"):
        embedded.prepare(tmp_path)
    assert not embedded.prepared(tmp_path)
    assert not embedded.location(tmp_path).exists()


def test_its_tokenizer_and_template() -> None:
    counter = from_folder(embedded.prepare())
    assert counter("Hello world") == 2
    assert counter("2024") == 4, "digits one by one"
    assert "<|im_start|>" in counter.specials
    text = "Grüße, 世界 and <|im_end|>"
    assert counter.controls(text)
    assert not counter.controls("Grüße, 世界 and < |im_end|>")
    one = [{"role": "user", "content": "Hello world"}]
    assert counter.chat(one) > counter("Hello world") + 8


def test_its_sections_say_what_it_is() -> None:
    config = SummarizerConfig(model="embedded")
    assert summarize.context_length(config) == embedded.CONTEXT == 8192
    assert embedded.revision() in summarize.model_key(config)
    settings = json.loads((embedded.prepare() / "config.json").read_text("utf-8"))
    assert settings["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.slow
def test_it_still_knows_what_it_knew() -> None:
    code = """if True:
        import sys, torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
        model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
        turns = [{"role": "user", "content": "What is the capital of France?"}]
        asked = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        said = model.generate(**asked, max_new_tokens=12, do_sample=False)[0]
        print(tokenizer.decode(said[asked["input_ids"].shape[1]:]))
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(embedded.prepare())], capture_output=True, text=True, check=True
    )
    assert "Paris" in done.stdout
