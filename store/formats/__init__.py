"""Files of others as items: JSONL, JSON, CSV, Parquet, chat logs, traces, trajectories, evaluation logs.

A file's container (lines, one document, a table, a zip) is told by its first bytes and its name; what a
document means (our record, a conversation, an OTLP export, ...) by its keys, document by document.
"""

from .mapping import FieldMap
from .reading import FORMATS, Options, read
from .records import Bad, Record, Skipped

__all__ = ["FORMATS", "Bad", "FieldMap", "Options", "Record", "Skipped", "read"]
