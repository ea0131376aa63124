"""`afterpass demo`: agents record, a sweep is killed and resumed, and the result is looked at."""

from __future__ import annotations

import contextlib
import json as json_module
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import ConfigOption, JsonOption, examples
from ..output import emit

if TYPE_CHECKING:
    from ...core.config import Config
    from ...core.paths import Home
    from ...sweep.progress import Progress
    from .library import Library

EXAMPLES = examples("afterpass demo", "# Without the language model, in a minute", "afterpass demo --quick")

HALF = 0.5


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave the language model out: verdicts and extracts.")
    ] = False,
    json: JsonOption = False,
    home: Annotated[
        Path | None,
        typer.Option("--home", help="Use this home, and not one of its own.", show_default=False),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Run the whole loop on real input, in a few minutes, in a home of its own that is kept.

    Two agents look for answers to 20 programming questions in the documentation of the Python that runs
    this, and record what they come across. A sweep judges it; it is killed half-way and carries on.
    """
    from ...core.paths import Home

    place = Home.at(home or tempfile.mkdtemp(prefix="afterpass-demo-"))
    # With --json the story goes to stderr: stdout has the document alone.
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        document = _run(place, config, quick)
    if json:
        emit(document)


def _run(home: Home, config: Path | None, quick: bool) -> dict[str, Any]:
    from ..options import load_config
    from . import show
    from .result import result

    began = time.perf_counter()
    settings = load_config(config, home)
    show.opening(home, settings, quick)
    library = _library(home)
    recorded = _record(home)
    show.recorded(recorded)
    _plan(home, config, quick)
    command = _command(home, config, "sweep", "--json", "--progress", "json")
    command += ["--no-summaries"] if quick else []
    environment = _small_steps(settings)
    first = _sweep(command, environment, kill_in="scoring" if quick else "summarising")
    show.killed(first, home)
    second = _sweep(command, environment, kill_in=None) if first.killed else first
    found = result(home, library)
    show.outcome(found, settings, quick)
    show.receipt(found, first, second, recorded)
    show.closing(home)
    return {
        "home": home.root,
        "quick": quick,
        "items": found.items,
        "groups": found.groups,
        "errors": found.items["errors"] + found.groups["errors"],
        "answers_kept": found.answers_kept,
        "answers_kept_bm25": found.answers_kept_bm25,
        "answers_found": found.answers_found,
        "questions": len(found.questions),
        "recorded": recorded,
        "characters": found.characters,
        "killed": first.killed,
        "seconds": round(time.perf_counter() - began, 1),
        "sweep": second.account,
    }


# -------------------------------------------------------------------------------------- recording


def _library(home: Home) -> Library:
    from .corpus import passages
    from .library import Library
    from .show import say

    began = time.perf_counter()
    library = Library.build(passages())
    library.save(home.root / "library")
    seconds = time.perf_counter() - began
    say(f"library: {len(library.passages):,} passages of documentation, in {seconds:.1f} s")
    return library


def _record(home: Home) -> dict[str, int]:
    """Let both agents work, at the same time. Returns how many passages each recorded."""
    from ...core.errors import StoreError
    from ..progress import progress
    from .agents import AGENTS
    from .questions import questions

    drawn = progress()
    drawn.phase("agents at work", len(questions()) * len(AGENTS), "questions")
    environment = {**os.environ, "AFTERPASS_HOME": str(home.root)}
    counts = dict.fromkeys(AGENTS, 0)
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "afterpass.cli.demo.agents", name, str(home.root / "library")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in AGENTS
    }
    for process in running.values():
        assert process.stdout is not None
        for line in process.stdout:
            told = json_module.loads(line)
            counts[told["agent"]] += told["recorded"]
            drawn.advance(1)
    drawn.finish()
    for name, process in running.items():
        if process.wait():
            raise StoreError(
                f"the agent {name!r} ended with {process.returncode}", hint="see what it said above"
            )
    return counts


def _plan(home: Home, config: Path | None, quick: bool) -> None:
    from .show import heading

    heading("The plan")
    command = _command(home, config, "plan", "--now") + (["--no-summaries"] if quick else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=_terminal(), check=False)
    sys.stdout.write(done.stdout)
    if done.returncode:
        raise typer.Exit(done.returncode)


def _terminal() -> dict[str, str]:
    return {**os.environ, "COLUMNS": str(os.get_terminal_size().columns) if sys.stderr.isatty() else "100"}


# --------------------------------------------------------------------------------------- sweeping


@dataclass(slots=True)
class Swept:
    """What was seen of a sweep from outside.

    Attributes:
        killed: whether it was, and then `at` says in which phase, after how many of how many units.
        gone_after: seconds until no process of its was left.
        account: its last word, {} where it was killed.
    """

    killed: bool = False
    at: str = ""
    seconds: float = 0.0
    gone_after: float = 0.0
    account: dict[str, Any] = field(default_factory=dict)


def _small_steps(config: Config) -> dict[str, str]:
    """The environment of the demo's sweeps: small batches, so that half-way can be hit; no score changes."""
    ours = config.rerank.models.get("embedded")
    if ours is None or ours.model != "embedded":
        return dict(os.environ)
    return {**os.environ, "AFTERPASS_RERANK__MODELS__EMBEDDED__BATCH_TOKENS": "1024"}


def _sweep(command: list[str], environment: dict[str, str], *, kill_in: str | None) -> Swept:
    """Run a sweep in a process of its own and draw its progress; kill -9 it half-way through a phase."""
    from ..errors import say as complain
    from ..progress import progress
    from .show import heading

    heading("A sweep, to be killed half-way" if kill_in else "The same sweep again: it carries on")
    drawn = progress()
    began = time.perf_counter()
    swept = Swept()
    family: list[int] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    assert process.stdout is not None
    meter = _Meter(drawn)
    for line in process.stderr:
        if not meter.take(line):
            drawn.note(line.rstrip("\n"))
        if kill_in and meter.share(kill_in) >= HALF:
            family = _family(process.pid)
            process.send_signal(signal.SIGKILL)
            swept.killed, swept.at = True, meter.where
            break
    if swept.killed:
        process.wait()
        swept.gone_after = _until_gone(family)
        process.stdout.close()
    else:
        said = process.stdout.read()
        code = process.wait()
        if code not in (0, 3):
            drawn.finish()
            complain(
                f"the sweep ended with {code}", "see what it said above; `afterpass doctor` may know more"
            )
            raise typer.Exit(code)
        swept.account = json_module.loads(said.splitlines()[-1])
    swept.seconds = time.perf_counter() - began
    drawn.finish()
    return swept


class _Meter:
    """A sweep's JSON progress, drawn here, and how much of the decisive phase is done."""

    def __init__(self, drawn: Progress) -> None:
        self._drawn = drawn
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._name = ""

    def take(self, line: str) -> bool:
        """Draw one line of progress; False where it is something else."""
        try:
            event = json_module.loads(line)
            what = event["event"]
        except (ValueError, KeyError, TypeError):
            return False
        if what == "phase":
            self._name = event["name"]
            self._done.setdefault(self._name, 0)
            if event["total"]:
                self._total[self._name] = event["total"]
            self._drawn.phase(event["name"], event["total"], event["unit"])
        elif what == "advance":
            self._done[self._name] = self._done.get(self._name, 0) + event["done"]
            self._drawn.advance(event["done"], **event["rates"])
        elif what == "note":
            self._drawn.note(event["text"])
        return True

    def share(self, phase: str) -> float:
        """How much of a phase is done; 0 while the sweep is in another."""
        total = self._total.get(phase, 0)
        return self._done[phase] / total if total and self._name == phase else 0.0

    @property
    def where(self) -> str:
        """For people: the phase, and what of it is done."""
        return f"{self._name}, {self._done.get(self._name, 0):,} of {self._total.get(self._name, 0):,} done"


def _family(pid: int) -> list[int]:
    """A process and its descendants, by /proc; the process alone where there is none."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _until_gone(family: list[int], patience: float = 10.0) -> float:
    began = time.perf_counter()
    while any(map(_alive, family)) and time.perf_counter() - began < patience:
        time.sleep(0.02)
    return time.perf_counter() - began


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _command(home: Home, config: Path | None, *arguments: str) -> list[str]:
    chosen = ["--config", str(config)] if config else []
    return [sys.executable, "-m", "afterpass.cli", *arguments, "--home", str(home.root), *chosen]


def lines_for_your_own(home: Home) -> Iterator[str]:
    """Three lines to try one's own file with."""
    yield f"export AFTERPASS_HOME={home.root.parent / 'my-afterpass'}"
    yield "afterpass import my-results.jsonl --map text=output --map query=question --dry-run"
    yield "afterpass import my-results.jsonl --map text=output --map query=question && afterpass sweep --now"
