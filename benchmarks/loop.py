"""How much of a sweep is model work, what a sweep with nothing to do costs, and how fast help comes.

    python benchmarks/loop.py [--items 2000] [--json]

Last line with --json: `engine_share`, the share of a sweep's wall time, loading apart, spent inside the two
engines; `noop_s`, a sweep with nothing due (median of five, interpreter start included); `help_ratio`,
`afterpass --help` against an empty typer application (medians of interleaved runs).
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder

COMMAND = str(Path(sys.executable).with_name("afterpass"))
ITEMS_A_GROUP = 20


def passages(count: int) -> list[str]:
    """Docstrings of the standard library: real prose of mixed length, the same on every machine."""
    found: dict[str, None] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules() if m.name in sys.stdlib_module_names):
        if module.startswith("_") or module in {"antigravity", "this", "idlelib", "turtle", "turtledemo"}:
            continue
        try:
            members = inspect.getmembers(import_module(module))
        except Exception:
            continue
        for name, member in members:
            text = inspect.getdoc(member) if callable(member) else None
            if text and len(text) > 80:
                found.setdefault(f"{module}.{name}: {text}")
        if len(found) >= count:
            break
    return list(found)[:count]


def record(home: Path, items: int) -> None:
    """Spool `items` passages, some twenty a group, each group under a question of its own."""
    texts = passages(items)
    with_questions = [f"How do I use {text.split(':')[0]}?" for text in texts[::ITEMS_A_GROUP]]
    recorder = Recorder(Home.at(home))
    for number in range(items):
        group = number // ITEMS_A_GROUP
        question = with_questions[group % len(with_questions)]
        recorder.record(texts[number % len(texts)], query=question, group=f"group {group}")
    recorder.shutdown()


def sweep(home: Path) -> dict[str, object]:
    """One sweep through the installed command."""
    command = [COMMAND, "sweep", "--home", str(home), "--now", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"TERM": "dumb"})
    return time.perf_counter() - began


def help_ratio(rounds: int = 9) -> float:
    """`--help` of ours over `--help` of an empty typer application, in turn."""
    empty = "import typer; app = typer.Typer(); app.command()(lambda: None); app(['--help'])"
    ours, bare = [], []
    for _ in range(rounds):
        bare.append(seconds([sys.executable, "-c", empty]))
        ours.append(seconds([COMMAND, "--help"]))
    return statistics.median(ours) / statistics.median(bare)


def main() -> None:
    """Run all three and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        record(home, arguments.items)
        account = sweep(home)
        noop = statistics.median(
            seconds([COMMAND, "sweep", "--home", str(home), "--json", "--quiet"]) for _ in range(5)
        )
    result = {
        "engine_share": account["engine_share"],
        "noop_s": round(noop, 3),
        "help_ratio": round(help_ratio(), 3),
    }
    if not arguments.json:
        print(json.dumps(account, indent=2))
    else:
        print(json.dumps({"items": account["items"], "seconds": account["seconds"]}))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
