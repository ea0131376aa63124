"""`--map field=path`: where in somebody's records our fields are, in JMESPath.

Two names are not fields but say where the records themselves lie:

    items=EXPR [> EXPR ...]   the records of a document; each further EXPR goes one level deeper
    children=EXPR             a record's own nested records, walked depth first (trees)

In a field's path a leading `^` looks at the record one level up, `^^` two, and `[#]` stands for the
record's place in its list, so that parallel lists can be read: `meta.score=^scores[#]`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import InputError
from .records import FIELDS, as_text

_SYNTAX = "write --map as field=path, for instance --map text=output.content"


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a mapping found: its fields under our names, and its place ("3.0.1") in the document."""

    place: str
    fields: dict[str, Any]
    source: Any


@dataclass(frozen=True, slots=True)
class FieldMap:
    """A parsed `--map`.

    Attributes:
        fields: our field -> path; `meta.NAME` adds one entry to the metadata.
        items: paths to the records, outermost first; () takes the document (or a list's elements).
        children: path from a record to those under it.
    """

    fields: Mapping[str, str]
    items: tuple[str, ...] = ()
    children: str | None = None
    _compiled: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, assignments: Sequence[str]) -> FieldMap:
        """Read `field=path` assignments.

        Raises:
            InputError: not an assignment, an unknown field, or a path that is no JMESPath.
        """
        from ...core.config import nearest

        found: dict[str, str] = {}
        for assignment in assignments:
            name, equals, path = assignment.partition("=")
            name, path = name.strip(), path.strip()
            if not equals or not path:
                raise InputError(f"--map {assignment!r} is no assignment", hint=_SYNTAX)
            if name not in (*FIELDS, "items", "children") and not name.startswith("meta."):
                known = [*FIELDS, "items", "children", "meta.NAME"]
                raise InputError(
                    f"--map {assignment!r}: no field {name!r}{nearest(name, known)}", hint=_SYNTAX
                )
            found[name] = path
        items = tuple(part.strip() for part in re.split(r"\s>\s", found.pop("items", "")) if part.strip())
        children = found.pop("children", None)
        if "text" not in found:
            raise InputError("--map names no text", hint="add --map text=PATH; @ is the record itself")
        mapping = cls(found, items, children)
        for path in (*items, *found.values(), *([children] if children else ())):
            mapping._search(path.lstrip("^").replace("[#]", "[0]"), None)
        return mapping

    @property
    def reading(self) -> str:
        """Names which texts it takes from where: part of the items' ids, so that another reading of a file
        makes other items, while a query mapped later finds the same ones."""
        parts = (*self.items, "children", self.children or "", "text", self.fields["text"])
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]

    def apply(self, document: Any) -> Iterator[Found]:
        """The records of a document, in order."""
        if not self.items:
            roots = document if isinstance(document, list) else [document]
            levels: Iterator[tuple[Any, ...]] = ((root,) for root in roots)
        else:
            levels = self._descend((document,), self.items)
        for number, chain in enumerate(levels):
            yield from self._walk(chain, str(number), number)

    def _descend(self, chain: tuple[Any, ...], paths: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Chains of (record, its parent, ...), innermost first."""
        found = self._search(paths[0], chain[0])
        for inner in found if isinstance(found, list) else [] if found is None else [found]:
            if len(paths) == 1:
                yield (inner, *chain)
            else:
                yield from self._descend((inner, *chain), paths[1:])

    def _walk(self, chain: tuple[Any, ...], place: str, index: int) -> Iterator[Found]:
        # A stack and not recursion: trees come deeper than Python's own limit.
        stack = [(chain[0], place, index)]
        while stack:
            record, place, index = stack.pop()
            yield Found(place, self._fields((record, *chain[1:]), place, index), record)
            if self.children is None:
                continue
            nested = self._search(self.children, record)
            below = nested if isinstance(nested, list) else [] if nested is None else [nested]
            stack += [(child, f"{place}.{i}", i) for i, child in reversed(list(enumerate(below)))]

    def _fields(self, chain: tuple[Any, ...], place: str, index: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        meta: dict[str, Any] = {}
        for name, path in self.fields.items():
            bare = path.lstrip("^")
            up = len(path) - len(bare)
            value = self._search(bare.replace("[#]", f"[{index}]"), chain[up]) if up < len(chain) else None
            if name.startswith("meta."):
                meta[name.removeprefix("meta.")] = value
            else:
                fields[name] = as_text(value) if name == "text" else value
        if meta:
            fields["meta"] = {**(fields.get("meta") or {}), **meta}
        if self.children is not None:
            fields.setdefault("step", place)
        return fields

    def _search(self, path: str, value: Any) -> Any:
        import jmespath
        from jmespath.exceptions import JMESPathError, ParseError

        if path not in self._compiled:
            try:
                self._compiled[path] = jmespath.compile(path)
            except (ParseError, JMESPathError) as error:
                reason = " ".join(str(error).split())
                raise InputError(
                    f"--map path {path!r} is no JMESPath: {reason}",
                    hint="a name with dots or spaces goes in double quotes, a fixed text in single ones",
                ) from None
        try:
            return self._compiled[path].search(value)
        except JMESPathError:  # a function met a kind that it does not take: nothing there
            return None
