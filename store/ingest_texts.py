"""A batch's texts, each once, as they lie in an Arrow column: one buffer that grows, copied no more."""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import TYPE_CHECKING

from .columns import column, table, uuid_bytes

if TYPE_CHECKING:
    import pyarrow as pa


class Texts:
    """UTF-8 texts by hash (16 bytes), in order of arrival. A string column holds up to 2 GB."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._content = bytearray()
        self._ends = array("i", [0])
        self._chars = array("i")

    def __len__(self) -> int:
        return len(self._places)

    def add(self, digest: bytes, content: bytes, chars: int) -> None:
        """Take a text, if it is not there; `content` is right UTF-8. Not after its table was asked for."""
        if digest in self._places:
            return
        self._places[digest] = len(self._places)
        self._content += content
        self._ends.append(len(self._content))
        self._chars.append(chars)

    def get(self, digest: bytes) -> str:
        """A text that is there."""
        place = self._places[digest]
        return self._content[self._ends[place] : self._ends[place + 1]].decode()

    @cached_property
    def table(self) -> pa.Table:
        """All of them: `text_hash`, `text`, `chars`."""
        import pyarrow as pa

        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._content)]
        return table(
            {
                "text_hash": uuid_bytes(self._places),
                "text": pa.Array.from_buffers(pa.string(), len(self), buffers, null_count=0),
                "chars": column(self._chars, "int32"),
            }
        )

    def some(self, wanted: set[bytes]) -> pa.Table:
        """These of them."""
        if len(wanted) == len(self):
            return self.table
        return self.table.filter(column((digest in wanted for digest in self._places), "bool"))
