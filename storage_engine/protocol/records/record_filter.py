"""Removes records from record batches, for compaction, and puts their records into another batch,
for another log.

Remaining records are copied byte for byte. Offsets in a batch count from its base offset, which
never changes, so that records are left out by leaving out their bytes; a batch that loses none is
not changed at all.

    header field             of a batch that lost records
    base_offset              as it was
    last_offset_delta        as it was, so that sequences and the next offset stay right
    records_count            what is left, 0 possible
    max_timestamp            of what is left; as it was when nothing is, or it is the append time
    base_timestamp           the delete horizon when attribute bit 6 says so, with all deltas moved
    codec, producer, epochs  as they were

Source: the record format of the Kafka protocol (drawn in record_encoder.py); KIP-534.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.arrow_binary import gather, join, varint_rows
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from storage_engine.protocol.records.control_record import DELETE_HORIZON_BIT
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TYPED_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    seal,
)
from storage_engine.protocol.records.record_chain import (
    LEAST_RECORD_BYTES,
    BrokenChainError,
    RecordRegions,
    find_records,
)
from storage_engine.protocol.records.record_fields import (
    DamagedRecordError,
    RecordFields,
    check_offset_deltas,
    read_fields,
)
from storage_engine.protocol.records.sections import corrupt_batch
from storage_engine.protocol.records.varints import (
    VARLONG_BYTES,
    Ints,
    Mask,
    Number,
    constant_column,
    read_column,
    zigzag_column,
)

_ATTRIBUTES = constant_column(0)


class StoredBatch(NamedTuple):
    """A batch as it is stored in the log."""

    header: BatchHeader
    data: memoryview
    records: BytesLike = b""
    """The records, decompressed; see `decompressed`."""

    @property
    def has_records(self) -> bool:
        """Return True when it has records of producers."""
        return self.header.records_count > 0 and not self.header.is_control

    def decompressed(self) -> "StoredBatch":
        """Return the batch with its records; CorruptRecordError when they are damaged or more than
        MAX_DECOMPRESSED_BYTES."""
        return self._replace(records=_decompressed(self))

    def holding(self, records: BytesLike) -> "StoredBatch":
        """Return the batch with records that are decompressed already; CorruptRecordError when they
        are too few."""
        _check_size(self.header, records)
        return self._replace(records=records)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The delete horizon; None when no pass has kept the batch's tombstones yet."""
        has_horizon = self.header.attributes & DELETE_HORIZON_BIT
        return self.header.base_timestamp if has_horizon else None


class BatchRows:
    """Some batches, whose rows are numbered across them."""

    def __init__(self, batches: Sequence[StoredBatch], counts: Ints) -> None:
        self.batches = batches
        self._counts = counts

    def per_record(self, per_batch: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return a column with a value per record from one with a value per batch."""
        return np.repeat(per_batch, self._counts)

    def per_batch(self, per_record: Mask) -> Ints:
        """Return the number of records of each batch for which the mask is true."""
        ends = np.cumsum(per_record, dtype=np.int64)[np.cumsum(self._counts) - 1]
        return np.diff(ends, prepend=0)

    def rewritten(self, kept: Mask, horizons: Sequence[int | None]) -> list[BytesLike | None]:
        """Return each batch with its `kept` records only; None for one that keeps none.

        `horizons` has the time for each batch that gets a delete horizon.
        """
        results: list[BytesLike | None] = []
        end = 0
        for number, batch in enumerate(self.batches):
            begin, end = end, end + int(self._counts[number])
            rows, horizon = np.flatnonzero(kept[begin:end]), horizons[number]
            if not len(rows):
                results.append(None)
            elif len(rows) == batch.header.records_count and horizon is None:
                results.append(batch.data)
            else:
                results.append(self._rewrite(number, begin, rows, horizon))
        return results

    def _rewrite(self, number: int, begin: int, rows: Ints, horizon: int | None) -> BytesLike:
        """Return a batch, whose first row is `begin`, with these of its rows."""
        raise NotImplementedError


class OpenBatches(BatchRows):
    """Some decompressed batches, with a column per property and a row per record."""

    unreadable: Mapping[int, str] = MappingProxyType({})
    """Always empty: leaders refuse batches of records that can't be decoded for compaction."""

    def __init__(self, batches: Sequence[StoredBatch]) -> None:
        """All of the batches have records. CorruptRecordError names the offset of a batch whose
        records don't fit its header.
        """
        self._source, regions = _lay_out(batches)
        super().__init__(batches, regions.counts)
        self._bytes = np.frombuffer(self._source, np.uint8)
        try:
            self._spans = find_records(self._bytes, regions)
            self._fields: RecordFields = read_fields(self._bytes, self._spans)
            last = self.per_record(self._of_headers("last_offset_delta"))
            check_offset_deltas(self._fields.offset_deltas, last, self._counts)
        except BrokenChainError as error:
            raise corrupt_batch(batches[error.region].header, error.reason) from None
        except DamagedRecordError as error:
            region = int(np.searchsorted(np.cumsum(self._counts), error.row, side="right"))
            raise corrupt_batch(batches[region].header, error.reason) from None
        self._starts = np.empty_like(self._spans.stops)
        self._starts[1:] = self._spans.stops[:-1]
        self._starts[np.cumsum(self._counts) - self._counts] = regions.starts

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._starts)

    @property
    def has_key(self) -> Mask:
        return self._fields.key_lengths >= 0

    @property
    def is_tombstone(self) -> Mask:
        return (self._fields.value_lengths < 0) & self.has_key

    @property
    def offsets(self) -> Ints:
        bases: Ints = self.per_record(self._of_headers("base_offset"))
        return bases + self._fields.offset_deltas

    @property
    def timestamps_ms(self) -> Ints:
        """Return the timestamps that readers get."""
        bases: Ints = self.per_record(self._of_headers("base_timestamp"))
        created = bases + self._fields.timestamp_deltas
        appended = self.per_record(self._of_headers("timestamp_type")) == 1
        if not appended.any():
            return created
        return np.where(appended, self.per_record(self._of_headers("max_timestamp")), created)

    @property
    def sizes(self) -> Ints:
        """Return the size of each record in bytes."""
        sizes: Ints = self._spans.stops - self._starts
        return sizes

    def renumbered(self, rows: Ints) -> BytesLike:
        """Return these records for another batch: offset deltas count from 0, time deltas from the
        time of the first record. Key, value and headers are copied byte for byte."""
        times = self.timestamps_ms[rows]
        stops = self._spans.stops[rows]
        # The attributes byte is skipped, then both deltas.
        _, at = read_column(
            self._bytes, self._spans.bodies[rows] + 1, stops, max_bytes=VARLONG_BYTES
        )
        _, rests = read_column(self._bytes, at, stops)
        time, offset = zigzag_column(times - times[0]), zigzag_column(np.arange(len(rows)))
        sizes = 1 + time.sizes + offset.sizes + (stops - rests)
        prefix = varint_rows(
            zigzag_column(sizes), _ATTRIBUTES, time, offset, rooms=np.zeros(len(rows), np.int64)
        )
        return _bytes_of(join(prefix, gather(pa.py_buffer(self._source), rests, stops - rests)))

    def key_arrays(self) -> tuple[pa.Array]:
        """Return all keys as one pa.BinaryArray; a record without a key has null."""
        keys = gather(pa.py_buffer(self._source), self._fields.key_starts, self._fields.key_lengths)
        return (keys if pa.types.is_binary(keys.type) else keys.cast(pa.binary()),)

    def _rewrite(self, number: int, begin: int, rows: Ints, horizon: int | None) -> BytesLike:
        header, rows = self.batches[number].header, begin + rows
        deltas = self._fields.timestamp_deltas[rows]
        if header.timestamp_type == 0:
            largest = header.base_timestamp + int(deltas.max())
            header = header._replace(max_timestamp=largest)
        if horizon is None:
            records = self._copied(rows)
        else:
            records = self._with_base_timestamp(rows, deltas + (header.base_timestamp - horizon))
            header = header._replace(
                base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON_BIT
            )
        return sealed(header, records, len(rows))

    def _copied(self, rows: Ints) -> BytesLike:
        """Return the bytes of these records, in one piece."""
        starts = self._starts[rows]
        return _bytes_of(
            gather(pa.py_buffer(self._source), starts, self._spans.stops[rows] - starts)
        )

    def _with_base_timestamp(self, rows: Ints, deltas: Ints) -> BytesLike:
        """Return the same records with other timestamp deltas."""
        stops = self._spans.stops[rows]
        # The attributes byte is skipped, then the old delta.
        _, rests = read_column(
            self._bytes, self._spans.bodies[rows] + 1, stops, max_bytes=VARLONG_BYTES
        )
        column = zigzag_column(deltas)
        sizes = 1 + column.sizes + (stops - rests)
        prefix = varint_rows(
            zigzag_column(sizes), _ATTRIBUTES, column, rooms=np.zeros(len(rows), np.int64)
        )
        return _bytes_of(join(prefix, gather(pa.py_buffer(self._source), rests, stops - rests)))

    def _of_headers(self, name: str) -> Ints:
        return np.array([getattr(batch.header, name) for batch in self.batches], np.int64)


def emptied(header: BatchHeader) -> BytesLike:
    """Return the batch without records: it still carries its producer's epoch and sequence."""
    attributes = header.attributes & ~(CODEC_MASK | TYPED_BIT)
    return sealed(header._replace(attributes=attributes), b"", 0)


def sealed(header: BatchHeader, records: BytesLike, count: int) -> bytearray:
    """Return a batch of uncompressed records, with the codec of `header` unless that makes it
    larger."""
    codec = Codec(header.compression)
    if codec is not Codec.NONE:
        compressed = compress(codec, records)
        if len(compressed) < len(records):
            records = compressed
        else:
            header = header._replace(attributes=header.attributes & ~CODEC_MASK)
    batch = bytearray(HEADER_BYTES)
    batch += records
    header = header._replace(length=len(batch) - LENGTH_END, crc=0, records_count=count)
    seal(batch, 0, header)
    return batch


def _lay_out(batches: Sequence[StoredBatch]) -> tuple[BytesLike, RecordRegions]:
    parts = [batch.records for batch in batches]
    sizes = np.array([len(part) for part in parts], np.int64)
    counts = np.array([batch.header.records_count for batch in batches], np.int64)
    stops = np.cumsum(sizes)
    source = parts[0] if len(parts) == 1 else b"".join(parts)
    return source, RecordRegions(stops - sizes, stops, counts)


def _decompressed(batch: StoredBatch) -> BytesLike:
    header = batch.header
    if header.magic != MAGIC or not 0 < header.records_count <= header.last_offset_delta + 1:
        raise corrupt_batch(header, f"magic {header.magic}, {header.records_count} records")
    try:
        block = batch.data[HEADER_BYTES:]
        records = decompress(header.compression, block, max_bytes=MAX_DECOMPRESSED_BYTES)
    except CorruptRecordError as error:
        raise corrupt_batch(header, str(error)) from None
    _check_size(header, records)
    return records


def _check_size(header: BatchHeader, records: BytesLike) -> None:
    if len(records) < header.records_count * LEAST_RECORD_BYTES:
        raise corrupt_batch(header, f"{header.records_count} records in {len(records)} bytes")


def _bytes_of(array: pa.Array) -> BytesLike:
    """Return all bytes of a pa.BinaryArray that has no other user."""
    _, offsets, data = array.buffers()
    end = int(np.frombuffer(offsets, np.int32)[len(array)])
    return memoryview(data).cast("B")[:end]
