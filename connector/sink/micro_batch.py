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

import uuid
from dataclasses import dataclass, replace

from connector.errors import ConnectorError
from connector.options.sink_options import SinkOptions
from connector.task_properties import BATCH_ID, QUERY_ID, query_run, task_property


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchId:
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


def streaming_micro_batch(options: SinkOptions) -> MicroBatchId:
    """Only within a task: a driver has to be told by its tasks."""
    query, batch = task_property(QUERY_ID), task_property(BATCH_ID)
    if not query or not batch:
        raise ConnectorError(
            "NO_BATCH_ID",
            "this version of Spark does not tell a task its query and batch id; "
            "deliveryGuarantee=at-least-once does without",
        )
    return MicroBatchId(
        sink=options.sink_id or query, query=query, batch=int(batch), run=query_run()
    )


def batch_write_id(options: SinkOptions) -> MicroBatchId:
    """Once for a job: the writer carries it to the tasks and to the commit."""
    from storage_engine.client.micro_batches import repeatable_query, unrepeatable_query

    if options.sink_id is not None and options.batch_id is not None:
        part, number = options.sink_part, options.batch_id
        name = repeatable_query(part, number)
        return MicroBatchId(sink=options.sink_id, query=name, batch=number, part=part)
    sink = options.sink_id or str(uuid.uuid4())
    return MicroBatchId(sink=sink, query=unrepeatable_query(), batch=0)


def with_streaming_query(batch: MicroBatchId) -> MicroBatchId:
    """A batch write, with the streaming query that it is a part of; only within a task. The writer
    is made in a process that Spark tells nothing."""
    owner = task_property(QUERY_ID)
    if batch.part is None or not owner:
        return batch
    return replace(batch, owner=owner, run=query_run())
