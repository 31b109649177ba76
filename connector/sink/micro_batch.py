"""The id of a micro-batch. A replay has the same id, and no other micro-batch ever has it.

    kind                    sink                     query                    batch
    streaming               `sinkId`, or the query   the query's id           Spark's batch id
    batch write             `sinkId`, or a new name  a new name               0
    batch write, `batchId`  `sinkId`                 made of part and number  `batchId`

The query's id is in the checkpoint: a restarted query has the same one, a new checkpoint another.
Each number of a part of a sink is a query of its own, so that jobs of different numbers don't
depend on each other; within `foreachBatch` such a job belongs to the streaming query, which is its
owner. The brokers forget a batch write without a number after some days. Source: R-SPARK2.
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
    """The option `sinkPart`; None except for a named batch write."""
    owner: str = ""
    """The id of the streaming query whose `foreachBatch` makes this named batch write."""
    run: uuid.UUID | None = None
    """The run of the streaming query. None where Spark does not say it."""

    def __str__(self) -> str:
        if self.part is not None:
            return f"batchId {self.batch} of sink '{self.sink}', part '{self.part}'"
        return f"batch {self.batch} of sink '{self.sink}', query '{self.query}'"


def streaming_micro_batch(options: SinkOptions) -> MicroBatchId:
    """The micro-batch of the task that calls this. A driver does not know it."""
    query, batch = task_property(QUERY_ID), task_property(BATCH_ID)
    if not query or not batch:
        raise ConnectorError(
            "NO_BATCH_ID",
            "this version of Spark does not pass the query and batch id to tasks; "
            "use deliveryGuarantee=at-least-once, which needs neither",
        )
    return MicroBatchId(
        sink=options.sink_id or query, query=query, batch=int(batch), run=query_run()
    )


def batch_write_id(options: SinkOptions) -> MicroBatchId:
    """The id of one job. To be called once: the writer carries it to the tasks and to the
    commit."""
    from storage_engine.client.micro_batches import named_write_query, unnamed_write_query

    if options.sink_id is not None and options.batch_id is not None:
        part, number = options.sink_part, options.batch_id
        query = named_write_query(part, number)
        return MicroBatchId(sink=options.sink_id, query=query, batch=number, part=part)
    sink = options.sink_id or str(uuid.uuid4())
    return MicroBatchId(sink=sink, query=unnamed_write_query(), batch=0)


def with_streaming_query(batch: MicroBatchId) -> MicroBatchId:
    """The id of a batch write with the streaming query that it is a part of, which only a task
    knows."""
    owner = task_property(QUERY_ID)
    if batch.part is None or not owner:
        return batch
    return replace(batch, owner=owner, run=query_run())
