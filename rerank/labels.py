"""Labels: what people said of items, one JSON object a line, and what each may be used for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ..core.errors import InputError

AT_RANDOM = "random"
"""`drawn`: the group was drawn at random from all, and its items labelled whole."""
USEFUL = "useful"
"""`drawn`: the item was chosen for what it would teach, near a threshold say."""

_FIELDS = ("group", "item", "relevant", "drawn", "by")


@dataclass(frozen=True, slots=True)
class Label:
    """What somebody said of an item.

    Attributes:
        group, item: references (`g_...`, `i_...`) or whole ids.
        drawn: how it came to be asked about: "random" (whole groups at random), "useful", or one's own word.
        by: who said so; a model's name starts with "model:".
    """

    group: str
    item: str
    relevant: bool
    drawn: str
    by: str

    @property
    def by_model(self) -> bool:
        """Whether no person said so."""
        return self.by == "model" or self.by.startswith("model:")

    def line(self) -> str:
        """As it stands in a file."""
        return json.dumps(asdict(self), ensure_ascii=False)


def parse(lines: Iterable[str], *, source: str = "labels") -> list[Label]:
    """Read labels from JSON lines; blank lines are passed over.

    Raises:
        InputError: a line is no label; it is named with what is wrong with it.
    """
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_label(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{source}, line {number}: {error}",
                hint='a label is {"group": "g_...", "item": "i_...", "relevant": true, "drawn": "random", '
                '"by": "..."} on one line',
            ) from error
    return found


def _label(data: object) -> Label:
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    if missing := [name for name in _FIELDS if data.get(name) in (None, "")]:
        raise ValueError(f"{', '.join(missing)} is missing")
    relevant = data["relevant"]
    if relevant not in (True, False, 0, 1):
        raise ValueError(f"relevant is {relevant!r}, and must be true or false")
    texts = {name: data[name] for name in _FIELDS if name != "relevant"}
    if wrong := [name for name, value in texts.items() if not isinstance(value, str)]:
        raise ValueError(f"{', '.join(wrong)} must be text")
    return Label(relevant=bool(relevant), **texts)


def for_guarantee(labels: Iterable[Label]) -> dict[str, dict[str, bool]]:
    """Labels by group and item, of groups drawn at random and labelled by people.

    Where people disagree an item counts as relevant: the promise is about what is missed.

    Raises:
        InputError: a label was drawn in another way, or made by a model.
    """
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for label in labels:
        if label.drawn != AT_RANDOM:
            raise InputError(
                f'the label of {label.item} was drawn "{label.drawn}": a promise rests on whole groups drawn '
                "at random, and labels near a threshold would bend it",
                hint='draw with `afterpass label --for guarantee`; leave other labels out (drawn = "random")',
            )
        if label.by_model:
            raise InputError(
                f"the label of {label.item} was made by {label.by}: a model's opinion proves nothing about "
                "what people would miss",
                hint="label by hand: `afterpass label --for guarantee`",
            )
        items = found[label.group]
        items[label.item] = items.get(label.item, False) or label.relevant
    return dict(found)
