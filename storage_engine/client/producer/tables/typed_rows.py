"""Makes the rows of a topic's schema of an Arrow table.

Columns are matched by their names, in the case that the schema has; a nullable one may be missing.
Beside them a table may have columns about its rows:

    column      type                        meaning, and without it
    _partition  integer                     where the row goes; by the key's columns, else by turns
    _timestamp  timestamp, or int64 in ms   the record's time; now
    _headers    list<struct<key, value>>    the record's headers; none
    _deleted    boolean                     true: the row only says that its key is gone, and all
                                            but the key's columns is dropped; false

All is checked before the first row is sent, but for nulls inside of nested values.
"""

import difflib

import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.column_casts import cast_column
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema
from storage_engine.protocol.records.arrow_kernels import milliseconds
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

PARTITION, TIMESTAMP, HEADERS, DELETED = "_partition", "_timestamp", "_headers", "_deleted"
SPECIAL_COLUMNS = (PARTITION, TIMESTAMP, HEADERS, DELETED)


def fitted(table: "pa.Table | pa.RecordBatch", topic: str, schema: TopicSchema) -> pa.Table:
    """The columns of the schema's latest version, in its types, and those about the rows that say
    anything: _partition as it is, _timestamp in int64 milliseconds, _deleted without nulls.
    SerializationError, which names the column and what to do, where the table does not fit."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    version = schema.latest
    _check_names(table, topic, version)
    special = {name: table.column(name) for name in SPECIAL_COLUMNS if name in table.column_names}
    tombstones = _tombstones(special.get(DELETED), topic, schema)
    columns = {}
    for column in version.visible:
        if column.name not in table.column_names:
            if not column.nullable and (tombstones is None or column.column_id in schema.key):
                raise SerializationError(
                    f"the table has no column '{column.name}', which is NOT NULL in topic "
                    f"'{topic}': add it"
                )
            continue
        cast = cast_column(table.column(column.name), column.type, column.name)
        if not column.nullable and cast.null_count:
            is_key = column.column_id in schema.key
            _check_nulls(cast, column.name, topic, None if is_key else tombstones)
        columns[column.name] = cast
    about_rows = {
        PARTITION: _partitions(special.get(PARTITION)),
        TIMESTAMP: _timestamps(special.get(TIMESTAMP)),
        HEADERS: _headers(special.get(HEADERS)),
        DELETED: tombstones,
    }
    return pa.table(columns | {name: each for name, each in about_rows.items() if each is not None})


def _check_names(table: pa.Table, topic: str, version: SchemaVersion) -> None:
    visible = [column.name for column in version.visible]
    hidden = {column.name for column in version.columns if column.hidden}
    known = set(visible)
    seen: set[str] = set()
    for name in table.column_names:
        if name in seen:
            raise SerializationError(f"the table has two columns '{name}': rename or drop one")
        seen.add(name)
        if name in known or name in SPECIAL_COLUMNS:
            continue
        if name in hidden:
            raise SerializationError(
                f"the table's column '{name}' is hidden in the schema of topic '{topic}': drop it"
            )
        if name.startswith("_"):
            raise SerializationError(
                f"the table's column '{name}' can't be sent: drop it; of the columns that begin "
                f"with _ only {', '.join(SPECIAL_COLUMNS)} can be sent"
            )
        folded = [each for each in visible if each.lower() == name.lower()]
        near = folded or difflib.get_close_matches(name, visible, n=1)
        hint = f"; is '{near[0]}' meant?" if near else ""
        raise SerializationError(
            f"the schema of topic '{topic}' has no column '{name}'{hint}: rename or drop it, or "
            "add it to the schema"
        )
    if not seen & known:
        raise SerializationError(
            f"the table has none of the columns of topic '{topic}': {', '.join(visible)}"
        )


def _check_nulls(
    column: pa.ChunkedArray, name: str, topic: str, tombstones: pa.ChunkedArray | None
) -> None:
    missing = column.is_null()
    if tombstones is not None:
        missing = pc.and_not(missing, tombstones)
    row = pc.index(missing, True).as_py()
    if row >= 0:
        raise SerializationError(
            f"the table's column '{name}' is null in row {row}, and NOT NULL in topic '{topic}': "
            "give it a value"
        )


def _tombstones(
    column: pa.ChunkedArray | None, topic: str, schema: TopicSchema
) -> pa.ChunkedArray | None:
    if column is None:
        return None
    if not pa.types.is_boolean(column.type):
        raise SerializationError(f"the table's column '{DELETED}' is {column.type}, not a boolean")
    column = column.fill_null(False)
    if not pc.any(column).as_py():
        return None
    if not schema.key:
        raise SerializationError(
            f"the table's column '{DELETED}' is true in row {pc.index(column, True)}, and topic "
            f"'{topic}' has no key by which rows are deleted: drop the row"
        )
    return column


def _partitions(column: pa.ChunkedArray | None) -> pa.ChunkedArray | None:
    if column is None:
        return None
    if not pa.types.is_integer(column.type):
        raise SerializationError(f"the table's column '{PARTITION}' is {column.type}, no integer")
    return column


def _timestamps(column: pa.ChunkedArray | None) -> pa.ChunkedArray | None:
    if column is None:
        return None
    if pa.types.is_timestamp(column.type):
        millis = milliseconds(column)
    elif pa.types.is_int64(column.type):
        millis = column
    else:
        raise SerializationError(
            f"the table's column '{TIMESTAMP}' is {column.type}; it must be a timestamp, or int64 "
            "milliseconds"
        )
    least = pc.min(millis).as_py()
    if least is not None and least < 0:
        raise SerializationError(
            f"the table's column '{TIMESTAMP}' has {least} ms; times are not before 1970"
        )
    return millis


def _headers(column: pa.ChunkedArray | None) -> pa.ChunkedArray | None:
    if column is None:
        return None
    try:
        return column.cast(HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise SerializationError(
            f"the table's column '{HEADERS}' is {column.type}; it must be {HEADERS_TYPE}"
        ) from None
