"""`afterpass calibrate`: from labels to probabilities, or to a promise about what is dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, examples, home_at, load_config
from .output import emit, facts, note
from .reading import reading

if TYPE_CHECKING:
    from ..core.config import Policy
    from ..rerank.calibration import Calibration
    from ..rerank.labels import Label
    from ..store.results import VerdictRow

EXAMPLES = examples(
    "# Probabilities for the policy `default`, with a reliability plot",
    "afterpass calibrate --labels labels.jsonl --plot reliability.png",
    "# Drop at most 5 % of a group's relevant items, with confidence 95 %",
    "afterpass calibrate --labels random.jsonl --max-miss 0.05 --confidence 0.95",
)


def calibrate(
    labels: Annotated[
        Path,
        typer.Option(
            "--labels", help="JSONL, one label a line: group, item, relevant, drawn, by.", show_default=False
        ),
    ],
    policy: Annotated[str, typer.Option("--policy", help="The policy to calibrate.")] = "default",
    method: Annotated[
        str | None,
        typer.Option(
            "--method", help="temperature, platt or isotonic; the best where not given.", show_default=False
        ),
    ] = None,
    max_miss: Annotated[
        float | None,
        typer.Option(
            "--max-miss",
            help="Promise that at most this share of a group's relevant items is dropped.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", help="With which probability the promise holds.")
    ] = 0.95,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Write a reliability plot: PNG, and HTML beside it.", show_default=False),
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Learn from labels what a logit means on your data.

    Without --max-miss: probabilities, with their error on groups that were held out. With it: the threshold
    below which items may be dropped, so that at most that share of a group's relevant items (averaged over
    groups that have any) is lost; it takes whole groups drawn at random and labelled by people, and counts
    where the policy sets max_miss.
    """
    from .. import rerank
    from ..core.config import nearest
    from ..core.errors import ConfigError, InputError
    from ..rerank import calibration
    from .labelled import read_labels, rows_of

    place = home_at(home)
    settings = load_config(config, place)
    if policy not in settings.policy:
        raise ConfigError(f"there is no policy {policy!r}{nearest(policy, settings.policy)}")
    rules = settings.policy[policy]
    key = rerank.model_key(settings.rerank.models[rules.rerank.model])
    if key is None:
        raise ConfigError(
            f"the scorer {rules.rerank.model!r} has not been loaded on this machine yet",
            hint="`afterpass models check --load`, then sweep and label",
        )
    said = read_labels(labels)
    with reading(home, config) as ledger:
        rows = rows_of(ledger, dict.fromkeys(label.group for label in said), policy, key)
    before = calibration.load(place.calibrations, policy, key) or calibration.Calibration(
        policy=policy, model_key=key
    )
    if max_miss is None:
        if method not in (None, "temperature", "platt", "isotonic"):
            raise InputError(f"there is no method {method!r}", hint="temperature, platt or isotonic")
        made, told = _fitted(before, said, rows, rules, method, plot)
    else:
        made, told = _promised(before, said, rows, rules, max_miss, confidence)
    file = calibration.save(place.calibrations, made)
    if json:
        emit({"policy": policy, "model_key": key, "calibration": made.name, "file": str(file), **told})
        return
    facts({"policy": policy, "model": key, "kept as": str(file), **told}.items())
    if max_miss is not None and rules.decide.max_miss is None:
        note(f"it counts once [policy.{policy}.decide] says max_miss = {max_miss}")


def _fitted(
    before: Calibration,
    said: list[Label],
    rows: dict[str, list[VerdictRow]],
    rules: Policy,
    method: Any,
    plot: Path | None,
) -> tuple[Calibration, dict[str, Any]]:
    from ..core.errors import InputError
    from ..rerank import calibrate as fitting
    from .labelled import samples

    report = fitting.fit(samples(said, rows), method)
    fit = report.fit
    told: dict[str, Any] = {
        "method": fit.method,
        "labels": fit.labels,
        "relevant": fit.relevant,
        "groups": fit.groups,
        "ece": round(fit.ece, 4),
        "ece_raw": round(fit.ece_raw, 4),
        "brier": round(fit.brier, 4),
        "brier_raw": round(fit.brier_raw, 4),
    }
    if plot is not None:
        from ..rerank import reliability

        try:
            files = reliability.plot(report, plot, title=f"Policy {before.policy}")
        except ImportError as error:
            raise InputError(
                f"the plot needs matplotlib: {error}", hint="pip install matplotlib, or leave --plot out"
            ) from error
        told["plot"] = [str(file) for file in files]
    # A promise made with other probabilities does not cover decisions made with these.
    keep = before.promise if rules.decide.min_probability is None else None
    return replace(before, fit=fit, promise=keep), told


def _promised(
    before: Calibration,
    said: list[Label],
    rows: dict[str, list[VerdictRow]],
    rules: Policy,
    max_miss: float,
    confidence: float,
) -> tuple[Calibration, dict[str, Any]]:
    from ..rerank import guarantee
    from ..rerank.labels import for_guarantee
    from .labelled import check_decided, whole_groups

    check_decided(rows, rules, before)
    groups = whole_groups(for_guarantee(said), rows)
    made = guarantee.promise(
        groups, rules.decide, max_miss=max_miss, confidence=confidence, calibration=before
    )
    told = {
        "max_miss": made.max_miss,
        "confidence": made.confidence,
        "min_logit": made.min_logit,
        "groups": made.groups,
        "relevant": made.relevant,
        "missed": round(made.missed, 4),
        "dropped": round(made.dropped, 4),
        "method": "Learn then Test, Hoeffding-Bentkus, by group",
    }
    return replace(before, promise=made), told
