"""Rows of a DataFrame on their way to a topic as records in Avro, in a task: conformed to the types
of the schema, encoded by whole columns, framed, and handed on as rows of records.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from connector.errors import ConnectorError, RowError
from connector.sink.avro.avro_sink import AvroSink, WrittenAvro
from connector.sink.row_routing import RoutedRows
from connector.sink.typed.conforming import conformed
from connector.typed_columns import DELETED, HEADERS, KEY, PARTITION
from storage_engine.protocol.avro.encode import encode, encode_values
from storage_engine.protocol.avro.encoding.byte_rows import TooManyBytesError, with_nulls
from storage_engine.protocol.avro.encoding.value_errors import UnencodableValueError
from storage_engine.protocol.avro.framing import framed
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.typed.nested_arrays import bits, boolean_array

_FALSE = boolean_array(np.zeros(1, np.bool_))[0]
_RECORD = {PARTITION: "partition", HEADERS: "headers"}


class AvroEncoder:
    """Makes record batches of rows whose columns are the fields of a schema."""

    def __init__(self, sink: AvroSink, route: Callable[[pa.RecordBatch], list[RoutedRows]]) -> None:
        """`route` makes the record batches of rows with the columns of records."""
        self._sink = sink
        self._route = route

    def route(self, rows: pa.RecordBatch) -> list[RoutedRows]:
        """The record batches of `rows` for each partition that gets any row. RowError for a value
        that the schema does not hold."""
        if not rows.num_rows:
            # All were dropped by their origin.
            return []
        given = {field.name.lower(): rows.column(place) for place, field in enumerate(rows.schema)}
        columns = {name: given[column] for column, name in _RECORD.items() if column in given}
        deleted = given.get(DELETED)
        if KEY in given:
            columns["key"] = self._key(given[KEY])
        columns["value"] = self._value(given, rows.num_rows, deleted)
        return self._route(pa.RecordBatch.from_arrays([*columns.values()], names=[*columns]))

    def _value(self, given: dict[str, pa.Array], count: int, deleted: pa.Array | None) -> pa.Array:
        part = self._sink.value
        columns = {each.name: given[each.name.lower()] for each in part.columns}
        gone = None if deleted is None else bits(kernel("coalesce", deleted, _FALSE))
        if gone is None or not gone.any():
            return self._encoded(part, columns, count)
        alive = boolean_array(~gone)
        kept = {name: kernel("filter", each, alive) for name, each in columns.items()}
        return with_nulls(self._encoded(part, kept, int((~gone).sum())), ~gone)

    def _key(self, key: pa.Array) -> pa.Array:
        part = self._sink.key
        if part is None:
            return key
        if not key.null_count or part.columns[0].nullable:
            return self._encoded(part, {KEY: key}, len(key))
        # A record without a key.
        valid = kernel("is_valid", key)
        kept = kernel("filter", key, valid)
        return with_nulls(self._encoded(part, {KEY: kept}, len(kept)), bits(valid))

    def _encoded(self, part: WrittenAvro, columns: dict[str, pa.Array], count: int) -> pa.Array:
        schema = part.text.parsed()
        try:
            arrays = [conformed(columns[each.name], each.type) for each in part.columns]
            if part.columns[0].name == KEY:
                encoded = encode_values(schema, arrays[0])
            else:
                names = [each.name for each in part.columns]
                encoded = encode(schema, pa.RecordBatch.from_arrays(arrays, names=names))
        except UnencodableValueError as error:
            what = "the key, " if part is self._sink.key else ""
            raise self._unfit(f"{what}{error}") from None
        except TooManyBytesError as error:
            raise ConnectorError("MESSAGE_TOO_LARGE", str(error)) from None
        except pa.ArrowInvalid as error:
            raise self._unfit(" ".join(str(error).split())[:500]) from None
        return framed(part.schema_id, encoded)

    def _unfit(self, why: str) -> RowError:
        return RowError("ROW_DOES_NOT_FIT", f"a row for the topic '{self._sink.topic}': {why}")
