"""The fields of records, a column each, from known places of the records.

Every position and every length is checked against its record's end before it is used.

Source: the record format of the Kafka protocol (drawn in record_encoder.py).
"""

from typing import NamedTuple

import numpy as np

from storage_engine.protocol.records.arrow_binary import NULL_LENGTH
from storage_engine.protocol.records.record_chain import RecordSpans
from storage_engine.protocol.records.varints import (
    VARINT_BYTES,
    VARLONG_BYTES,
    Bytes,
    DamagedVarintError,
    Ints,
    read_column,
)


class DamagedRecordError(ValueError):
    """Record `row` is damaged."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


class RecordFields(NamedTuple):
    """One column per field; positions are into the source."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    header_counts: Ints
    header_starts: Ints
    stops: Ints


def read_fields(source: Bytes, spans: RecordSpans) -> RecordFields:
    """Return the fields of all records; DamagedRecordError for one whose fields don't fill it
    exactly."""
    stops = spans.stops
    after_attributes = spans.bodies + 1
    timestamp_deltas, at = _read_numbers(
        source, after_attributes, stops, "timestamp delta", VARLONG_BYTES
    )
    offset_deltas, at = _read_numbers(source, at, stops, "offset delta")
    key_lengths, key_starts = _read_lengths(source, at, stops, "key")
    at = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts = _read_lengths(source, at, stops, "value")
    at = value_starts + np.maximum(value_lengths, 0)
    header_counts, header_starts = _read_numbers(source, at, stops, "header count")
    bad = (header_counts < 0) | ((header_counts == 0) & (header_starts != stops))
    if np.count_nonzero(bad):
        row = int(np.argmax(bad))
        raise DamagedRecordError(
            row,
            f"its header count is {int(header_counts[row])},"
            f" {int(stops[row] - header_starts[row])} bytes come after",
        )
    return RecordFields(
        timestamp_deltas=timestamp_deltas,
        offset_deltas=offset_deltas,
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=value_starts,
        value_lengths=value_lengths,
        header_counts=header_counts,
        header_starts=header_starts,
        stops=stops,
    )


def _read_numbers(
    source: Bytes, positions: Ints, stops: Ints, name: str, max_bytes: int = VARINT_BYTES
) -> tuple[Ints, Ints]:
    try:
        return read_column(source, positions, stops, max_bytes=max_bytes)
    except DamagedVarintError as error:
        raise DamagedRecordError(error.index, f"its {name} is cut off or too long") from None


def _read_lengths(source: Bytes, positions: Ints, stops: Ints, name: str) -> tuple[Ints, Ints]:
    lengths, starts = _read_numbers(source, positions, stops, f"{name} length")
    bad = (lengths < NULL_LENGTH) | (lengths > stops - starts)
    if np.count_nonzero(bad):
        row = int(np.argmax(bad))
        raise DamagedRecordError(
            row,
            f"its {name} length is {int(lengths[row])}, {int(stops[row] - starts[row])} bytes are"
            " left",
        )
    return lengths, starts


def check_offset_deltas(deltas: Ints, last_deltas: Ints, counts: Ints) -> None:
    """Check that deltas ascend within each batch, from at least 0 to at most the batch's last.
    `counts`: of the records of each batch. DamagedRecordError."""
    bad = (deltas < 0) | (deltas > last_deltas)
    descends = deltas[1:] <= deltas[:-1]
    descends[np.cumsum(counts)[:-1] - 1] = False
    bad[1:] |= descends
    if np.count_nonzero(bad):
        row = int(np.argmax(bad))
        raise DamagedRecordError(row, f"its offset delta {int(deltas[row])} is out of order")
