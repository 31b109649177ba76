"""Writes rows into Parquet files of a good size, in the order in which they come.

A file's name tells its age and that it is ours: `headrace-<order>-<uuid>.parquet`. Files lie flat
in the table's location; what divides them stands in the table's log.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace_lake.delta.encodings import writer_options
from headrace_lake.delta.exact_arrays import with_exact_types
from headrace_lake.delta.statistics import file_statistics
from headrace_lake.delta.store import ObjectWriter, TableStore, first_line
from headrace_lake.protocol.stops import StopKind, TableStoppedError
from storage_engine.core.printable import printable

TARGET_BYTES = 128 * 2**20
"""The size at which a file is closed, if not given."""

ROW_GROUP_BYTES = 32 * 2**20
"""The size of rows in memory: they are written together, so that columns are compressed well."""

MOST_OPEN_FILES = 200
"""The most of one batch, each for another value of the columns that divide the files."""

_NAME = re.compile(r"headrace-(\d{20})-[0-9a-f]{32}\.parquet")

PartitionValues = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that is whole and that no commit names yet."""

    path: str
    size_bytes: int
    rows: int
    partition: PartitionValues
    statistics: str
    """As JSON, for the table's log."""


def new_path(order: int) -> str:
    """Return a name that no file has; `order` is the version for which the oldest of its rows are
    written."""
    return f"headrace-{order:020d}-{uuid.uuid4().hex}.parquet"


def order_of(path: str) -> int | None:
    """Return the order of a file of ours; None for another file."""
    found = _NAME.fullmatch(path)
    return None if found is None else int(found[1])


class RowFiles:
    """The files of one batch; not for several threads.

    `schema` has the columns that rows are given with, `partition_by` those of them by which files
    are divided.
    """

    def __init__(
        self,
        store: TableStore,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        *,
        order: int,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._store = store
        self._schema = schema
        self._partition_by = tuple(partition_by)
        self._order = order
        self._target_bytes = target_bytes
        self._open: dict[PartitionValues, _OpenFile] = {}
        self._done: list[DataFile] = []

    @property
    def buffered_bytes(self) -> int:
        """Return how many bytes of rows are in memory, not yet in a file."""
        return sum(each.buffered_bytes for each in self._open.values())

    @property
    def written_bytes(self) -> int:
        """Return how many bytes the files have so far."""
        done = sum(each.size_bytes for each in self._done)
        return done + sum(each.written_bytes for each in self._open.values())

    def write(self, rows: pa.Table) -> None:
        """Add rows, which have the columns of the schema; types are made its own, where Arrow casts
        one to the other without loss.

        StoreError when the store fails; then `abandon` is all that can be done.
        """
        if not rows.num_rows:
            return
        rows = with_exact_types(rows, self._schema)
        if not self._partition_by:
            return self._write_to((), rows)
        for values, part in _divided(rows, self._partition_by):
            self._write_to(values, part)

    def flush(self) -> None:
        """Write the rows that are in memory, however few: a caller has many tables in its own."""
        for each in self._open.values():
            each.flush()

    def finish(self) -> list[DataFile]:
        """Return the files, whole and in the store."""
        for values in list(self._open):
            self._close(values)
        return self._done

    def abandon(self) -> None:
        """Remove what was written, as far as the store does it; a sweep takes the rest."""
        paths = [each.path for each in self._done] + [each.path for each in self._open.values()]
        self._open.clear()
        self._done = []
        for path in paths:
            self._store.delete(path)

    def write_partition(self, values: PartitionValues, rows: pa.Table) -> None:
        """Add rows without the columns that divide the files, which have these values."""
        if rows.num_rows:
            self._write_to(values, rows)

    def _write_to(self, values: PartitionValues, rows: pa.Table) -> None:
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= MOST_OPEN_FILES:
                raise TableStoppedError(
                    StopKind.COLUMNS,
                    f"{printable(self._store.url)}: rows of one commit have more than "
                    f"{MOST_OPEN_FILES} values of {', '.join(self._partition_by)}: divide the "
                    "table's files by a column with fewer values, in a table at another location",
                )
            file = _OpenFile(self._store, new_path(self._order), rows.schema)
            self._open[values] = file
        file.add(rows)
        if file.written_bytes >= self._target_bytes:
            self._close(values)

    def _close(self, values: PartitionValues) -> None:
        self._done.append(self._open[values].close(values))
        del self._open[values]


class _OpenFile:
    def __init__(self, store: TableStore, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.buffered_bytes = 0
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._with_nan: set[str] = set()
        self._metadata: list[pq.FileMetaData] = []
        self._floats = [each.name for each in schema if pa.types.is_floating(each.type)]
        self._sink = _CountedSink(store.writer(path))
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            metadata_collector=self._metadata,
            **writer_options(schema)._asdict(),
        )

    @property
    def written_bytes(self) -> int:
        return self._sink.written_bytes

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self.buffered_bytes += rows.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def flush(self) -> None:
        self._write_group()

    def close(self, values: PartitionValues) -> DataFile:
        self._write_group()
        self._writer.close()
        self._sink.finish()
        metadata = self._metadata[0]
        return DataFile(
            path=self.path,
            size_bytes=self._sink.written_bytes,
            rows=metadata.num_rows,
            partition=values,
            statistics=file_statistics(metadata, self._schema, self._with_nan),
        )

    def _write_group(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting.clear()
        self.buffered_bytes = 0
        for name in self._floats:
            if name not in self._with_nan and pc.any(pc.is_nan(rows[name])).as_py():
                self._with_nan.add(name)
        try:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        except pa.ArrowInvalid as error:
            raise TableStoppedError(
                StopKind.COLUMNS, f"rows do not fit the columns of their topic: {first_line(error)}"
            ) from error


class _CountedSink:
    """The sink of the writer of Parquet, which closes it also when it failed, so that this
    must not make a file of it."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer
        self.written_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._writer.write(data)
        self.written_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self.closed = True

    def finish(self) -> None:
        self._writer.close()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _divided(rows: pa.Table, partition_by: Sequence[str]) -> list[tuple[PartitionValues, pa.Table]]:
    """Return the rows of each combination of values, without these columns and in their order."""
    place = "\x00place"
    keys = rows.select(list(partition_by)).append_column(place, pa.array(np.arange(rows.num_rows)))
    grouped = keys.group_by(list(partition_by), use_threads=False).aggregate([(place, "list")])
    rest = rows.drop_columns(list(partition_by))
    values = grouped.select(list(partition_by)).to_pylist()
    found = []
    for each, places in zip(values, grouped[f"{place}_list"], strict=True):
        named = tuple((name, _text(each[name])) for name in partition_by)
        found.append((named, rest.take(places.values)))
    return found


def _text(value: object) -> str | None:
    """Return a value as the table's log has it. Delta can't tell an empty text from none."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
