"""The store: spool, formats and ledger. Names come when asked for, so that an agent's side stays light."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ledger import Ledger as Ledger

__all__ = ["Ledger"]


def __getattr__(name: str) -> object:
    if name == "Ledger":
        from .ledger import Ledger

        return Ledger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
