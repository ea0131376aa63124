"""Afterpass: what agents produce while they work, judged in one off-peak pass.

    import afterpass

    afterpass.record(tool_output, query="How do I ...?", run="run-17")

Importing it costs nothing: each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import sweep as sweep
    from .core import errors as errors
    from .core.paths import Home as Home
    from .hooks.record import close as close
    from .hooks.record import configure as configure
    from .hooks.record import flush as flush
    from .hooks.record import record as record
    from .hooks.recorder import Recorder as Recorder
    from .store.ledger import Ledger as Ledger

# name -> (module, attribute of it, or None for the module itself)
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "record": (".hooks.record", "record"),
    "flush": (".hooks.record", "flush"),
    "close": (".hooks.record", "close"),
    "configure": (".hooks.record", "configure"),
    "Recorder": (".hooks.recorder", "Recorder"),
    "Ledger": (".store.ledger", "Ledger"),
    "Home": (".core.paths", "Home"),
    "errors": (".core.errors", None),
    "sweep": (".sweep", None),
}

__all__ = [
    "Home",
    "Ledger",
    "Recorder",
    "__version__",
    "close",
    "configure",
    "errors",
    "flush",
    "record",
    "sweep",
]


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _PUBLIC[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    found = import_module(module, __name__)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
