"""How an engine's memory is worked out from what is free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afterpass.core.config import SummarizerConfig
from afterpass.core.errors import ConfigError, OutOfMemory
from afterpass.summarize import startup
from afterpass.summarize.sizing import GIB, MIB, cache_bytes_per_token, free_memory, parse_size, size

SMOL = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "dtype": "bfloat16",
}
WEIGHTS = 270 * 10**6


def test_a_tokens_keys_and_values() -> None:
    assert cache_bytes_per_token(SMOL, 2) == 2 * 30 * 3 * 64 * 2
    assert cache_bytes_per_token({"text_config": SMOL}, 4) == 2 * 30 * 3 * 64 * 4


def test_enough_memory_gives_what_is_wanted() -> None:
    plan = size(SMOL, WEIGHTS, "float32", 8192, 64, 20 * GIB)
    assert plan.cache == plan.token * 2560 * 64
    assert plan.sequences == 64
    assert plan.weights == 2 * WEIGHTS
    assert "as wanted" in plan.why


def test_little_memory_gives_half_of_the_rest() -> None:
    plan = size(SMOL, WEIGHTS, "bfloat16", 8192, 64, 4 * GIB)
    assert plan.cache < plan.token * 2560 * 64
    assert plan.cache <= (4 * GIB - WEIGHTS) // 2
    assert 1 <= plan.sequences < 64
    assert "50% of the rest" in plan.why


def test_too_little_says_how_much_and_what_to_lower() -> None:
    with pytest.raises(OutOfMemory, match=r"2\.0 GiB is free") as caught:
        size(SMOL, WEIGHTS, "float32", 8192, 64, 2 * GIB)
    assert "max_model_len" in caught.value.hint


def test_the_configured_size_counts() -> None:
    plan = size(SMOL, WEIGHTS, "float32", 8192, 64, 20 * GIB, asked=GIB)
    assert plan.cache == GIB
    assert "as configured" in plan.why
    with pytest.raises(OutOfMemory):
        size(SMOL, WEIGHTS, "float32", 8192, 64, 20 * GIB, asked=100 * MIB)
    with pytest.raises(OutOfMemory):
        size(SMOL, WEIGHTS, "float32", 8192, 64, 20 * GIB, asked=30 * GIB)


def test_sizes_are_read_as_people_write_them() -> None:
    assert parse_size("2GiB") == 2 * GIB
    assert parse_size("512 MB") == 512 * 10**6
    assert parse_size("1.5gib") == GIB * 3 // 2
    assert parse_size("1000") == 1000
    with pytest.raises(ConfigError, match="no size"):
        parse_size("a lot")


def test_some_memory_is_free() -> None:
    assert free_memory() > 0


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model's folder, as far as starting it is worked out from it."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SMOL, "max_position_embeddings": 2048}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return folder


def test_compiled_or_eager_follows_the_size_of_the_job(small_model: Path) -> None:
    config = SummarizerConfig(model=str(small_model))
    few, many = (startup.choose(config, small_model, n, on_cpu=True) for n in (None, startup.COMPILE_FROM))
    assert (few.eager, many.eager) == (True, False)
    assert "compiling pays from" in few.why
    assert few.context == 2048
    fixed = startup.choose(config.model_copy(update={"enforce_eager": False}), small_model, 1, on_cpu=True)
    assert (fixed.eager, fixed.why) == (False, "as configured")


def test_what_is_foreseen_is_said_with_its_reasons(small_model: Path) -> None:
    config = SummarizerConfig(model=str(small_model), memory="1GiB")
    chosen = startup.choose(config, small_model, 12, on_cpu=True)
    assert "eager (12 prompts" in chosen.words
    assert "given 1.0 GiB, as configured" in chosen.words
    assert chosen.about()["memory"]["kv_cache_mib"] == 1024
    assert startup.choose(config, small_model, 12, on_cpu=False).memory is None
    assert startup.foresee(SummarizerConfig(model="extractive"), 5) is None
    with pytest.raises(OutOfMemory):
        startup.foresee(config.model_copy(update={"memory": "9000GiB"}), 5)
