"""Makes rows of fetched batches of records in Avro, with the columns of the query, in its order.

Tombstones are left out unless `_deleted` is read. A record that can't be decoded is an error, or a
row with `_error` and null columns, as `mode` says; such a row is not asked the condition on rows.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from connector.avro_types import is_record
from connector.errors import ConnectorError
from connector.options.avro_options import OnDamage
from connector.source.arrow_batches import arrow_batches_of_several
from connector.source.avro.avro_read import AvroRead
from connector.source.avro.record_decoder import DecodedRows, RecordDecoder
from connector.source.offset_range import OffsetRange
from connector.source.typed.typed_decoding import arrow_schema
from connector.typed_columns import (
    DELETED,
    ERROR,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
)
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.record_decoder import (
    DecodedLogs,
    Decoding,
    LogPiece,
    iter_decoded_logs,
)
from storage_engine.protocol.records.varints import Mask
from storage_engine.protocol.typed.arrays.row_filter import matching_rows
from storage_engine.protocol.typed.nested_arrays import binary_values, boolean_array, null_mask

GROUP_BYTES = 4 << 20
"""The bytes of records in one pass: each pass has a cost for each column."""

_ORIGINS = {TOPIC: "topic", PARTITION: "partition", OFFSET: "offset"}
_RECORD = {**_ORIGINS, TIMESTAMP: "timestamp", HEADERS: "headers"}
"""The columns of records under the names that they have here."""

MAX_REASON = 1_000
"""The most characters of an `_error`."""


class AvroDecoding:
    """The columns of a query; see `RangeDecoding`."""

    def __init__(self, read: AvroRead) -> None:
        self._read = read
        self._schema = arrow_schema(read.rows)
        self._comparisons = read.rows.comparisons("", read.version)
        wanted = {each.column for each in read.rows.columns}
        self._reads_tombstones = DELETED in wanted
        fields = {each.column for each in read.rows.topic_columns} | {
            read.version.by_id[each.column_id].name for each in self._comparisons
        }
        self._values = RecordDecoder(read.registry, read.value, fields)
        self._keys = (
            None
            if read.key is None or KEY not in wanted
            else RecordDecoder(read.registry, read.key, None)
        )
        self._meta = tuple(
            name for column, name in _RECORD.items() if column in wanted or column in _ORIGINS
        )
        self._included: Decoding = {
            "include_keys": bool({KEY, RAW_KEY} & wanted),
            "include_headers": HEADERS in wanted,
            "group_bytes": GROUP_BYTES,
        }

    def wanted(self, ranges: Iterable[OffsetRange]) -> None:
        """See `RangeDecoding`."""

    def together(
        self, fetches: Iterable[FetchedBatches], ends: Mapping[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        """See `RangeDecoding`."""
        pieces = (
            LogPiece(each.tp, piece, each.start_offset, ends[each.tp])
            for each in fetches
            for piece in each.committed()
        )
        for decoded in iter_decoded_logs(pieces, **self._included):
            yield from self._rows(decoded)

    def alone(
        self, fetches: Iterable[FetchedBatches], wanted: OffsetRange
    ) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
        """See `RangeDecoding`."""
        tp = wanted.topic_partition
        pieces = (
            LogPiece(tp, piece, wanted.start_offset, wanted.end_offset)
            for each in fetches
            for piece in each.committed()
        )
        for decoded in iter_decoded_logs(pieces, **self._included):
            yield self._rows(decoded), decoded.records.offsets[-1].as_py() + 1

    def _rows(self, decoded: DecodedLogs[TopicPartition]) -> Iterator[pa.RecordBatch]:
        records = decoded.records
        first = 0
        for meta in arrow_batches_of_several(decoded, columns=self._meta):
            values = records.values.slice(first, meta.num_rows)
            keys = None if records.keys is None else records.keys.slice(first, meta.num_rows)
            first += meta.num_rows
            rows = self._piece(meta, values, keys)
            if rows.num_rows:
                yield rows

    def _piece(
        self, meta: pa.RecordBatch, values: pa.Array, keys: pa.Array | None
    ) -> pa.RecordBatch:
        found = self._values.decode(values)
        errors = {row: f"value: {reason}" for row, reason in found.errors.items()}
        key: pa.Array = keys
        if self._keys is not None:
            decoded_keys = self._keys.decode(keys)
            key = _whole(decoded_keys, self._read)
            errors |= {row: f"key: {reason}" for row, reason in decoded_keys.errors.items()}
        if errors and self._read.mode is OnDamage.FAILFAST:
            raise _bad_record(meta, errors)
        deleted = null_mask(values)
        kept = self._kept(found, deleted, errors)
        columns = {
            **{name: meta.column(place) for name, place in self._places(meta).items()},
            KEY: key,
            RAW_KEY: keys,
            RAW_VALUE: values,
            ERROR: _reasons(errors, len(values)),
            DELETED: boolean_array(deleted),
        }
        by_name = {name: place for place, name in enumerate(found.batch.schema.names)}
        arrays = []
        for each, field in zip(self._read.rows.columns, self._schema, strict=True):
            array = (
                columns[each.column]
                if each.type is None
                else found.batch.column(by_name[each.column])
            )
            arrays.append(_conformed(array, field.type))
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return rows if kept is None else kernel("filter", rows, boolean_array(kept))

    def _places(self, meta: pa.RecordBatch) -> dict[str, int]:
        return {
            column: meta.schema.get_field_index(name)
            for column, name in _RECORD.items()
            if name in self._meta
        }

    def _kept(self, found: DecodedRows, deleted: Mask, errors: Mapping[int, str]) -> Mask | None:
        """Which rows are wanted; None: all."""
        kept = np.ones(len(deleted), np.bool_)
        for each in self._comparisons:
            column = self._read.version.by_id[each.column_id]
            kept &= matching_rows(found.batch.column(column.name), column.type, each)
        if errors:
            kept[list(errors)] = True
        if not self._reads_tombstones:
            kept &= ~deleted
        return None if kept.all() else kept


def _whole(keys: DecodedRows, read: AvroRead) -> pa.Array:
    """Decoded keys as one column. A null key is null as a whole, and so is a damaged one."""
    assert read.key is not None
    batch = keys.batch
    if not is_record(read.key.text.parsed()):
        return batch.column(0)
    return pa.StructArray.from_arrays(
        batch.columns, fields=list(batch.schema), mask=boolean_array(keys.absent)
    )


def _bad_record(meta: pa.RecordBatch, errors: Mapping[int, str]) -> ConnectorError:
    row = min(errors)
    topic, partition, offset = (
        meta.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return ConnectorError(
        "BAD_RECORD",
        f"the record of {topic}-{partition} at offset {offset} can't be decoded: "
        f"{errors[row][:MAX_REASON]}; mode=permissive reads such records as nulls with their "
        "reason in _error, mode=dead-letter also with their bytes",
    )


def _reasons(errors: Mapping[int, str], count: int) -> pa.Array:
    if not errors:
        return pa.nulls(count, pa.string())
    texts = [errors.get(row, "")[:MAX_REASON].encode() for row in range(count)]
    valid = np.zeros(count, np.bool_)
    valid[list(errors)] = True
    _, offsets, data = binary_values(texts).buffers()
    packed = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [packed, offsets, data])


def _conformed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type.equals(kind, check_metadata=True) else as_type(array, kind)
