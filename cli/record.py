"""`afterpass record`: items from stdin, through the hook's own path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import HomeOption, JsonOption, examples, home_at
from .output import emit, line

if TYPE_CHECKING:
    from ..core.paths import Home
    from ..hooks.recorder import Recorder

EXAMPLES = examples(
    'curl -s https://example.org/page | afterpass record --query "how to stop a child process" --run r1',
    "# Many at once, one JSON object a line",
    "cat results.jsonl | afterpass record --jsonl",
)

WAIT_S = 60.0


def record(
    query: Annotated[
        str | None, typer.Option("--query", help="What the item is judged against.", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Name of the items that compete.", show_default=False)
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="The run it belongs to.", show_default=False)
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", help="The step within the run.", show_default=False)
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="What it is: tool_output, passage, ...")] = "result",
    agent: Annotated[str | None, typer.Option("--agent", help="Who produced it.", show_default=False)] = None,
    policy: Annotated[str, typer.Option("--policy", help="By which rules it is judged.")] = "default",
    namespace: Annotated[str, typer.Option("--namespace", help="Keeps tenants apart.")] = "default",
    id: Annotated[
        str | None,
        typer.Option("--id", help="Your own id: the same id is the same item.", show_default=False),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher is judged first.")] = 0,
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Each line is a JSON object with a text; flags fill what it lacks."),
    ] = False,
    close: Annotated[
        bool, typer.Option("--close", help="Say that the run or group is complete: it is due at once.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Record what stdin brings: one text, or with --jsonl one item a line.

    Returns when the items are on disk (fsync), where the next sweep finds them. Prints their references.
    """
    from ..core.errors import InputError, SpoolNotWritable
    from ..hooks.recorder import Recorder

    place = home_at(home)
    given: dict[str, Any] = {
        "query": query, "group": group, "run": run, "step": step, "kind": kind, "agent": agent,
        "policy": policy, "namespace": namespace, "id": id, "priority": priority,
    }  # fmt: skip
    if close and group is None and run is None:
        raise InputError("--close names nothing to close", hint="add --run or --group")
    _check_spool(place)
    found: list[str] = []
    refused: Counter[str] = Counter()
    with Recorder(place, block=WAIT_S) as recorder:
        for where, fields in _lines(given) if jsonl else _whole(given):
            _take(recorder, where, fields, found, refused)
        if close:
            recorder.close(**({"group": group} if group is not None else {"run": run}), namespace=namespace)
        if not recorder.flush(WAIT_S):
            raise SpoolNotWritable(
                f"what was recorded is not safely in {place.spool}",
                hint="check its owner, its permissions and the free space: `afterpass doctor`",
            )
    if json:
        emit({"home": place.root, "recorded": len(found), "refused": dict(refused), "items": found})
    else:
        for reference in found:
            line(reference)
    if refused:
        raise InputError(
            f"{refused.total()} of {refused.total() + len(found)} were refused; the others are recorded",
            hint="the lines above say why",
        )


def _check_spool(home: Home) -> None:
    """Say at once what a recorder, which must not fail, would only log while it tries again.

    Raises:
        SpoolNotWritable: a folder of the spool cannot be made or written.
    """
    import os

    from ..core.errors import SpoolNotWritable
    from ..store.spool_writer import private_folder

    for folder in (home.spool, home.inbox):
        try:
            private_folder(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "permission denied")
        except OSError as error:
            raise SpoolNotWritable(
                f"nothing can be recorded in {folder}: {error.strerror}",
                hint="check its owner and permissions (`afterpass doctor`), or name another --home",
            ) from error


def _take(recorder: Recorder, where: str, fields: Any, found: list[str], refused: Counter[str]) -> None:
    from uuid import UUID

    from ..core.keys import reference
    from .errors import say

    if isinstance(fields, str):  # a reason
        refused[fields.split(":")[0]] += 1
        say(f"{where}: {fields}")
        return
    before = dict(recorder.counts.reasons)
    item_id = recorder.record(**fields)
    if item_id is None:
        reason = next((r for r, n in recorder.counts.reasons.items() if n > before.get(r, 0)), "overflowed")
        refused[reason.split(":")[0]] += 1
        say(f"{where}: {reason}")
    else:
        found.append(reference("i", UUID(item_id)))


def _whole(given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    import sys

    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    yield "stdin", {**given, "text": text}


def _lines(given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each line's fields, or the reason why it has none."""
    import sys

    from ..store.formats.records import Record, WrongType, arguments, own_fields
    from ..store.formats.strict_json import NotJSON, loads

    for number, raw in enumerate(sys.stdin.buffer, 1):
        where = f"line {number}"
        if not raw.strip():
            continue
        try:
            value = loads(raw.decode("utf-8").removeprefix("\ufeff"))
        except UnicodeDecodeError:
            yield where, "not_utf8"
            continue
        except NotJSON as error:
            yield where, f"not_json: {error}"
            continue
        if not isinstance(value, dict):
            yield where, "no_text: a line is a JSON object with a text"
            continue
        try:
            yield where, arguments(Record(line=number, where=where, own=own_fields(value)), defaults=given)
        except WrongType as error:
            yield where, f"{error.reason}: {error}"
