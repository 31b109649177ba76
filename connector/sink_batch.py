"""Which micro-batch of which query on which sink a task writes for. Its one rule: a replay finds
the same three names, and nobody else ever has them.

    streaming    sink: `sinkId`, else the query id   query: the query id     batch: Spark's batch id
    batch write  sink: `sinkId`, else a new name     query: once, a new name batch: 0
      with `batchId`   `sinkId`                             part and number         `batchId`

The query id is in the checkpoint: a restarted query has it again, a new checkpoint a new one. Each
number of a part of a sink is a query of its own, so jobs of different numbers know nothing of each
other; within `foreachBatch` it belongs to the streaming query. A batch write without a number has
nothing of that kind; brokers forget it after some days. Source: R-SPARK2.
"""

import re
import uuid
from dataclasses import dataclass, replace

from connector.errors import ConnectorError
from connector.options import SinkOptions

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"
"""Local properties that Spark sets for the tasks of a micro-batch. The description has the run of
the query, another with every start. The job group is the run at first, but it is the user's to set,
often to a UUID too, and what is set in `foreachBatch` stays there for the next micro-batches."""

_DESCRIBED = re.compile(r"id = (\S+)\s+runId = (\S+)\s+batch = (\S+)\s*$")
"""How Spark ends the description of a micro-batch's jobs; the name of the query is before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBatch:
    """A micro-batch, as the transaction coordinator counts it."""

    sink: str
    query: str
    batch: int
    part: str | None = None
    """Of a named batch write."""
    owner: str = ""
    """Of a named batch write within `foreachBatch`: the id of the streaming query."""
    run: uuid.UUID | None = None
    """Of the streaming query; None where Spark does not tell."""

    def __str__(self) -> str:
        if self.part is not None:
            return f"batchId {self.batch} of sink '{self.sink}', part '{self.part}'"
        return f"batch {self.batch} of sink '{self.sink}', query '{self.query}'"


def streaming_batch(options: SinkOptions) -> SinkBatch:
    """Only within a task: a driver has to be told by its tasks."""
    query, batch = _told(QUERY_ID), _told(BATCH_ID)
    if not query or not batch:
        raise ConnectorError(
            "NO_BATCH_ID",
            "this version of Spark does not tell a task its query and batch id; "
            "deliveryGuarantee=at-least-once does without",
        )
    return SinkBatch(sink=options.sink_id or query, query=query, batch=int(batch), run=_run())


def batch_write(options: SinkOptions) -> SinkBatch:
    """Once for a job: the writer carries it to the tasks and to the commit."""
    from storage_engine.client.sink_batches import repeatable_query, unrepeatable_query

    if options.sink_id is not None and options.batch_id is not None:
        part, number = options.sink_part, options.batch_id
        name = repeatable_query(part, number)
        return SinkBatch(sink=options.sink_id, query=name, batch=number, part=part)
    sink = options.sink_id or str(uuid.uuid4())
    return SinkBatch(sink=sink, query=unrepeatable_query(), batch=0)


def as_a_task_sees_it(batch: SinkBatch) -> SinkBatch:
    """A batch write, with the streaming query that it is a part of; only within a task. The writer
    is made in a process that Spark tells nothing."""
    owner = _told(QUERY_ID)
    if batch.part is None or not owner:
        return batch
    return replace(batch, owner=owner, run=_run())


def _told(name: str) -> str | None:
    """A local property of the task; None outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _run() -> uuid.UUID | None:
    """None where `foreachBatch` has set a description of its own: what is no run must not be taken
    for one, since two of them in turns would refuse one another."""
    described = _DESCRIBED.search(_told(DESCRIPTION) or "")
    if described is None or (described[1], described[3]) != (_told(QUERY_ID), _told(BATCH_ID)):
        return None
    try:
        return uuid.UUID(described[2])
    except ValueError:
        return None
