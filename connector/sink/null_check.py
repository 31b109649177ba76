"""Finds nulls in columns that allow none, while rows still have the columns of their origin, and
names the row by them.
"""

from collections.abc import Iterable

import pyarrow as pa

from connector.errors import RowError
from connector.options.sink_options import SinkOptions


class NullCheck:
    """Checks the rows of one task."""

    def __init__(self, topic: str, required: Iterable[str], options: SinkOptions) -> None:
        self._topic = topic
        self._required = {name.lower(): name for name in required}
        self._origin = () if options.origin is None else options.origin.columns

    def checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows. RowError for the first null."""
        for place, field in enumerate(rows.schema):
            name = self._required.get(field.name.lower())
            if name is not None and rows.column(place).null_count:
                row = rows.column(place).is_null().index(True).as_py()
                raise RowError(
                    "ROW_DOES_NOT_FIT",
                    f"the column '{name}' of the topic '{self._topic}' is NOT NULL, and a row has "
                    f"null{self._from(rows, row)}: leave such rows out, or fill it",
                )
        return rows

    def _from(self, rows: pa.RecordBatch, row: int) -> str:
        named = {field.name.lower(): place for place, field in enumerate(rows.schema)}
        if not self._origin:
            return ""
        topic, partition, offset = (rows.column(named[each])[row].as_py() for each in self._origin)
        return f", which comes from {topic}-{partition} at offset {offset}"
