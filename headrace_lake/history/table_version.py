"""One version of a topic's table, for reading: its files, and how far it holds each partition.

Who only reads does not write to the table's place, and refuses a table whose rows may not be the
topic's, by the rules by which a writer stops.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace_lake.delta.log_reading import read_commit
from headrace_lake.delta.store import StoreError, TableStore, first_line, location_url
from headrace_lake.history.errors import HistoryError
from headrace_lake.history.slices import PartitionValue
from headrace_lake.protocol import foreign_changes, progress
from headrace_lake.protocol.stops import ACCEPTED_GAPS, TOPIC_ID
from storage_engine.core.ids import topic_id_to_text
from storage_engine.core.printable import printable
from storage_engine.protocol.records.arrow_kernels import as_type

_FIRST_TOPIC_ID = "headrace.first.topic.id"
_PLACE = ("_partition", "_offset", "_timestamp")
_LIBRARY_ERRORS = (DeltaError, OSError, ValueError, RuntimeError)


class HistoryTopic(NamedTuple):
    """The topic whose table is read."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Where a table is."""

    location: str
    """An absolute path, or a URL."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store, as `deltalake` has them."""

    def store(self) -> TableStore:
        return TableStore(self.location, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A file of a version, with the bounds that the table's log has of it; None: not known."""

    path: str
    partitions: tuple[int, int] | None = None
    offsets: tuple[int, int] | None = None
    last_timestamp_us: int | None = None
    """Rounded up."""
    values: Mapping[str, PartitionValue] = field(default_factory=dict)

    def may_hold(self, partition: int, start: int, end: int) -> bool:
        """Whether it may have rows of these offsets; `end` is exclusive."""
        if self.partitions and not self.partitions[0] <= partition <= self.partitions[1]:
            return False
        return not self.offsets or (self.offsets[0] < end and start <= self.offsets[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """The files of one version of a topic's table, and its progress."""

    place: TablePlace
    number: int
    columns: frozenset[str]
    files: tuple[TableFile, ...]
    ends: Mapping[int, int]
    """By partition, the offset behind the last that was consumed."""
    differences: tuple[str, ...] = ()
    """In which ways an administrator has accepted that rows differ from the log's."""


def load_version(place: TablePlace, topic: HistoryTopic, partitions: Iterable[int]) -> TableVersion:
    """Return the newest version of the topic's table. HistoryError and TableStoppedError for a
    table whose rows are not known to be the topic's; StoreError when the store fails."""
    with _store_errors(place):
        handle = _opened(place, topic)
        store = place.store()
        columns = frozenset(each.name for each in handle.schema().fields)
        _check_table(place, handle, topic, columns)
        _check_changes(store, handle, topic)
        return TableVersion(
            place=place,
            number=handle.version(),
            columns=columns,
            files=tuple(_files(handle)),
            ends=_ends(handle, topic, partitions),
            differences=tuple(_differences(place, handle)),
        )


def _opened(place: TablePlace, topic: HistoryTopic) -> DeltaTable:
    """Return the library's table. A folder that is not there is not made."""
    try:
        return DeltaTable(location_url(place.location), storage_options=dict(place.options))
    except TableNotFoundError as error:
        raise HistoryError(
            f"there is no Delta table at {printable(place.location)}: name the location of the "
            f"table of topic '{topic.name}'"
        ) from error


def _check_table(
    place: TablePlace, handle: DeltaTable, topic: HistoryTopic, columns: frozenset[str]
) -> None:
    where, configuration = printable(place.location), handle.metadata().configuration
    ours = topic_id_to_text(topic.topic_id)
    if TOPIC_ID not in configuration:
        raise HistoryError(
            f"the table at {where} was not made by `headrace lake`: name the location of the table "
            f"of topic '{topic.name}'"
        )
    ids = {configuration[TOPIC_ID], configuration.get(_FIRST_TOPIC_ID, ours)}
    if ids != {ours}:
        other = min(ids - {ours})
        raise HistoryError(
            f"the table at {where} has rows of a topic with the id {other}, and '{topic.name}' has "
            f"the id {ours}: the topic was made anew, or it is the table of another one"
        )
    foreign_changes.check_properties(topic.name, configuration)
    lacking = [each for each in _PLACE if each not in columns]
    if lacking:
        raise HistoryError(
            f"the table at {where} has no column {lacking[0]}, so its rows can't be told from "
            "those of the log: name the table that `headrace lake` writes"
        )
    if "deletionVectors" in (handle.protocol().reader_features or []):
        marked = pa.table(handle.deletion_vectors().read_all()).num_rows
        if marked:
            raise HistoryError(
                f"the table at {where} has {marked} files in which others marked rows as deleted: "
                "write the topic to a table at another location"
            )


def _check_changes(store: TableStore, handle: DeltaTable, topic: HistoryTopic) -> None:
    """Look at the commits behind the last one of ours, as a writer does."""
    marker = progress.marker_application(topic.topic_id)
    looked_at = handle.transaction_version(marker)
    if looked_at is None:
        raise foreign_changes.lost_progress(topic.name)
    accepted = foreign_changes.accepted_version(handle.metadata().configuration)
    for version in range(looked_at + 1, handle.version() + 1):
        found = read_commit(store, version)
        if found is not None:
            foreign_changes.check_changes(
                topic.name, [found.change], marker, accepted_version=accepted
            )
        elif version > accepted:
            raise foreign_changes.missing_changes(topic.name, version, handle.version())


def _differences(place: TablePlace, handle: DeltaTable) -> Iterator[str]:
    where, configuration = printable(place.location), handle.metadata().configuration
    version = foreign_changes.accepted_version(configuration)
    if version >= 0:
        yield (
            f"the table at {where} has rows that others changed or removed, which was accepted up "
            f"to version {version}"
        )
    if configuration.get(ACCEPTED_GAPS, "").lower() == "true":
        yield (
            f"the table at {where} may lack records that retention took before they came into it, "
            f"which was accepted ({ACCEPTED_GAPS})"
        )


def _ends(handle: DeltaTable, topic: HistoryTopic, partitions: Iterable[int]) -> dict[int, int]:
    found = {
        each: handle.transaction_version(progress.offset_application(topic.topic_id, each))
        for each in partitions
    }
    return {each: end for each, end in found.items() if end is not None}


def _files(handle: DeltaTable) -> Iterator[TableFile]:
    # Not by `pa.table`, which imports pandas in each planning process.
    actions = pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True)).read_all()
    names = handle.metadata().partition_columns
    values = [_column(actions, f"partition.{each}") for each in names]
    low, high = _bounds(actions, "_partition", names)
    first, last = _bounds(actions, "_offset", names)
    times = _bounds(actions, "_timestamp", names)[1]
    for row, path in enumerate(_column(actions, "path")):
        assert isinstance(path, str)
        yield TableFile(
            path=unquote(path),
            partitions=_pair(low[row], high[row]),
            offsets=_pair(first[row], last[row]),
            last_timestamp_us=_whole(times[row]),
            values=dict(zip(names, (each[row] for each in values), strict=True)),
        )


def _bounds(
    actions: pa.Table, name: str, divided_by: list[str]
) -> tuple[list[PartitionValue], list[PartitionValue]]:
    if name in divided_by:
        value = _column(actions, f"partition.{name}")
        return value, value
    return _column(actions, f"min.{name}"), _column(actions, f"max.{name}")


def _column(actions: pa.Table, name: str) -> list[PartitionValue]:
    """Return the values of a column; of times, microseconds, and of dates, days."""
    if name not in actions.column_names:
        return [None] * actions.num_rows
    column = actions[name]
    if pa.types.is_timestamp(column.type):
        column = as_type(as_type(column, pa.timestamp("us", column.type.tz)), pa.int64())
    elif pa.types.is_date(column.type):
        column = as_type(as_type(column, pa.date32()), pa.int32())
    found: list[PartitionValue] = column.to_pylist()
    return found


def _pair(low: PartitionValue, high: PartitionValue) -> tuple[int, int] | None:
    first, last = _whole(low), _whole(high)
    return None if first is None or last is None else (first, last)


def _whole(value: PartitionValue) -> int | None:
    return value if isinstance(value, int) else None


@contextmanager
def _store_errors(place: TablePlace) -> Iterator[None]:
    try:
        yield
    except _LIBRARY_ERRORS as error:
        raise StoreError(
            f"could not read the table at {printable(place.location)}: {first_line(error)}"
        ) from error
