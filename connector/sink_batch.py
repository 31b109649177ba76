"""Which micro-batch of which query on which sink a task writes for. Its one rule: a replay finds
the same three names, and nobody else ever has them.

    streaming    sink: `sinkId`, else the query id   query: the query id     batch: Spark's batch id
    batch write  sink: `sinkId`, else a new name     query: once, a new name batch: 0
      with `batchId`   `sinkId`                             REPEATABLE           `batchId`

The query id is in the checkpoint: a restarted query has it again, a new checkpoint a new one. A
batch write has nothing of that kind unless the user names it; brokers forget it after some days.
Source: R-SPARK2.
"""

import uuid
from dataclasses import dataclass

from connector.errors import ConnectorError
from connector.options import SinkOptions

REPEATABLE = "batch-writes"
"""The query id of batch writes with `batchId`: those of one sink are one sequence."""

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch (FACTS.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBatch:
    """A micro-batch, as the transaction coordinator counts it."""

    sink: str
    query: str
    batch: int


def streaming_batch(options: SinkOptions) -> SinkBatch:
    """Only within a task: a driver has to be told by its tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if not query or not batch:
        raise ConnectorError(
            "NO_BATCH_ID",
            "this version of Spark does not tell a task its query and batch id; "
            "deliveryGuarantee=at-least-once does without",
        )
    return SinkBatch(sink=options.sink_id or query, query=query, batch=int(batch))


def batch_write(options: SinkOptions) -> SinkBatch:
    """Once for a job: the writer carries it to the tasks and to the commit."""
    if options.sink_id is not None and options.batch_id is not None:
        return SinkBatch(sink=options.sink_id, query=REPEATABLE, batch=options.batch_id)
    from storage_engine.client.sink_batches import unrepeatable_query

    sink = options.sink_id or str(uuid.uuid4())
    return SinkBatch(sink=sink, query=unrepeatable_query(), batch=0)
