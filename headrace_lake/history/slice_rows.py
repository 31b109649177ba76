"""Reads a slice of a table into record batches, one row group after the other.

Rows come in the order of their partition. What a row group holds beyond the beginning of those that
are still to be read waits for them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace_lake.delta.store import StoreError, TableStore, first_line
from headrace_lake.history.errors import FileGoneError, HistoryError
from headrace_lake.history.log_columns import as_log_type
from headrace_lake.history.row_filters import HistoryFilter
from headrace_lake.history.row_group_index import (
    OFFSET,
    PARTITION,
    Ints,
    RowGroupIndex,
    columns_of,
    ints_of,
    open_file,
)
from headrace_lake.history.slices import RowGroup, TableSlice, Wanted, plan_slices, watermarks
from headrace_lake.history.table_version import TablePlace, TableVersion
from storage_engine.protocol.records.arrow_kernels import kernel, take
from storage_engine.protocol.typed.arrays.row_filter import matching_rows
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.nested_arrays import (
    binary_values,
    bits,
    boolean_array,
    int_array,
)

TOPIC, DELETED = "_topic", "_deleted"
MOST_OFFSET = 2**63 - 1

BATCH_CELLS = 100_000
"""About so many rows times columns of a batch: 570,000 rows of 20 columns take Spark 2.0 s with
this, and 3.3 s with ten times as many."""
LEAST_BATCH_ROWS, MOST_BATCH_ROWS = 1_000, 50_000

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryColumn:
    """A column of the rows."""

    name: str
    column: str
    """Its name in the table."""
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRead:
    """The columns and rows that a query wants."""

    topic: str
    columns: tuple[HistoryColumn, ...]
    filters: tuple[HistoryFilter, ...] = ()
    with_deleted: bool = True
    """Whether rows are wanted that only say that their key is gone."""

    @property
    def batch_rows(self) -> int:
        """The most rows of a batch: the JVM takes small ones faster, as long as they are not many.
        A multiple of eight, so that bits of nulls are not shifted."""
        rows = BATCH_CELLS // max(1, len(self.columns))
        return max(LEAST_BATCH_ROWS, min(MOST_BATCH_ROWS, rows)) // 8 * 8

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type) for each in self.columns])


def read_slice(
    place: TablePlace, part: TableSlice, read: HistoryRead, newest: Callable[[], TableVersion]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows. Where a file is gone meanwhile, `newest` gives the version from which the
    rest is read. HistoryError, TableStoppedError, StoreError."""
    left, groups, version = dict(part.wanted), part.groups, -1
    while True:
        try:
            for rows, done in _blocks(place.store(), left, groups, read):
                yield from rows.to_batches(max_chunksize=read.batch_rows)
                for each, (start, end) in left.items():
                    left[each] = max(start, min(end, done.get(each, end))), end
            return
        except FileGoneError as gone:
            groups, version = _groups_again(left, newest, version, gone)


def _groups_again(
    left: Wanted, newest: Callable[[], TableVersion], before: int, gone: FileGoneError
) -> tuple[tuple[RowGroup, ...], int]:
    """Return where the newest version has what is left, and its number."""
    while (version := newest()).number > before:
        try:
            found = RowGroupIndex().groups(version, left)
        except FileGoneError as again:
            before, gone = version.number, again
            continue
        slices = plan_slices(found, left, target_bytes=MOST_OFFSET)
        return (slices[0].groups if slices else ()), version.number
    raise HistoryError(
        f"{gone}, and version {before} of the table still names it: restore the file, or write the "
        "topic to a table at another location"
    ) from gone


def _blocks(
    store: TableStore, wanted: Wanted, groups: Sequence[RowGroup], read: HistoryRead
) -> Iterator[tuple[pa.Table, dict[int, int]]]:
    """Yield rows in order, and behind them, by partition, up to which offset all were given; a
    partition that is missing there is whole."""
    known = np.array(sorted(wanted), np.int64)
    bounds = np.array([wanted[int(each)] for each in known], np.int64)
    held: pa.Table | None = None
    opened: tuple[str, pq.ParquetFile] | None = None
    for group, marks in zip(groups, watermarks(groups), strict=True):
        if opened is None or opened[0] != group.path:
            opened = group.path, open_file(store, group.path)
        try:
            rows = _rows_of(opened[1], group, known, bounds, read)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(
                f"could not read {store.url}/{group.path}: {first_line(error)}"
            ) from error
        both = [each for each in (held, rows) if each is not None]
        if not both:
            continue
        limits = np.array([marks.get(int(each), MOST_OFFSET) for each in known], np.int64)
        ready, held = _divided(pa.concat_tables(both), known, limits, read)
        yield ready, marks


def _rows_of(
    file: pq.ParquetFile, group: RowGroup, known: Ints, bounds: Ints, read: HistoryRead
) -> pa.Table | None:
    """Return the wanted rows of a row group, with their places; None where there are none."""
    number = group.number
    if not all(each.may_match(file, number) for each in read.filters):
        return None
    names = [PARTITION, OFFSET, *(each.column for each in read.filters)]
    names += [] if read.with_deleted else [DELETED]
    columns = [each.column for each in read.columns if each.column != TOPIC]
    if not read.filters:
        names += columns
    first = columns_of(file, number, dict.fromkeys(names), group.values)
    partitions, offsets = (ints_of(first[each]) for each in (PARTITION, OFFSET))
    kept = _within(partitions, offsets, known, bounds) & _matching(first, read)
    if not kept.any():
        return None
    rest = [each for each in dict.fromkeys(columns) if each not in first.column_names]
    if rest:
        second = columns_of(file, number, rest, group.values)
        for name in second.column_names:
            first = first.append_column(name, second[name])
    arrays = [_column(first, each, read.topic) for each in read.columns]
    rows = pa.Table.from_arrays(
        [*arrays, int_array(partitions), int_array(offsets)], schema=_with_places(read)
    )
    return rows if kept.all() else kernel("filter", rows, boolean_array(kept))


def _within(partitions: Ints, offsets: Ints, known: Ints, bounds: Ints) -> Mask:
    at = np.minimum(np.searchsorted(known, partitions), len(known) - 1)
    found: Mask = (known[at] == partitions) & (offsets >= bounds[at, 0]) & (offsets < bounds[at, 1])
    return found


def _matching(rows: pa.Table, read: HistoryRead) -> Mask:
    kept = np.ones(rows.num_rows, np.bool_)
    if not read.with_deleted and DELETED in rows.column_names:
        kept &= ~bits(as_log_type(rows[DELETED].fill_null(False), pa.bool_()))
    for each in read.filters:
        kind = arrow_type(each.type)
        there = each.column in rows.column_names
        array = as_log_type(rows[each.column], kind) if there else pa.nulls(rows.num_rows, kind)
        kept &= matching_rows(array, each.type, each.comparison)
    return kept


def _column(rows: pa.Table, wanted: HistoryColumn, topic: str) -> pa.Array:
    if wanted.column == TOPIC:
        # Not by `pa.scalar`, which imports pandas.
        name = binary_values([topic.encode()]).view(pa.string())
        return pa.repeat(name[0], rows.num_rows)
    if wanted.column not in rows.column_names:
        # The file is older than the column.
        return pa.nulls(rows.num_rows, wanted.type)
    return as_log_type(rows[wanted.column], wanted.type)


def _divided(
    rows: pa.Table, known: Ints, limits: Ints, read: HistoryRead
) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows below the limit of their partition, in order, and the others."""
    count = len(read.columns)
    partitions, offsets = (ints_of(rows.column(count + each)) for each in (0, 1))
    ready = offsets < limits[np.searchsorted(known, partitions)]
    held = None
    if not ready.all():
        held = kernel("filter", rows, boolean_array(~ready))
        rows = kernel("filter", rows, boolean_array(ready))
        partitions, offsets = partitions[ready], offsets[ready]
    order = _order(partitions, offsets, read.topic)
    whole = rows if order is None else take(rows, int_array(order))
    return whole.select(list(range(count))), held


def _order(partitions: Ints, offsets: Ints, topic: str) -> Ints | None:
    """Return the order of the rows; None where each partition's are in order as they are."""
    if not len(offsets):
        return None
    order = np.argsort(partitions, kind="stable")
    if _ascend(partitions[order], offsets[order]):
        return None
    order = np.lexsort((offsets, partitions))
    if not _ascend(partitions[order], offsets[order]):
        raise HistoryError(
            f"the table of topic '{topic}' has an offset twice: others have added rows to it; "
            "write the topic to a table at another location"
        )
    return order


def _ascend(partitions: Ints, offsets: Ints) -> bool:
    return bool(np.all((np.diff(offsets) > 0) | (np.diff(partitions) > 0)))


def _with_places(read: HistoryRead) -> pa.Schema:
    # No column of a topic has such a name.
    places = [pa.field("\0partition", pa.int64()), pa.field("\0offset", pa.int64())]
    return pa.schema([*read.schema, *places])
