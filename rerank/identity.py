"""The judgement key: what names all that could change a score, and no more.

Known without torch, so that a plan can subtract cached scores before any model is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from ..core import clean
from ..core.config import ScorerConfig
from ..core.paths import cache_folder
from .kinds import Kind, Spec, weight_files

READING = f"r1.{clean.VERSION}"
"""Changes when chunking, chunk choice or the layout of a pair changes what a model reads."""


def revision(spec: Spec, cache: Path | None = None) -> str:
    """Names a model's weights: ours by our revision, a hub's by its commit, a folder's by its contents."""
    if spec.revision:
        return spec.revision
    if spec.kind is Kind.EMBEDDED:
        from . import embedded

        return embedded.revision()
    assert spec.folder is not None
    if spec.folder.parent.name == "snapshots":  # the hub's cache: models--org--name/snapshots/COMMIT
        return spec.folder.name[:12]
    return fingerprint(spec.folder, cache)


def fingerprint(folder: Path, cache: Path | None = None) -> str:
    """12 hex digits over the contents of a model folder's files.

    Digests are remembered by path, size and time of change, so that gigabytes are read once.
    """
    store = (cache or cache_folder()) / "fingerprints.json"
    known = _read(store)
    digest, fresh = hashlib.sha256(), False
    for path in weight_files(folder):
        status = path.stat()
        mark = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}"
        if mark not in known:
            with path.open("rb") as source:
                known[mark] = hashlib.file_digest(source, "sha256").hexdigest()
            fresh = True
        digest.update(f"{path.name}:{known[mark]};".encode())
    if fresh:
        write_json(store, known)
    return digest.hexdigest()[:12]


def key(spec: Spec, config: ScorerConfig, *, backend: str, dtype: str, cache: Path | None = None) -> str:
    """The judgement key under which scores are kept."""
    if spec.kind is Kind.LEXICAL:
        from .lexical import KEY

        return KEY
    parts = (
        f"{spec.name}@{revision(spec, cache)}",
        backend,
        dtype,
        f"max{config.max_length}",
        f"query{config.query_length}",
        f"overlap{config.chunk_overlap}",
        f"chunks{config.max_chunks}",
        READING,
    )
    return "/".join(parts)


def _read(path: Path) -> dict[str, str]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: Path, data: object) -> None:
    """Write beside and rename, so that a reader sees the old or the new file whole. A full disk is no error:
    what is written here can be found out again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(data, out, indent=1)
        os.replace(name, path)
    except OSError:
        return
