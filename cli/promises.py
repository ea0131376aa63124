"""The promises that the policies in force ask for, as `status` and `doctor` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.config import Config
    from ..core.paths import Home


def promises(home: Home, config: Config) -> list[dict[str, Any]]:
    """One for each policy that sets `max_miss`; `withdrawn` says why it does not count, None where it does.

    Raises:
        InputError: a calibration cannot be read.
    """
    from ..rerank import calibration

    asked = {name: policy.decide for name, policy in config.policy.items() if policy.decide.max_miss}
    if not asked:
        return []
    found = []
    kept = calibration.every(home.calibrations)
    for name, rules in asked.items():
        made = [(c.model_key, p) for c in kept if c.policy == name and (p := c.promised(rules)) is not None]
        found += [
            {
                "policy": name,
                "model_key": key,
                "max_miss": promise.max_miss,
                "confidence": promise.confidence,
                "min_logit": promise.min_logit,
                "withdrawn": promise.withdrawn or None,
            }
            for key, promise in made
        ]
        if not made:
            why = "none was made for these rules of decision"
            found.append(
                {
                    "policy": name,
                    "model_key": None,
                    "max_miss": rules.max_miss,
                    "confidence": None,
                    "min_logit": None,
                    "withdrawn": why,
                }
            )
    return found


def told(promise: dict[str, Any]) -> str:
    """A promise in words."""
    if promise["withdrawn"]:
        return f"policy {promise['policy']!r}: WITHDRAWN, nothing is dropped by it: {promise['withdrawn']}"
    least = promise["min_logit"]
    return (
        f"policy {promise['policy']!r}: at most {promise['max_miss']:.1%} missed, confidence "
        f"{promise['confidence']:.0%}"
        + (f" (min_logit {least:.2f})" if least is not None else " (nothing is dropped by it)")
    )
