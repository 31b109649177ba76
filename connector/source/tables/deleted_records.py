"""Reads the beginning of a range that retention took since the range was planned, in a task."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from connector.options.source_options import SourceOptions
from connector.source.offset_range import OffsetRange
from connector.source.tables.table_history import TableHistory
from connector.source.tables.table_rows import read_table

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.source.avro.avro_read import AvroRead
    from connector.source.typed.typed_read import TypedRead


def read_deleted(
    options: SourceOptions,
    wanted: OffsetRange,
    log_start: int,
    plan: "TypedRead | AvroRead | None",
) -> "tuple[OffsetRange, Iterator[pa.RecordBatch]]":
    """The rest, that the log has, and the rows before it; all is rest where the options name no
    table of the topic. DataLossError for what neither has."""
    history = TableHistory(options, plan)
    divided = history.divide([wanted], {wanted.topic_partition: log_start})
    rows = [read_table(options, each.value, plan) for each in history.tasks(divided.of_tables)]
    end = wanted.end_offset
    rest = divided.of_logs[0] if divided.of_logs else replace(wanted, start_offset=end)
    return rest, chain.from_iterable(rows)
