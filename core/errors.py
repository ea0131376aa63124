"""Every error that Afterpass raises on purpose.

Each says what was tried and on what (the message) and what to do next (the hint), and carries the exit
code with which the command line ends.

    AfterpassError
    ├── ConfigError (1)            a configuration file, flag or policy is wrong
    │   ├── ModelNotFound          a named model is neither a path nor in the cache
    │   └── NotAReranker           a model was named for scoring that cannot score
    ├── InputError (1)             a file or value handed in cannot be used
    │   ├── UnknownReference       no item, group or sweep goes by that name
    │   └── RecordRefused          an item was refused at the hook (only raised where the caller asked)
    ├── StoreError (1)             the ledger or the spool cannot be used as it is
    │   ├── LedgerMissing          there is no ledger yet
    │   ├── NotALedger             the file is not a DuckDB ledger of ours
    │   ├── LedgerNewer            the ledger was written by a newer version
    │   ├── SegmentNewer           a segment of the spool was written by a newer version
    │   └── SpoolNotWritable       the spool's folder refuses us
    ├── Busy (75)                  try again later
    │   ├── LedgerBusy             another process holds the ledger
    │   └── SweepRunning           another sweep holds the lock
    └── EngineError (69)           a model or engine did not start, or kept dying
        ├── EngineMissing          the package for that backend is not installed
        └── OutOfMemory            it asked for more memory than is free
"""

from __future__ import annotations


class AfterpassError(Exception):
    """Base of the tree.

    Args:
        message: what was tried, on what, and what happened.
        hint: what to do next; empty where there is nothing to say.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from a model's process to the sweep's: keep the hint on the way.
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(cls: type[AfterpassError], message: str, hint: str) -> AfterpassError:
    return cls(message, hint=hint)


class ConfigError(AfterpassError):
    """A configuration file, flag or policy is wrong."""


class ModelNotFound(ConfigError):
    """A named model is neither a path that exists nor in the local cache, and no hub answered."""


class NotAReranker(ConfigError):
    """A model was named for scoring that does not score (query, text) pairs."""


class InputError(AfterpassError):
    """A file or value handed in cannot be used."""


class UnknownReference(InputError):
    """No item, group or sweep goes by that reference."""


class RecordRefused(InputError):
    """An item was refused at the hook."""


class StoreError(AfterpassError):
    """The ledger or the spool cannot be used as it is."""


class LedgerMissing(StoreError):
    """There is no ledger yet, and nobody may create one by reading."""


class NotALedger(StoreError):
    """The file is there but is no DuckDB ledger of ours."""


class LedgerNewer(StoreError):
    """The ledger was written by a newer version of Afterpass."""


class SegmentNewer(StoreError):
    """A segment of the spool was written by a newer version; it waits until this side is upgraded."""


class SpoolNotWritable(StoreError):
    """The spool's folder cannot be written."""


class Busy(AfterpassError):
    """Somebody else is at work; try again later."""

    exit_code = 75


class LedgerBusy(Busy):
    """Another process holds the ledger."""


class SweepRunning(Busy):
    """Another sweep holds this home's lock."""


class EngineError(AfterpassError):
    """A model or engine did not start, or died again and again."""

    exit_code = 69


class EngineMissing(EngineError):
    """The package that a backend needs is not installed."""


class OutOfMemory(EngineError):
    """A model asked for more memory than is free."""
