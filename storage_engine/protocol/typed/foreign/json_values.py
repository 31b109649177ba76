"""JSON objects as columns, piece by piece, with the number of one that does not fit."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from storage_engine.protocol.records.arrow_binary import as_column
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.json_parser import LARGE_BYTES, JsonReader
from storage_engine.protocol.typed.arrays.json_source import UnreadableJsonError
from storage_engine.protocol.typed.foreign.limits import MAX_CELLS, too_many_cells
from storage_engine.protocol.typed.nested_arrays import first_bad
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError, shown

PIECE_BYTES = LARGE_BYTES
"""The text that is parsed at once: what it costs in memory is up to 200 times as much."""


def json_columns(
    reader: JsonReader,
    values: pa.Array,
    numbers: Ints,
    fault: Callable[[bytes], tuple[str, str]],
) -> list[pa.Array]:
    """Return the columns of one or more JSON objects; RowsDoNotFitError with the record's number,
    of which `numbers` has one for each object. `fault` explains a single one that can't be read."""
    if reader.cells(values) > MAX_CELLS:
        raise too_many_cells()
    pieces = []
    for start, stop in _pieces(values):
        piece = values.slice(start, stop - start)
        try:
            pieces.append(reader.columns(piece))
        except UnreadableJsonError as error:
            row = start + first_bad(
                stop - start,
                lambda low, high: reader.columns(piece.slice(low, high - low)),  # noqa: B023
            )
            column, reason = fault(values[row].as_py())
            raise RowsDoNotFitError(
                f"record {int(numbers[row])} is not stored: {reason or shown(str(error))}",
                column=column,
                row=int(numbers[row]),
            ) from None
    return [pa.concat_arrays(parts) for parts in zip(*pieces, strict=True)]


def _pieces(values: pa.Array) -> list[tuple[int, int]]:
    ends = np.cumsum(as_column(values, "the values").lengths)
    pieces = []
    start, done = 0, 0
    while start < len(values):
        stop = max(start + 1, int(np.searchsorted(ends, done + PIECE_BYTES, side="right")))
        pieces.append((start, stop))
        start, done = stop, int(ends[stop - 1])
    return pieces
