"""Reranking: a cross-encoder's logit for each (query, text), and what a policy makes of them.

Importing this package loads no model library; `load` does.
"""

from __future__ import annotations

from .decide import decide
from .duplicates import near_duplicates
from .loader import check, load, model_key, prepare

__all__ = ["check", "decide", "load", "model_key", "near_duplicates", "prepare"]
