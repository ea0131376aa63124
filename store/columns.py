"""Python values into Arrow columns and back: UUIDs, timestamps, JSON.

UUIDs travel as Arrow's `uuid` extension over 16 bytes, which DuckDB takes and gives as its UUID type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow as pa


# One encoder for all: json.dumps with arguments makes a new one each time.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode


def uuids(values: Iterable[UUID | None]) -> pa.Array:
    """A UUID column."""
    import pyarrow as pa

    storage = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def uuid_bytes(values: Iterable[bytes | None]) -> pa.Array:
    """A UUID column of 16 bytes each."""
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(list(values), pa.binary(16)))


def uuid_values(column: pa.ChunkedArray) -> list[UUID]:
    """The UUIDs of a column without nulls; equal ones as one object: a query's hash comes with each text."""
    known: dict[bytes, UUID] = {}
    found: list[UUID] = []
    for chunk in column.chunks:
        at = 16 * chunk.storage.offset
        raw = chunk.storage.buffers()[1].to_pybytes()[at : at + 16 * len(chunk)]
        for start in range(0, len(raw), 16):
            value = raw[start : start + 16]
            found.append(known.get(value) or known.setdefault(value, UUID(bytes=value)))
    return found


def times(values: Iterable[Any]) -> pa.Array:
    """A TIMESTAMPTZ column of aware datetimes."""
    import pyarrow as pa

    return pa.array(list(values), pa.timestamp("us", "UTC"))


def column(values: Iterable[Any], kind: str) -> pa.Array:
    """A column of `kind`: "string", "int32", "int64", "float32", "float64", "bool", "strings", "binary"."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "strings": pa.list_(pa.string()),
        "binary": pa.binary(),
    }
    return pa.array(list(values), types[kind])


def table(columns: Mapping[str, pa.Array]) -> pa.Table:
    """An Arrow table of named columns."""
    import pyarrow as pa

    return pa.table(dict(columns))


def keys_table(keys: Sequence[tuple[str, UUID]]) -> pa.Table:
    """(namespace, group_id) rows."""
    return table(
        {
            "namespace": column((namespace for namespace, _ in keys), "string"),
            "group_id": uuids(group_id for _, group_id in keys),
        }
    )


def float32(value: float | None) -> float | None:
    """A float that can be stored: NaN and infinities become None (an error where a score was meant)."""
    return value if value is not None and math.isfinite(value) else None


def to_json(value: Any) -> str:
    """Compact JSON that DuckDB's JSON type takes: never NaN, keys in their order."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
