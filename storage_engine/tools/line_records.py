"""Turns lines of text into keys and values as Arrow arrays, and back. No Python runs per line.

A line ends with "\\n", which is not part of the record; all other bytes pass as they are.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.tools.errors import CommandError

_NEWLINE = 10


class LineSplitter:
    """Cuts a stream of bytes into lines; remembers the start of a line that has not ended."""

    def __init__(self, *, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self.lines_so_far = 0

    def feed(self, chunk: bytes) -> "pa.BinaryArray | None":
        """The lines that end within `chunk`; None when there is none."""
        last = chunk.rfind(b"\n")
        if last < 0:
            self._keep(chunk)
            return None
        whole = b"".join((*self._rest, chunk[: last + 1]))
        self._rest = []
        self._rest_bytes = 0
        self._keep(chunk[last + 1 :])
        return self._split(whole)

    def finish(self) -> "pa.BinaryArray | None":
        """The last line, when the stream did not end with a newline."""
        rest = b"".join(self._rest)
        self._rest = []
        self._rest_bytes = 0
        return self._split(rest + b"\n") if rest else None

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._rest.append(part)
        self._rest_bytes += len(part)
        if self._rest_bytes > self._max_line_bytes:
            raise CommandError(
                f"line {self.lines_so_far + 1} of the input is longer than "
                f"{self._max_line_bytes} bytes, which is too large for a record"
            )

    def _split(self, data: bytes) -> "pa.BinaryArray":
        lines = split_lines(data)
        self.lines_so_far += len(lines)
        return lines


def split_lines(data: bytes) -> "pa.BinaryArray":
    """The lines of `data`, which ends with a newline (less than 2 GiB)."""
    characters = np.frombuffer(data, dtype=np.uint8)
    is_end = characters == _NEWLINE
    ends = np.flatnonzero(is_end)
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    # Each line loses its newline, and with it every line before it.
    offsets[1:] = ends - np.arange(len(ends))
    text = characters[~is_end]
    return pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )


def split_keys(
    lines: "pa.BinaryArray", separator: bytes
) -> tuple["pa.BinaryArray", "pa.BinaryArray"]:
    """Keys and values: what stands before and after the first separator of each line.

    They end before the first line without a separator.
    """
    parts = pc.split_pattern(lines, separator, max_splits=1)
    lonely: int = pc.index(pc.not_equal(pc.list_value_length(parts), 2), True).as_py()
    flat = (parts if lonely < 0 else parts.slice(0, lonely)).flatten()
    evens = np.arange(0, len(flat), 2)
    return flat.take(pa.array(evens)), flat.take(pa.array(evens + 1))


def join_lines(values: pa.Array) -> bytes:
    """The values one per line; a null value is an empty line."""
    lines = pc.binary_join_element_wise(pc.fill_null(values, b""), pa.scalar(b"\n"), b"")
    if len(lines) == 0:
        return b""
    # The elements lie one after the other, so that their bytes are one piece.
    _, offsets_buffer, data = lines.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[lines.offset :]
    start, end = int(offsets[0]), int(offsets[len(lines)])
    joined: bytes = data.slice(start, end - start).to_pybytes()
    return joined
