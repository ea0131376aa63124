"""A batch pass: plan it, run it, account for it."""

from .account import Account
from .options import SweepOptions
from .plan import Plan, plan
from .run import sweep

__all__ = ["Account", "Plan", "SweepOptions", "plan", "sweep"]
