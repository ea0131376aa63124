"""The wheel, as somebody gets it who only installs it: all that it needs is inside, and torch is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import afterpass

ROOT = Path(afterpass.__file__).parent
NOT_BASE = ("torch", "vllm", "transformers", "sentence_transformers", "pytest", "langchain_core")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what the repository holds: nothing that lies about can slip in."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    source = tmp_path_factory.mktemp("source")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """Every file in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what its metadata asks for, and nothing else; its bin folder.

    The dependencies are linked from this environment instead of downloaded: the same files, no network.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet"]
    done = subprocess.run([*command, wheel], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    site = next(folder.glob("lib/python*/site-packages"))
    own = Distribution.at(next(site.glob("afterpass-*.dist-info")))
    for needed in closure(own):
        link(needed, site)
    return folder / "bin"


def closure(start: Distribution) -> list[Distribution]:
    """The distributions that `start` needs without extras, and what those need."""
    found: dict[str, Distribution] = {}
    waiting = [(start, frozenset[str]())]
    while waiting:
        one, extras = waiting.pop()
        for text in one.requires or ():
            need = Requirement(text)
            if need.marker and not any(need.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                continue
            name = canonicalize_name(need.name)
            if name not in found:
                found[name] = distribution(name)
                assert need.specifier.contains(found[name].version, prereleases=True), text
                waiting.append((found[name], frozenset(need.extras)))
    return list(found.values())


def link(one: Distribution, site: Path) -> None:
    """Put a distribution's top-level folders and modules into a site-packages folder."""
    for top in {file.parts[0] for file in one.files or ()}:
        if top in ("..", "__pycache__", "bin") or (site / top).exists():
            continue
        (site / top).symlink_to(Path(str(one.locate_file(top))))


def test_the_wheel_holds_what_the_code_reads(names: set[str]) -> None:
    """Every data file that stands in a package's folder is inside."""
    ours = {name.split("/")[1] for name in names if name.startswith("afterpass/") and name.count("/") > 1}
    wanted = {
        f"afterpass/{file.relative_to(ROOT)}"
        for folder in ours
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith(".")
    }
    assert wanted - names == set()
    for suffix in (".sql", ".toml", ".jinja", "py.typed"):
        assert any(name.endswith(suffix) for name in names), suffix


def test_the_wheel_holds_nothing_else(names: set[str]) -> None:
    not_ours = ("tests/", "benchmarks/", "docs/", "requirements/", ".ci/", "conftest.py", "pyproject.toml")
    assert [name for name in names if any(part in name for part in not_ours)] == []
    assert {name.split("/")[0] for name in names} == {
        "afterpass",
        f"afterpass-{afterpass.__version__}.dist-info",
    }


def test_the_licence_comes_along(names: set[str]) -> None:
    kept = {name.rsplit("/", 1)[1] for name in names if "/licenses/" in name}
    assert {"LICENSE", "NOTICE"} <= kept


def test_the_base_install_has_no_torch(clean: Path) -> None:
    code = f"from importlib.util import find_spec as f; print([n for n in {NOT_BASE!r} if f(n)])"
    done = subprocess.run([clean / "python", "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_loop_runs_from_the_wheel(clean: Path, tmp_path: Path) -> None:
    """Record, sweep with the engines that need no model, read: all from the wheel, without torch."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        '[rerank.models.lexical]\nmodel = "lexical"\n[summarize.models.extractive]\nmodel = "extractive"\n'
        '[policy.default.rerank]\nmodel = "lexical"\n[policy.default.summarize]\nmodel = "extractive"\n'
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AFTERPASS_", "PYTHON"))
    } | {"AFTERPASS_HOME": str(tmp_path / "home"), "AFTERPASS_CACHE": str(tmp_path / "cache")}

    def afterpass_(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [clean / "afterpass", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    texts = ["Paris is the capital of France.", "Bread is baked in an oven.", "The capital of Italy is Rome."]
    lines = "".join(
        json.dumps({"text": text, "query": "What is the capital of France?", "run": "r1"}) + "\n"
        for text in texts
    )
    afterpass_("record", "--jsonl", stdin=lines)
    account = json.loads(afterpass_("sweep", "--now", "--json").strip().rpartition("\n")[2])
    assert account["outcome"] == "done"
    assert account["items"]["seen"] == 3
    assert account["groups"]["summarised"] == 1
    assert "Paris" in afterpass_("verdicts")
    assert "Paris" in afterpass_("summaries")
