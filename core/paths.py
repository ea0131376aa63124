"""Where things lie: one home for ledger, spool, exports and configuration, one cache for models."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


def _platform_folder(variable: str, unix: str, mac: str) -> Path:
    if given := os.environ.get(variable):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / mac
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home())))
    return Path.home() / unix


def default_home() -> Path:
    """`AFTERPASS_HOME`, else the platform's data folder: where agents and sweeps of one user meet."""
    if given := os.environ.get("AFTERPASS_HOME"):
        return Path(given).expanduser().absolute()
    return _platform_folder("XDG_DATA_HOME", ".local/share", "Application Support") / "afterpass"


def cache_folder() -> Path:
    """`AFTERPASS_CACHE`, else the platform's cache folder: prepared models, backend choices."""
    if given := os.environ.get("AFTERPASS_CACHE"):
        return Path(given).expanduser().absolute()
    return _platform_folder("XDG_CACHE_HOME", ".cache", "Caches") / "afterpass"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that everything of one installation lies in."""

    root: Path

    @classmethod
    def at(cls, root: str | os.PathLike[str] | None = None) -> Home:
        """The home at `root`, or the default one."""
        return cls(Path(root).expanduser().absolute() if root is not None else default_home())

    @property
    def ledger(self) -> Path:
        """The DuckDB file."""
        return self.root / "ledger.duckdb"

    @property
    def spool(self) -> Path:
        """Where agents append their open segments; `spool/inbox` holds the sealed ones."""
        return self.root / "spool"

    @property
    def inbox(self) -> Path:
        """Sealed segments on their way to the ledger."""
        return self.spool / "inbox"

    @property
    def outbox(self) -> Path:
        """A sweep's results that wait for the ledger."""
        return self.root / "outbox"

    @property
    def exports(self) -> Path:
        """Parquet beside the ledger, for readers at any time."""
        return self.root / "export"

    @property
    def config(self) -> Path:
        """This home's configuration file; it may be absent."""
        return self.root / "config.toml"

    @property
    def lock(self) -> Path:
        """Held (flock) by the running sweep."""
        return self.root / "sweep.lock"

    @property
    def calibrations(self) -> Path:
        """What labels taught: a file for each policy and judgement key."""
        return self.root / "calibration"

    @property
    def logs(self) -> Path:
        """What the models' processes print."""
        return self.root / "logs"
