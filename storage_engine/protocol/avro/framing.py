"""Cuts Confluent's framing off, in columns.

| framing | at | bytes | |
|---|--:|--:|---|
| magic | 0 | 1 | 0 |
| schema id | 1 | 4 | big endian: the id that the registry gave the writer's schema |
| body | 5 | | the record in Avro |
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.protocol.avro.record_bytes import Bodies
from storage_engine.protocol.records.arrow_binary import (
    as_column,
    binary_array,
    binary_scalar,
    gather,
    join,
)
from storage_engine.protocol.records.varints import Ints, Mask

MAGIC = 0
FRAMING_BYTES = 5


@dataclass(frozen=True, slots=True)
class Framed:
    """Records, taken apart. Rows that are null have neither an id nor an error."""

    ids: Ints
    """The schema id of each row; -1 where it has none."""

    errors: dict[int, str]
    """Why rows are not framed; the first is among them where there is one."""

    data: pa.Buffer
    starts: Ints
    lengths: Ints

    @property
    def different_ids(self) -> list[int]:
        """The ids that rows have."""
        ids = self.ids
        if len(ids) and ids[0] >= 0 and (ids == ids[0]).all():
            return [int(ids[0])]
        return [each for each in np.unique(ids).tolist() if each >= 0]

    @property
    def every_body(self) -> Bodies:
        """The bodies of all rows, where none is an error or null."""
        data = np.frombuffer(self.data, np.uint8)
        return Bodies(data, self.starts + FRAMING_BYTES, self.starts + self.lengths)

    def bodies(self, rows: Ints) -> pa.Array:
        """The bodies of some rows, ascending, as a pa.BinaryArray."""
        return gather(
            self.data, self.starts[rows] + FRAMING_BYTES, self.lengths[rows] - FRAMING_BYTES
        )


def cut(values: pa.Array, *, most_errors: int | None = None) -> Framed:
    """Takes a pa.BinaryArray of records apart. `most_errors`: so many of each kind are told."""
    column = as_column(values, "a value")
    starts: Ints = column.offsets[:-1].astype(np.int64)
    source = np.frombuffer(column.data, np.uint8)
    present: Mask = column.lengths >= 0
    long_enough: Mask = column.lengths >= FRAMING_BYTES
    errors = {
        int(row): f"it has {column.lengths[row]} bytes, and the framing alone has {FRAMING_BYTES}"
        for row in np.flatnonzero(present & ~long_enough)[:most_errors]
    }
    rows = np.flatnonzero(long_enough)
    first = starts[rows]
    magic = source[first] if len(rows) else np.zeros(0, np.uint8)
    for place in np.flatnonzero(magic != MAGIC)[:most_errors]:
        errors[int(rows[place])] = (
            f"it begins with the byte {magic[place]}, and with {MAGIC} in Confluent's framing: it "
            "was not written by a serializer of a schema registry"
        )
    whole = rows[magic == MAGIC]
    ids = np.full(len(values), -1, np.int64)
    ids[whole] = _numbers(source, starts[whole] + 1)
    for row in whole[ids[whole] < 0][:most_errors]:
        errors[int(row)] = f"its schema id is {ids[row]}, and registries give none below 0"
    ids[ids < 0] = -1
    return Framed(ids=ids, errors=errors, data=column.data, starts=starts, lengths=column.lengths)


def framed(schema_id: int, bodies: pa.Array) -> pa.Array:
    """Bodies with the framing in front, as a pa.BinaryArray."""
    head = bytes([MAGIC]) + schema_id.to_bytes(4, "big", signed=True)
    if not len(bodies):
        return binary_array(np.zeros(1, np.int32), pa.py_buffer(b""))
    return join(binary_scalar(head), bodies)


def _numbers(source: npt.NDArray[np.uint8], places: Ints) -> Ints:
    """The signed numbers of four bytes, big endian, at these places."""
    every = np.ndarray((max(len(source) - 3, 0),), "V4", source.data, strides=(1,))
    return every[places].view(">i4").astype(np.int64)
