"""Puts small files together beside the writers.

The rows stay what they are: the commit changes no data, so that writers, and readers of changes,
take no notice. It is made on a version in which all the files are still active.
"""

import uuid
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from headrace_lake.delta.batch_commits import MOST_CONFLICTS
from headrace_lake.delta.data_files import TARGET_BYTES, DataFile, RowFiles
from headrace_lake.delta.store import StoreError, TableStore, first_line
from headrace_lake.delta.table import LakeTable
from headrace_lake.protocol.attempts import may_replace
from headrace_lake.protocol.compaction_plan import LakeFile, plan_compaction

READ_ROWS = 65_536
"""At a time, so that a rewrite needs little memory."""

NO_LIMIT = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """How much was put together."""

    files_before: int = 0
    files_after: int = 0
    bytes_written: int = 0


def compact(
    table: LakeTable, target_bytes: int = TARGET_BYTES, *, whole_tail: bool = False
) -> CompactionResult:
    """Put files together until the plan has nothing more to do.

    `table` is one of its own, not that of a writer, so that a writer in another thread goes on.
    """
    before = after = written = 0
    while True:
        table.reload()
        plans = plan_compaction(table.files(), target_bytes, whole_tail=whole_tail)
        for group in plans:
            made = _put_together(table, group)
            if made is not None:
                before += len(group)
                after += 1
                written += made.size_bytes
        if not plans:
            return CompactionResult(files_before=before, files_after=after, bytes_written=written)


def _put_together(table: LakeTable, group: tuple[LakeFile, ...]) -> DataFile | None:
    """Return the file that holds the group's rows now; None when others changed them meanwhile."""
    base_version = table.version
    files = _rewritten(table.store, group)
    (made,) = files.finish()
    paths = [each.path for each in group]
    commit_id = uuid.uuid4().hex
    for _ in range(MOST_CONFLICTS):
        if table.is_stale:
            table.reload()
        state = table.state(())
        if commit_id in state.landed:
            return made
        active = {each.path for each in table.files()}
        if not may_replace(paths, base_version, active, state):
            files.abandon()
            return None
        if table.replace(group, [made], commit_id):
            return made
    raise StoreError(f"{MOST_CONFLICTS} commits of others came before a compaction: trying again")


def _rewritten(store: TableStore, group: tuple[LakeFile, ...]) -> RowFiles:
    first = group[0]
    readers = [_opened(store, each.path) for each in group]
    schema = pa.unify_schemas([each.schema_arrow for each in readers]).remove_metadata()
    files = RowFiles(store, schema, order=min(each.order for each in group), target_bytes=NO_LIMIT)
    try:
        for reader in readers:
            for batch in reader.iter_batches(READ_ROWS):
                rows = pa.Table.from_batches([batch])
                files.write_partition(first.partition, _with_all(rows, schema))
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"could not read a file of {store.url}: {first_line(error)}") from error
    return files


def _opened(store: TableStore, path: str) -> pq.ParquetFile:
    local = store.local_path(path)
    try:
        return pq.ParquetFile(local if local is not None else store.reader(path), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"could not open {store.url}/{path}: {first_line(error)}") from error


def _with_all(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns that only later files have, as nulls."""
    columns = [
        rows[each.name] if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
