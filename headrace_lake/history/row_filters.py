"""Which rows of a table a query wants, by the comparisons that also the log's reader makes."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from headrace_lake.history.row_group_index import leaf
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import ColumnStatistics, Comparison, may_match


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """A condition on one column of the table."""

    column: str
    type: types.ColumnType
    comparison: Comparison

    def may_match(self, file: pq.ParquetFile, number: int) -> bool:
        """Return False only when no row of the row group matches."""
        return may_match(self.comparison, self.type, self._statistics(file, number))

    def _statistics(self, file: pq.ParquetFile, number: int) -> ColumnStatistics | None:
        place = leaf(file, self.column)
        if place is None:
            return None
        group = file.metadata.row_group(number)
        found = group.column(place).statistics
        if found is None or not found.has_null_count:
            return None
        rows, nulls = group.num_rows, found.null_count
        if nulls == rows:
            return ColumnStatistics(rows=rows, null_count=nulls)
        if not found.has_min_max or not self._is_as_written(file):
            return None
        is_raw = isinstance(self.type, types.DateColumn | types.TimestampColumn)
        return ColumnStatistics(
            rows=rows,
            null_count=nulls,
            minimum=found.min_raw if is_raw else found.min,
            maximum=found.max_raw if is_raw else found.max,
            has_nan=isinstance(self.type, types.FloatColumn),
        )

    def _is_as_written(self, file: pq.ParquetFile) -> bool:
        """Whether bounds are in the form in which the lake writes them."""
        found = file.schema_arrow.field(self.column).type
        match self.type:
            case types.TimestampColumn():
                is_written = pa.types.is_timestamp(found) and found.unit == "us"
            case types.DateColumn():
                is_written = pa.types.is_date32(found)
            case types.IntegerColumn() | types.IntervalColumn():
                is_written = pa.types.is_integer(found)
            case types.FloatColumn() | types.DecimalColumn():
                is_written = pa.types.is_floating(found) or pa.types.is_decimal128(found)
            case _:
                is_written = isinstance(self.type, types.StringColumn) and pa.types.is_string(found)
        return bool(is_written)
