"""Reads the local properties of a task, which name the query that it belongs to.

Only tasks see them. A driver's writer is made in a process without them.
"""

import re
import uuid
from collections.abc import Callable

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"
"""Spark writes the id of the query's run into it; each start of a query is another run. The job
group begins as the run's id, too, but users set it, often to a UUID, and a group that is set in
`foreachBatch` stays for the next micro-batches."""
APPLICATION = ("spark.app.id", "spark.app.startTime")
ROOT_EXECUTION = "spark.sql.execution.root.id"
"""The micro-batch's execution, of which those within `foreachBatch` are parts. Spark counts them
anew in each driver."""

_DESCRIPTION_END = re.compile(r"id = (\S+)\s+runId = (\S+)\s+batch = (\S+)\s*$")
"""Spark ends the description of a micro-batch's jobs with this, after the name of the query."""


def task_property(name: str) -> str | None:
    """Returns None outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def root_execution(
    read: Callable[[str], str | None] = task_property,
) -> uuid.UUID | None:
    """An id of the execution of this task's micro-batch; a repetition of the micro-batch has
    another id. Unlike the run, it depends on no property that users set. None where Spark does not
    report it. `read` returns a local property; a driver passes its context's method."""
    parts = [read(name) for name in (*APPLICATION, ROOT_EXECUTION)]
    return None if None in parts else uuid.uuid5(uuid.NAMESPACE_OID, "/".join(map(str, parts)))


def query_run() -> uuid.UUID | None:
    """The run of the streaming query. None where `foreachBatch` has set a description of its own:
    any other id must not be taken for a run, since jobs of two runs refuse each other."""
    found = _DESCRIPTION_END.search(task_property(DESCRIPTION) or "")
    if found is None or (found[1], found[3]) != (task_property(QUERY_ID), task_property(BATCH_ID)):
        return None
    try:
        return uuid.UUID(found[2])
    except ValueError:
        return None
