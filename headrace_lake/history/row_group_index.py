"""Which offsets of which partitions the row groups of a table's files hold.

Bounds of a file, or of a row group with rows of several partitions, say too little: they go over
all partitions. The two columns of such a row group are read; they are a small part of it. What is
found holds for good, as a file never changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace_lake.delta.store import StoreError, TableStore, first_line
from headrace_lake.history.errors import FileGoneError
from headrace_lake.history.slices import OffsetSpan, PartitionValue, RowGroup, Wanted
from headrace_lake.history.table_version import TableFile, TableVersion
from storage_engine.protocol.records.arrow_kernels import as_type, kernel

PARTITION, OFFSET, TIMESTAMP = "_partition", "_offset", "_timestamp"
THREADS = 8
"""Files that are looked at at a time: an object store takes its time for each."""

Ints = npt.NDArray[np.int64]


class RowGroupIndex:
    """The row groups of one table, as far as they were asked for."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[RowGroup, ...]] = {}

    def groups(self, version: TableVersion, wanted: Wanted) -> list[RowGroup]:
        """Return the row groups of all files that may hold wanted offsets. FileGoneError,
        StoreError."""
        return self.of_files(
            version,
            [
                file
                for file in version.files
                if any(file.may_hold(each, start, end) for each, (start, end) in wanted.items())
            ],
        )

    def of_files(self, version: TableVersion, files: Sequence[TableFile]) -> list[RowGroup]:
        unknown = [each for each in files if each.path not in self._known]
        if unknown:
            named = {each.path for each in version.files}
            self._known = {path: each for path, each in self._known.items() if path in named}
            store = version.place.store()
            with ThreadPoolExecutor(min(THREADS, len(unknown))) as pool:
                for file, found in zip(
                    unknown, pool.map(lambda each: _index(store, each), unknown), strict=True
                ):
                    self._known[file.path] = found
        return [group for each in files for group in self._known[each.path]]

    def start(self, version: TableVersion, partition: int) -> int | None:
        """Return the first offset of which there is a row; None where there is none."""
        best: int | None = None
        files = [each for each in version.files if each.may_hold(partition, 0, 2**63)]
        for file in sorted(files, key=lambda each: each.offsets or (0, 0)):
            if best is not None and file.offsets is not None and file.offsets[0] >= best:
                break
            for group in self.of_files(version, [file]):
                span = group.spans.get(partition)
                if span is not None:
                    best = span.low if best is None else min(best, span.low)
        return best


def open_file(store: TableStore, path: str) -> pq.ParquetFile:
    """Open a data file. FileGoneError, StoreError."""
    local = store.local_path(path)
    try:
        return pq.ParquetFile(
            local if local is not None else store.reader(path),
            pre_buffer=local is None,
            # Spark writes times so where others have it put files together.
            coerce_int96_timestamp_unit="us",
        )
    except (pa.ArrowException, OSError, StoreError) as error:
        if isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError):
            raise FileGoneError(f"{store.url}/{path} is no longer there") from error
        raise StoreError(f"could not open {store.url}/{path}: {first_line(error)}") from error


def columns_of(
    file: pq.ParquetFile, group: int, names: Iterable[str], values: Mapping[str, PartitionValue]
) -> pa.Table:
    """Return columns of a row group; those by which files are divided have one value."""
    asked = list(names)
    there = set(file.schema_arrow.names)
    rows = file.metadata.row_group(group).num_rows
    read = file.read_row_group(
        group, [each for each in asked if each in there and each not in values], use_threads=False
    )
    columns = {each: read[each] for each in read.column_names}
    for each in asked:
        if each in values:
            columns[each] = pa.chunked_array([pa.repeat(pa.scalar(values[each]), rows)])
    # Not by `pa.table`, which imports pandas in each planning process.
    there_now = [each for each in asked if each in columns]
    return pa.Table.from_arrays([columns[each] for each in there_now], names=there_now)


def _index(store: TableStore, file: TableFile) -> tuple[RowGroup, ...]:
    opened = open_file(store, file.path)
    try:
        return tuple(
            RowGroup(
                path=file.path,
                number=number,
                size_bytes=opened.metadata.row_group(number).total_byte_size,
                spans=_spans(opened, number, file.values),
                values=file.values,
            )
            for number in range(opened.metadata.num_row_groups)
        )
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"could not read {store.url}/{file.path}: {first_line(error)}") from error


def _spans(
    file: pq.ParquetFile, number: int, values: Mapping[str, PartitionValue]
) -> dict[int, OffsetSpan]:
    rows = file.metadata.row_group(number).num_rows
    only, offsets = _bounds(file, number, PARTITION), _bounds(file, number, OFFSET)
    if only is not None and offsets is not None and only[0] == only[1]:
        return {only[0]: OffsetSpan(offsets[0], offsets[1], rows)}
    # The table's own method would import `pyarrow.compute`, in each planning process.
    read = kernel("drop_null", columns_of(file, number, (PARTITION, OFFSET), values))
    return spans_of(ints_of(read[PARTITION]), ints_of(read[OFFSET]))


def spans_of(partitions: Ints, offsets: Ints) -> dict[int, OffsetSpan]:
    """Return the offsets of each partition among the rows."""
    if not len(partitions):
        return {}
    order = np.argsort(partitions, kind="stable")
    sorted_partitions, sorted_offsets = partitions[order], offsets[order]
    begins = np.flatnonzero(np.diff(sorted_partitions, prepend=sorted_partitions[0] - 1))
    low = np.minimum.reduceat(sorted_offsets, begins)
    high = np.maximum.reduceat(sorted_offsets, begins)
    counts = np.diff(begins, append=len(partitions))
    return {
        int(sorted_partitions[begin]): OffsetSpan(int(first), int(last), int(rows))
        for begin, first, last, rows in zip(begins, low, high, counts, strict=True)
    }


def _bounds(file: pq.ParquetFile, number: int, name: str) -> tuple[int, int] | None:
    """Return the least and the largest value of a column without nulls, if the file says so."""
    place = leaf(file, name)
    if place is None:
        return None
    found = file.metadata.row_group(number).column(place).statistics
    if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
        return None
    return int(found.min), int(found.max)


def leaf(file: pq.ParquetFile, name: str) -> int | None:
    """Return the place of a column that is not nested among the single values of a file; None
    where there is no such column."""
    names = [file.schema.column(each).path for each in range(len(file.schema))]
    return names.index(name) if name in names else None


def ints_of(column: pa.ChunkedArray) -> Ints:
    """Return the values of a column of whole numbers; -1 for nulls."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if array.null_count:
        array = array.fill_null(-1)
    array = as_type(array, pa.int64())
    if not len(array):
        return np.zeros(0, np.int64)
    # Arrow's own method imports pandas, in each planning process.
    found: Ints = np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)
    return found
