"""How a command ends: every failure as a message, what to do next, and the design's exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from ..core.errors import AfterpassError

BUG = 70
INTERRUPTED = 130

# What the machine refuses is no bug of ours: the errno decides.
_FULL = "make room on that disk; what was committed stays"
_FILES = "raise the limit of open files (ulimit -n)"
_MACHINE = {
    errno.EACCES: "see who may write there: `afterpass doctor`",
    errno.EPERM: "see who may write there: `afterpass doctor`",
    errno.EROFS: "name a home on a disk that can be written, with --home or AFTERPASS_HOME",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
}


@contextmanager
def reported() -> Iterator[None]:
    """Run a command; turn what it raises into words on stderr and an exit code.

    Raises:
        typer.Exit: where the command raised anything but the parser's own exceptions, which pass.
    """
    try:
        yield
        sys.stdout.flush()
    except AfterpassError as error:
        say(error.message, error.hint)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        say("interrupted; what was committed stays")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has seen enough (`afterpass verdicts | head`): nothing went wrong, and nothing is said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except Exception as error:
        if type(error).__module__.startswith(("typer", "click")):  # Exit, and wrong usage (exit 2)
            raise
        if isinstance(error, OSError) and error.errno in _MACHINE:
            where = f"{error.filename}: " if error.filename else ""
            say(f"{where}{error.strerror}", _MACHINE[error.errno])
            raise typer.Exit(1) from None
        _bug(error)


def say(message: str, hint: str = "") -> None:
    """A problem on stderr, and what to do about it."""
    from .output import printable

    print(f"afterpass: {printable(message)}", file=sys.stderr)
    if hint:
        print(f"  -> {printable(hint)}", file=sys.stderr)


def _bug(error: Exception) -> NoReturn:
    import platform
    import traceback
    from importlib import metadata

    traceback.print_exception(error)
    try:
        version = metadata.version("afterpass")
        urls = metadata.metadata("afterpass").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        version, urls = "unknown", []
    tracker = next((url.split(",", 1)[1].strip() for url in urls if "issue" in url.lower()), "")
    where = f", at {tracker}" if tracker else ""
    say(
        f"this is a bug in afterpass {version} (Python {platform.python_version()}, {platform.platform()})",
        f"please report it with the lines above{where}; what was committed stays",
    )
    raise typer.Exit(BUG) from None
