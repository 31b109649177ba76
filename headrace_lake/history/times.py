"""The first record at or after a time, among those that a table holds."""

import numpy as np
import pyarrow as pa

from headrace_lake.delta.store import StoreError, first_line
from headrace_lake.history.row_group_index import (
    OFFSET,
    PARTITION,
    TIMESTAMP,
    RowGroupIndex,
    columns_of,
    ints_of,
    open_file,
)
from headrace_lake.history.slices import RowGroup
from headrace_lake.history.table_version import TableVersion
from storage_engine.protocol.records.arrow_kernels import as_type, kernel


def first_at(
    version: TableVersion, index: RowGroupIndex, partition: int, timestamp_ms: int, below: int
) -> int | None:
    """Return the least offset below `below` of a record whose time is not before `timestamp_ms`;
    None where there is none. FileGoneError, StoreError."""
    at_us = timestamp_ms * 1000
    files = [
        each
        for each in version.files
        if each.may_hold(partition, 0, below)
        and (each.last_timestamp_us is None or each.last_timestamp_us >= at_us)
    ]
    groups = [each for each in index.of_files(version, files) if partition in each.spans]
    best: int | None = None
    for group in sorted(groups, key=lambda each: each.spans[partition].low):
        if best is not None and group.spans[partition].low >= best:
            break
        found = _first_in(version, group, partition, at_us)
        if found is not None and found < below:
            best = found if best is None else min(best, found)
    return best


def _first_in(version: TableVersion, group: RowGroup, partition: int, at_us: int) -> int | None:
    store = version.place.store()
    file = open_file(store, group.path)
    names = (PARTITION, OFFSET, TIMESTAMP)
    try:
        rows = kernel("drop_null", columns_of(file, group.number, names, group.values))
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"could not read {store.url}/{group.path}: {first_line(error)}") from error
    times = ints_of(as_type(rows[TIMESTAMP], pa.timestamp("us", rows[TIMESTAMP].type.tz)))
    late = (ints_of(rows[PARTITION]) == partition) & (times >= at_us)
    return int(np.min(ints_of(rows[OFFSET])[late])) if late.any() else None
