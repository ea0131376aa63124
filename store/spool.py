"""The spool: how items travel from agents to the ledger as files. Standard library only.

This is its public face. `spool_format` has the bytes, `spool_writer`, `spool_reader` and `spool_adopt` the
three things done with them, `spool_rolling` writes one segment after another, `spool_items` has what a
record says.
"""

from .spool_adopt import adopt_orphans, open_segments, sealed_segments
from .spool_format import Counts, Header
from .spool_items import clean, close_record, item_of, item_record
from .spool_reader import Bad, Segment, read_segment
from .spool_rolling import RollingWriter
from .spool_writer import SegmentWriter

__all__ = [
    "Bad",
    "Counts",
    "Header",
    "RollingWriter",
    "Segment",
    "SegmentWriter",
    "adopt_orphans",
    "clean",
    "close_record",
    "item_of",
    "item_record",
    "open_segments",
    "read_segment",
    "sealed_segments",
]
