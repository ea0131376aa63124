"""Which ways of running a model are tried on which machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterpass.core import machine
from afterpass.core.config import ScorerConfig
from afterpass.rerank import choice, identity
from afterpass.rerank.kinds import Kind, Spec

SPEC = Spec(Kind.EMBEDDED, "embedded", revision="r1")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A processor without anything special, OpenVINO installed, an empty cache."""
    monkeypatch.setenv("AFTERPASS_CACHE", str(tmp_path))
    monkeypatch.setattr(machine, "processor", lambda: ("plain", ("avx2",)))
    monkeypatch.setattr(machine, "has", lambda package: package in ("torch", "openvino", "nncf"))
    monkeypatch.setattr(machine, "has_nvidia", lambda: False)
    return monkeypatch


def ways(spec: Spec = SPEC, **options: object) -> list[tuple[str, str]]:
    return choice.ways(spec, ScorerConfig(model=spec.name, **options))  # type: ignore[arg-type]


@pytest.mark.usefixtures("bare")
def test_a_plain_processor() -> None:
    assert ways() == [("torch", "float32"), ("openvino", "float32")]
    assert ways(backend="torch") == [("torch", "float32")]
    assert ways(backend="openvino", dtype="int8") == [("openvino", "int8")]


def test_a_processor_with_amx(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(machine, "processor", lambda: ("new", ("amx_bf16", "amx_int8")))
    assert set(ways()) == {
        ("torch", "float32"),
        ("torch", "bfloat16"),
        ("openvino", "float32"),
        ("openvino", "bfloat16"),
        ("openvino", "int8"),
    }
    assert ways(dtype="bfloat16") == [("torch", "bfloat16"), ("openvino", "bfloat16")]


def test_bfloat16_without_matrix_units(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(machine, "processor", lambda: ("zen", ("avx512_bf16", "avx512f", "avx2")))
    assert ("torch", "bfloat16") in ways()
    assert ("openvino", "bfloat16") in ways()


def test_without_openvino_onnx_is_tried(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(machine, "has", lambda package: package in ("torch", "onnxruntime", "onnxscript"))
    assert ways() == [("torch", "float32"), ("onnx", "float32")]


def test_a_gpu_takes_torch(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(machine, "has_nvidia", lambda: True)
    bare.setattr(machine, "torch_for_gpus", lambda: True)
    assert {backend for backend, _ in ways()} == {"torch"}
    assert ways(device="cpu") == [("torch", "float32"), ("openvino", "float32")]


@pytest.mark.usefixtures("bare")
def test_chat_models_are_not_exported() -> None:
    assert ways(Spec(Kind.CHAT, "qwen", revision="r")) == [("torch", "float32")]


def test_a_choice_is_remembered_for_this_machine_and_model(bare: pytest.MonkeyPatch) -> None:
    config = ScorerConfig(model="embedded")
    assert choice.known(SPEC, config) is None
    tried = (
        choice.Trial("torch", "float32", 2.0, 0.0, 1.0, True),
        choice.Trial("openvino", "float32", 1.0, 0.001, 1.0, True),
    )
    made = choice.Choice("openvino", "float32", machine.identity(), "embedded", tried)
    identity.write_json(choice.store(SPEC, config), choice.as_json(made))
    assert choice.kept(SPEC, config) == made
    assert choice.known(SPEC, config) == ("openvino", "float32")
    assert choice.known(Spec(Kind.EMBEDDED, "embedded", revision="r2"), config) is None
    bare.setattr(machine, "processor", lambda: ("another", ("avx2",)))
    assert choice.known(SPEC, config) is None


@pytest.mark.usefixtures("bare")
def test_a_choice_that_left_a_way_untried_is_made_again() -> None:
    config = ScorerConfig(model="embedded")
    tried = (choice.Trial("torch", "float32", 2.0, 0.0, 1.0, True),)
    made = choice.Choice("torch", "float32", machine.identity(), "embedded", tried)
    choice.folder()
    identity.write_json(choice.store(SPEC, config), choice.as_json(made))
    assert choice.known(SPEC, config) is None


@pytest.mark.usefixtures("bare")
def test_a_spoilt_choice_is_made_again() -> None:
    config = ScorerConfig(model="embedded")
    choice.folder()
    choice.store(SPEC, config).write_text("{")
    assert choice.known(SPEC, config) is None
