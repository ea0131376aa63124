"""The whole story of an item or a group, as JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from ..core.keys import reference
from .ledger_file import LedgerFile
from .ledger_read import find
from .ledger_values import GroupKey
from .sqlfiles import sql


def explain(file: LedgerFile, ref: str) -> dict[str, Any]:
    """See `Ledger.explain`."""
    found = find(file, ref)
    if found.kind == "item":
        return _item(file, found.ids[0])
    if found.kind == "group":
        stories = [_group(file, key) for key in found.keys]
        return stories[0] if len(stories) == 1 else {"kind": "groups", "groups": stories}
    return {"kind": "sweep", "sweep": reference("s", found.ids[0])}


def _item(file: LedgerFile, item_id: UUID) -> dict[str, Any]:
    row = _dicts(file, "explain.item", item=item_id)[0]
    key = {"group": row["group_id"]}
    text = row["text"]
    scores = _dicts(file, "explain.scores", query_hash=row["query_hash"], text_hash=row["text_hash"])
    for score in scores:
        start, end = score["excerpt_start"], score["excerpt_end"]
        score["excerpt"] = None if score["error"] or text is None else text[start:end]
    history = _dicts(file, "explain.verdicts", seq=row["seq"])
    for verdict in history:
        start, end = verdict["excerpt_start"], verdict["excerpt_end"]
        verdict["excerpt"] = None if start is None or text is None else text[start:end]
    current = [verdict for verdict in history if verdict["sweep_id"] == row["judged_sweep"]]
    earlier = [verdict for verdict in history if verdict["sweep_id"] != row["judged_sweep"]]
    twins = _dicts(file, "explain.twins", **key, text_hash=row["text_hash"], seq=row["seq"])
    summaries = [_summary(summary) for summary in _dicts(file, "explain.summaries_of_group", **key)]
    shown = next((summary for summary in summaries if summary["current"]), None)
    return _plain(
        {
            "kind": "item",
            "item": reference("i", item_id),
            "item_id": item_id,
            "origin": {
                "namespace": row["namespace"],
                "run": row["run_id"],
                "step": row["step"],
                "kind": row["kind"],
                "agent": row["agent"],
                "created_at": row["created_at"],
                "source": row["source"] or "recorded by a hook",
                "ingested_at": row["ingested_at"],
                "meta": json.loads(row["meta"]) if row["meta"] else {},
                "flags": row["flags"] or [],
                "priority": row["priority"],
                "deadline": row["deadline"],
            },
            "text": text,
            "text_pruned": text is None,
            "chars": row["chars"],
            "group": {
                "group": reference("g", row["group_id"]),
                "name": row["name"],
                "policy": row["policy"],
                "query": row["query"],
                "items": row["items"],
            },
            "state": _state(row, bool(current)),
            "verdict": current[0] if current else None,
            "earlier_verdicts": earlier,
            "scores": scores,
            "same_text": [{**twin, "item": reference("i", twin["item_id"])} for twin in twins],
            "summary": None if shown is None else _cited(shown, item_id),
        }
    )


def _state(row: Mapping[str, Any], judged: bool) -> str:
    if row["query_hash"] is None:
        return "no query: it stays unjudged until it comes with one"
    if judged and row["last_seq"] <= row["judged_seq"]:
        return "judged"
    if judged:
        return "judged, and its group is due again"
    return "waits for a sweep"


def _cited(summary: Mapping[str, Any], item_id: UUID) -> dict[str, Any]:
    """What the summary made of an item: the points that cite it."""
    points = [point for point in summary["points"] if str(item_id) in point["items"]]
    return {
        "status": summary["status"],
        "stale": summary["stale"],
        "reason": summary["reason"],
        "model_key": summary["model_key"],
        "points": points,
        "cited": bool(points),
    }


def _group(file: LedgerFile, key: GroupKey) -> dict[str, Any]:
    _, group_id = key
    parameters = {"group": group_id}
    row = _dicts(file, "explain.group", **parameters)[0]
    judgements = _dicts(file, "explain.judgements", **parameters)
    summaries = [_summary(summary) for summary in _dicts(file, "explain.summaries_of_group", **parameters)]
    state = {**row, "query_hash": row["query"]}
    return _plain(
        {
            "kind": "group",
            "group": reference("g", group_id),
            **row,
            "state": _state(state, row["judged_sweep"] is not None),
            "sources": _dicts(file, "explain.sources", **parameters),
            "judgements": judgements,
            "summaries": [summary for summary in summaries if summary["current"]],
            "earlier_summaries": [summary for summary in summaries if not summary["current"]],
        }
    )


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    output = row["output"]
    return {
        **row,
        "points": json.loads(row["points"]),
        "output": None if output is None else json.loads(output),
    }


def _dicts(file: LedgerFile, statement: str, **parameters: Any) -> list[dict[str, Any]]:
    names, rows = file.named_rows(sql(statement), parameters)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values: ids and times as text; of a sweep's id its reference too."""
    plain = {str(key): _value(inner) for key, inner in value.items()}
    if isinstance(value.get("sweep_id"), UUID):
        plain["sweep"] = reference("s", value["sweep_id"])
    return plain


def _value(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, list | tuple):
        return [_value(inner) for inner in value]
    return value
