"""Batch reads and writes of the data source as Spark drives them, in the process of the test: the
schema is asked for first, and each task has a pickled copy of the reader or writer.

Spark's own part, its plans and the way of an error through the JVM, is in
`integration_tests/spark`.
"""

import pickle
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema

from connector.data_source import HeadraceDataSource


class Read:
    """A batch read that is planned: its tasks, and the rows that they yield."""

    def __init__(self, servers: str, **options: str) -> None:
        source = _source(servers, options)
        reader = source.reader(source.schema())
        self.tasks: Sequence[InputPartition] = reader.partitions()
        self._pickled = pickle.dumps(reader)

    def table(self) -> pa.Table:
        """The rows of all tasks, in the order of partitions and offsets where these are read."""
        batches = [
            batch
            for task in pickle.loads(pickle.dumps(self.tasks))
            for batch in pickle.loads(self._pickled).read(task)
        ]
        found = pa.Table.from_batches(batches)
        places = [name for name in ("partition", "offset") if name in found.column_names]
        if not places:
            return found
        return found.sort_by([(name, "ascending") for name in places])


def write(servers: str, *tasks: pa.Table, **options: str) -> None:
    """One job with a task for each table. A task that fails ends the job, whose writer then aborts
    what the others have written."""
    writer = _source(servers, options).writer(from_arrow_schema(tasks[0].schema), overwrite=False)
    pickled = pickle.dumps(writer)
    messages: list[WriterCommitMessage | None] = [None] * len(tasks)
    try:
        for number, rows in enumerate(tasks):
            messages[number] = pickle.loads(pickled).write(iter(rows.to_batches()))
    except Exception:
        pickle.loads(pickled).abort(messages)
        raise
    pickle.loads(pickled).commit(messages)


def values(texts: Iterable[object]) -> pa.Table:
    """Rows that are a value each."""
    return pa.table({"value": pa.array([str(text) for text in texts], pa.string())})


def _source(servers: str, options: dict[str, str]) -> HeadraceDataSource:
    return HeadraceDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": servers} | options))
