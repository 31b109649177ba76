"""Reads the rows of a table's slice, with the columns and by the condition of the query, as the log
would have given them. Runs in a task."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from connector.errors import ConnectorError, OptionError
from connector.options.source_options import SourceOptions
from connector.schema import source_arrow_schema
from connector.source.typed.typed_decoding import arrow_schema
from connector.source.typed.typed_read import TypedRead
from connector.topic_schemas import known_schemas
from connector.typed_columns import DELETED, HEADERS
from headrace_lake.delta.store import StoreError
from headrace_lake.history.errors import FileGoneError, HistoryError
from headrace_lake.history.row_filters import HistoryFilter
from headrace_lake.history.slice_rows import HistoryColumn, HistoryRead, read_slice
from headrace_lake.history.slices import TableSlice
from headrace_lake.history.table_version import (
    HistoryTopic,
    TablePlace,
    TableVersion,
    load_version,
)
from headrace_lake.protocol.stops import TableStoppedError

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.source.avro.avro_read import AvroRead

_OF_RECORDS = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
"""The table's names of columns of records, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTask:
    """The part of a table that a task reads. Pickled."""

    topic: str
    topic_id: UUID
    place: TablePlace
    part: TableSlice


def read_table(
    options: SourceOptions, task: SliceTask, plan: "TypedRead | AvroRead | None"
) -> "Iterator[pa.RecordBatch]":
    """The rows of the task, in the order of each partition."""
    read = history_read(options, task.topic, plan)
    topic = HistoryTopic(task.topic, task.topic_id)

    def newest() -> TableVersion:
        return load_version(task.place, topic, task.part.wanted)

    with table_errors(task.topic):
        yield from read_slice(task.place, task.part, read, newest)


def history_read(
    options: SourceOptions, topic: str, plan: "TypedRead | AvroRead | None"
) -> HistoryRead:
    """The columns and rows to read of a topic's table. OptionError for those that no table has."""
    if plan is None:
        schema = source_arrow_schema(options.columns)
        columns = [
            HistoryColumn(
                name=each.name, column=_OF_RECORDS.get(each.name, each.name), type=each.type
            )
            for each in schema
        ]
        return HistoryRead(topic=topic, columns=tuple(columns))
    if not isinstance(plan, TypedRead):
        raise OptionError(
            "BAD_OPTION",
            "'value.format=avro' is read of logs alone, and the log of topic "
            f"'{topic}' no longer has all that is wanted: leave out the table, or value.format",
        )
    return _typed_read(options, topic, plan)


def _typed_read(options: SourceOptions, topic: str, plan: TypedRead) -> HistoryRead:
    named = {each.column for each in plan.columns}
    if HEADERS in named:
        raise OptionError(
            "BAD_COLUMN",
            f"the table of topic '{topic}' has no {HEADERS} of typed rows, and the log no longer "
            f"has all that is wanted: leave {HEADERS} out of 'columns'",
        )
    known = plan.schemas.get(topic) or known_schemas(options.connection, [topic])[topic]
    if known is None:
        raise ConnectorError("UNKNOWN_TOPIC_ID", f"the topic '{topic}' has no schema any more")
    latest = known.schema.latest
    compared = [(latest.by_id[each.column_id], each) for each in plan.comparisons(topic, latest)]
    given = {each.column: latest.column(each.column) for each in plan.topic_columns}
    for column in (*given.values(), *(each for each, _ in compared)):
        if column.hidden:
            raise OptionError(
                "BAD_COLUMN",
                f"the topic '{topic}' hides the column '{column.name}', so its table need not have "
                "it: leave it out of the query",
            )
    return HistoryRead(
        topic=topic,
        columns=tuple(
            HistoryColumn(
                name=field.name,
                column=given[each.column].name if each.column in given else each.column,
                type=field.type,
            )
            for each, field in zip(plan.columns, arrow_schema(plan), strict=True)
        ),
        filters=tuple(
            HistoryFilter(column=column.name, type=column.type, comparison=each)
            for column, each in compared
        ),
        with_deleted=DELETED in named,
    )


@contextmanager
def table_errors(topic: str) -> Iterator[None]:
    """Turns errors of a table into those of the connector."""
    try:
        yield
    except (HistoryError, TableStoppedError) as error:
        text = f"{error}; table=none reads the log of topic '{topic}' alone"
        raise ConnectorError("BAD_TABLE", text) from None
    except (StoreError, FileGoneError) as error:
        text = f"the table of topic '{topic}': {error}"
        raise ConnectorError("TABLE_UNREACHABLE", text) from None
