"""A batch pass: plan it, run it, account for it. Names load when they are used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .account import Account
    from .forecast import Plan, plan
    from .options import SweepOptions
    from .run import sweep
    from .verification import Verification
    from .verifying import verify

_HOMES = {
    "Account": "account",
    "Plan": "forecast",
    "SweepOptions": "options",
    "Verification": "verification",
    "plan": "forecast",
    "sweep": "run",
    "verify": "verifying",
}

__all__ = ["Account", "Plan", "SweepOptions", "Verification", "plan", "sweep", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
