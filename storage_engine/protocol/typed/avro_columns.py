"""Avro records of clients that don't know typed topics, as a typed batch.

The values have Confluent's framing (`avro/framing.py`). Those of one schema id are decoded
together, by the schema that they were written in, whose fields become columns
(`arrays/avro_parser.py`). All else about a record is in `foreign/records_as_rows.py`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from uuid import UUID

import numpy as np
import pyarrow as pa

from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.avro.decode import UndecodableRecordError
from storage_engine.protocol.avro.framing import Framed, cut
from storage_engine.protocol.avro.record_bytes import Bodies
from storage_engine.protocol.avro.value_room import ValueRoom
from storage_engine.protocol.records.arrow_kernels import take
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.record_batch import BatchHeader, Codec
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.avro_parser import AvroParser
from storage_engine.protocol.typed.foreign.identity import Same
from storage_engine.protocol.typed.foreign.limits import MAX_CELLS, too_large, too_many_cells
from storage_engine.protocol.typed.foreign.records_as_rows import typed_from_records
from storage_engine.protocol.typed.nested_arrays import int_array
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError

MAX_IDS = 32
"""The most schema ids of one batch: each costs a look-up, and a pass of its own."""
_MAX_PARSERS = 256
"""The parsers that are kept: of so many writers' schemas, in all topics."""


class UnknownSchemaIdsError(RowsDoNotFitError):
    """The first record that does not fit is of a schema that is not known, perhaps only here and
    now: `schema_ids` are all such ids of the batch."""

    def __init__(self, message: str, row: int, schema_ids: frozenset[int]) -> None:
        super().__init__(message, row=row)
        self.schema_ids = schema_ids


def schema_ids(batch: memoryview, header: BatchHeader) -> frozenset[int]:
    """Return the ids that the values of a plain batch name, whose CRC is not looked at.
    RowsDoNotFitError for the first value without framing, RecordTooLargeError for more than
    MAX_IDS, CorruptRecordError for damaged records."""
    records = decode_batches(
        [batch], max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, check_crcs=False
    )
    framed = cut(records.values, most_errors=1)
    if framed.errors:
        row = min(framed.errors)
        raise _not_stored(row, framed.errors[row])
    return frozenset(_ids_of(framed))


def typed_from_avro(
    batch: memoryview,
    header: BatchHeader,
    schema: TopicSchema,
    topic_id: UUID,
    codec: Codec,
    writers: Mapping[int, AvroSchema],
) -> bytearray:
    """Return the typed batch of a plain one whose header fields are checked already; errors as
    `typed_from_records` has them. `writers` are the schemas by their ids. How a schema is read is
    kept with it, so pass the same object each time. Where an id is missing among them,
    UnknownSchemaIdsError tells it, so that nobody needs `schema_ids` before."""
    reader = _Reader(schema, writers)
    return typed_from_records(batch, header, schema, topic_id, codec, reader.columns)


class _Reader:
    """Reads values as columns of the latest version."""

    def __init__(self, schema: TopicSchema, writers: Mapping[int, AvroSchema]) -> None:
        self._schema = schema
        self._writers = writers

    def columns(self, values: pa.Array, numbers: Ints) -> list[pa.Array]:
        framed = cut(values, most_errors=1)
        faults = dict(framed.errors)
        ids = _ids_of(framed)
        parsers = {each: self._parser(each) for each in ids}
        rows_of = {each: np.flatnonzero(framed.ids == each) for each in ids}
        is_every = len(ids) == 1 and len(rows_of[ids[0]]) == len(values)
        cells = sum(
            each.cells * len(rows_of[schema_id])
            for schema_id, each in parsers.items()
            if not isinstance(each, str)
        )
        if cells > MAX_CELLS:
            raise too_many_cells()
        room = ValueRoom(MAX_CELLS)
        parts: list[list[pa.Array]] = []
        for schema_id, rows in rows_of.items():
            parser = parsers[schema_id]
            if isinstance(parser, str):
                faults[int(rows[0])] = f"schema id {schema_id}: {parser}"
                continue
            bodies = framed.every_body if is_every else Bodies.of(framed.bodies(rows))
            try:
                parts.append(parser.columns(bodies, room))
            except UndecodableRecordError as error:
                faults[int(rows[error.damage.row])] = f"schema id {schema_id}: {error}"
        if faults:
            row = min(faults)
            raise self._fault(int(numbers[row]), faults[row], ids, int(framed.ids[row]))
        if len(parts) == 1:
            return parts[0]
        return _in_order(parts, [*rows_of.values()])

    def _fault(self, record: int, reason: str, ids: list[int], schema_id: int) -> RowsDoNotFitError:
        error = _not_stored(record, reason)
        if schema_id < 0 or schema_id in self._writers:
            return error
        unknown = frozenset(each for each in ids if each not in self._writers)
        return UnknownSchemaIdsError(str(error), record, unknown)

    def _parser(self, schema_id: int) -> AvroParser | str:
        """Return what reads the values of an id, or why none can."""
        writer = self._writers.get(schema_id)
        if writer is None:
            return "no registry has given it"
        return _parser_of(Same(writer), Same(self._schema))


@lru_cache(maxsize=_MAX_PARSERS)
def _parser_of(writer: Same[AvroSchema], schema: Same[TopicSchema]) -> AvroParser | str:
    try:
        return AvroParser(writer.value, schema.value.latest.visible, schema.value.key)
    except InvalidSchemaError as error:
        return " ".join(str(error).split())


def _ids_of(framed: Framed) -> list[int]:
    ids = framed.different_ids
    if len(ids) > MAX_IDS:
        raise too_large(f"records of {len(ids)} schema ids, and at most {MAX_IDS} are possible")
    return ids


def _in_order(parts: Sequence[Sequence[pa.Array]], places: Sequence[Ints]) -> list[pa.Array]:
    """Return the columns of all rows, of parts that have the rows of these places."""
    order = np.empty(sum(map(len, places)), np.int64)
    order[np.concatenate(places)] = np.arange(len(order))
    rows = int_array(order)
    return [take(pa.concat_arrays(each), rows) for each in zip(*parts, strict=True)]


def _not_stored(record: int, reason: str) -> RowsDoNotFitError:
    return RowsDoNotFitError(f"record {record} is not stored: {reason}", row=record)
