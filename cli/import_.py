"""`afterpass import`: files of others into the ledger."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, examples, home_at, load_config
from .output import emit, facts, line, note, table

if TYPE_CHECKING:
    from ..core.config import Config
    from ..core.types import Item
    from ..store.formats import Bad, Options, Skipped
    from ..sweep.progress import Progress

EXAMPLES = examples(
    '# Our own JSONL: {"text": ..., "query": ..., "run": ...} a line',
    "afterpass import results.jsonl",
    "# Anybody's: say where the fields are (JMESPath), and look before you leap",
    "afterpass import report.jsonl --map text=article --map query=prompt --dry-run",
    "# Chat logs, SWE-agent trajectories, Inspect logs and OTLP traces are known by their shape",
    "afterpass import runs/*.traj traces.json.gz logs/*.eval",
)

SHOWN = 5
TOLD_EVERY = 500
PARTIAL = 3


def import_(
    files: Annotated[
        list[str], typer.Argument(help="Files to read; - is stdin. gzip and zstd are unpacked.")
    ],
    map: Annotated[
        list[str] | None,
        typer.Option("--map", help="field=path, path in JMESPath; see docs/formats.md.", show_default=False),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", help="What the files are, where that cannot be told from them.")
    ] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show five mapped items and the counts; write nothing.")
    ] = False,
    query: Annotated[
        str | None, typer.Option("--query", help="For records that bring none.", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="For records that bring none.", show_default=False)
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="For records that bring none.", show_default=False)
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="For records that bring none.", show_default=False)
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="For records that bring none.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="For records that bring none.", show_default=False)
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring files into the ledger; importing a file again adds nothing.

    What cannot be read goes to the quarantine by file and line, and its neighbours live; exit 3 says that
    there was such. A busy ledger loses nothing: the next sweep takes in what waits.
    """
    from ..store.formats import FieldMap, Options
    from .progress import Style, progress

    place = home_at(home)
    settings = load_config(config, place)
    if policy is not None:
        _check_policy(policy, settings)
    options = Options(
        format=format,
        mapping=FieldMap.parse(map) if map else None,
        defaults={
            "query": query,
            "group": group,
            "run": run,
            "policy": policy,
            "namespace": namespace,
            "kind": kind,
        },
    )
    drawn = progress(Style.BAR if sys.stderr.isatty() else Style.NONE)
    with _paths(files) as paths:
        drawn.phase("reading", None, "records")
        tallies = [_Tally(name, path, settings, drawn) for name, path in paths]
        if dry_run:
            for tally in tallies:
                for _ in tally.read(options):
                    pass
            drawn.finish()
            _show_dry(tallies, json)
        else:
            from ..store.importer import import_files

            try:
                report = import_files(place, settings.store, [(t.name, t.read(options)) for t in tallies])
            finally:
                drawn.finish()
            _show(tallies, report, place.root, json)
    if any(tally.bad for tally in tallies):
        raise typer.Exit(PARTIAL)


@dataclass
class _Tally:
    """One file's counts, taken as its records pass by."""

    name: str
    path: Path
    config: Config
    drawn: Progress
    seen: int = 0
    items: int = 0
    no_query: int = 0
    blank: int = 0
    groups: set[tuple[str, bytes]] = field(default_factory=set)
    bad: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    unknown_policies: Counter[str] = field(default_factory=Counter)
    first: list[Item] = field(default_factory=list)
    first_bad: list[Bad] = field(default_factory=list)

    def read(self, options: Options) -> Iterator[Item | Bad | Skipped]:
        from ..store.formats import Bad, Skipped, read

        for found in read(self.path, options):
            self.seen += 1
            if self.seen % TOLD_EVERY == 0:
                self.drawn.advance(TOLD_EVERY)
            if isinstance(found, Bad):
                self.bad[found.reason] += 1
                self.first_bad += [found] if len(self.first_bad) < SHOWN else []
            elif isinstance(found, Skipped):
                self.skipped[found.reason] += 1
            else:
                self._count(found)
            yield found

    def _count(self, item: Item) -> None:
        self.items += 1
        self.no_query += item.query is None
        self.blank += not item.text.strip()
        self.groups.add((item.namespace, item.group_id.bytes))
        if item.policy not in self.config.policy:
            self.unknown_policies[item.policy] += 1
        if len(self.first) < SHOWN:
            self.first.append(item)

    def json(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "items": self.items,
            "groups": len(self.groups),
            "no_query": self.no_query,
            "blank": self.blank,
            "bad": dict(self.bad),
            "skipped": dict(self.skipped),
            "unknown_policies": dict(self.unknown_policies),
        }


def _total(tallies: Iterable[_Tally]) -> dict[str, Any]:
    known = list(tallies)
    groups: set[tuple[str, bytes]] = set()
    for tally in known:
        groups |= tally.groups
    return {
        "items": sum(t.items for t in known),
        "groups": len(groups),
        "no_query": sum(t.no_query for t in known),
        "blank": sum(t.blank for t in known),
        "bad": dict(sum((t.bad for t in known), Counter())),
        "skipped": dict(sum((t.skipped for t in known), Counter())),
        "unknown_policies": dict(sum((t.unknown_policies for t in known), Counter())),
    }


def _show_dry(tallies: list[_Tally], json: bool) -> None:
    total = _total(tallies)
    first = [item for tally in tallies for item in tally.first][:SHOWN]
    if json:
        emit(
            {
                "dry_run": True,
                **total,
                "files": [tally.json() for tally in tallies],
                "first": [_item_json(item) for item in first],
                "first_bad": [_bad_json(t.name, bad) for t in tallies for bad in t.first_bad][:SHOWN],
            }
        )
        return
    for number, item in enumerate(first, 1):
        line(f"item {number}")
        facts((f"  {name}", value) for name, value in _item_json(item).items() if value not in (None, {}, []))
    line()
    _counts(total)
    _files(tallies)
    _advise(tallies, total)
    note("nothing was written (--dry-run)")


def _show(tallies: list[_Tally], report: Any, home: Path, json: bool) -> None:
    from dataclasses import asdict

    total = _total(tallies)
    ingested = report.ingested and asdict(report.ingested)
    if json:
        emit(
            {
                "home": home,
                **total,
                "files": [tally.json() for tally in tallies],
                "ingested": ingested,
                "busy": report.busy,
            }
        )
        return
    _counts(total)
    if ingested:
        fresh = {name: ingested[name] for name in ("rows", "known", "quarantined")}
        facts([("ledger", f"{fresh['rows']:,} new items, {fresh['known']:,} known already")])
        if fresh["quarantined"]:
            facts([("quarantined", fresh["quarantined"])])
    _files(tallies)
    _advise(tallies, total)
    if report.busy:
        note(f"{report.busy}; what was read waits in the spool for the next sweep")


def _counts(total: dict[str, Any]) -> None:
    facts(
        [
            ("items", total["items"]),
            ("groups", total["groups"]),
            ("without a query", total["no_query"]),
            ("blank", total["blank"]),
            ("unreadable", total["bad"] or 0),
            ("no results", total["skipped"] or 0),
        ]
    )


def _files(tallies: list[_Tally]) -> None:
    if len(tallies) > 1:
        rows = ([t.name, t.items, len(t.groups), t.no_query, t.bad, t.skipped] for t in tallies)
        table(["file", "items", "groups", "no query", "unreadable", "no results"], rows, wide=["file"])


def _advise(tallies: list[_Tally], total: dict[str, Any]) -> None:
    for tally in tallies:
        for bad in tally.first_bad:
            note(f"{tally.name} {bad.where}: {bad.reason}: {bad.detail}")
        if not tally.items and not tally.bad:
            note(f"{tally.name}: nothing in it is an intermediate result; --map says where they are")
    if total["no_query"]:
        note(
            f"{total['no_query']:,} items lack a query and stay unjudged: add --query TEXT, or "
            "--map query=PATH, and import again"
        )
    for name, count in total["unknown_policies"].items():
        note(f"{count:,} items name the policy {name!r}, which the configuration does not have")


def _item_json(item: Item) -> dict[str, Any]:
    from ..core.keys import reference

    return {
        "item": reference("i", item.item_id),
        "group": reference("g", item.group_id),
        "group_name": item.group_name,
        "query": item.query,
        "run": item.run,
        "step": item.step,
        "kind": item.kind,
        "agent": item.agent,
        "policy": item.policy,
        "namespace": item.namespace,
        "created_at": item.created_at,
        "meta": item.meta,
        "flags": item.flags,
        "chars": len(item.text),
        "text": item.text[:300],
    }


def _bad_json(file: str, bad: Bad) -> dict[str, Any]:
    return {"file": file, "where": bad.where, "line": bad.line, "reason": bad.reason, "detail": bad.detail}


def _check_policy(policy: str, config: Config) -> None:
    from ..core.config import nearest
    from ..core.errors import ConfigError

    if policy not in config.policy:
        known = nearest(policy, list(config.policy))
        raise ConfigError(
            f"--policy {policy!r}: the configuration has no such policy{known}",
            hint="`afterpass config show` lists them",
        )


@contextmanager
def _paths(files: list[str]) -> Iterator[list[tuple[str, Path]]]:
    """(name, path) of each file; stdin becomes a file of its own, since files are read more than once."""
    import shutil
    import tempfile

    from ..core.errors import InputError

    for name in files:
        path = Path(name)
        if name != "-" and not path.exists():
            raise InputError(f"there is no file {name}", hint="nothing was imported; name files that exist")
    if "-" not in files:
        yield [(name, Path(name)) for name in files]
        return
    with tempfile.TemporaryDirectory(prefix="afterpass-") as folder:
        copy = Path(folder) / "stdin"  # its name may become a run's: always the same one
        with copy.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield [("stdin", copy) if name == "-" else (name, Path(name)) for name in files]
