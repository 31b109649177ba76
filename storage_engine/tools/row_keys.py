"""The keys of rows that come as lines of JSON, for a topic whose schema has a key: by them rows
find their partition. No Python runs per row.
"""

from typing import Any

import pyarrow as pa

from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.records import encode_batches
from storage_engine.protocol.typed.json_columns import typed_from_json
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_keys import key_bytes
from storage_engine.tools.errors import CommandError

_ONE_BATCH = 1 << 30


class RowKeys:
    """Reads lines as the topic's leaders will."""

    def __init__(self, known: KnownSchema) -> None:
        self._known = known
        schema = known.schema
        self._plan = plan(schema, [each.name for each in schema.key_columns(schema.latest)])

    def of(self, lines: Any, first_line: int) -> Any:
        """The key of each line, which are numbered from `first_line` on. CommandError names a line
        that does not fit."""
        schema = self._known.schema
        (batch,) = encode_batches(lines, batch_bytes=_ONE_BATCH)
        try:
            typed = typed_from_json(
                memoryview(batch.data), read_header(batch.data), schema, self._known.topic_id
            )
        except RowsDoNotFitError as error:
            raise CommandError(
                refused_line(first_line + error.row, error.row, str(error))
            ) from None
        pieces = iter_typed_decoded(typed, self._plan, framed=False, topic_schema=schema)
        return pa.concat_arrays([key_bytes(each.batch, schema, schema.latest) for each in pieces])


def refused_line(line: int, place: int, reason: str) -> str:
    """The message about a line that does not fit. `reason`: of the record at that place of a
    batch."""
    return f"line {line} of the input: {reason.removeprefix(f'record {place} is not stored: ')}"
