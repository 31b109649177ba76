"""The id of a micro-batch. A replay has the same id, and no other micro-batch ever has it.

    kind                    sink                     query                    batch
    streaming               `sinkId`, or the query   the query's id           Spark's batch id
    batch write             `sinkId`, or a new name  a new name               0
    batch write, `batchId`  `sinkId`                 made of part and number  `batchId`

The query's id is in the checkpoint: a restarted query has the same one, a new checkpoint another.
Each number of a part of a sink is a query of its own, so that jobs of different numbers don't
depend on each other; within `foreachBatch` such a job belongs to the streaming query, which is its
owner, and says which call of the function makes it: a second write under one name in one call is
an error, and the first one in the next call a repetition. The brokers forget a batch write without
a number after some days. Source: R-SPARK2.
"""

import uuid
from dataclasses import dataclass, field, replace

from connector.errors import ConnectorError
from connector.options.sink_options import SinkOptions
from connector.task_properties import (
    BATCH_ID,
    QUERY_ID,
    query_run,
    root_execution,
    task_property,
)
from storage_engine.protocol.apis.micro_batch_fields import ClaimedBy


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
    write: uuid.UUID | None = field(default=None, compare=False)
    """The id of this write, for a named batch write or one with `idempotentKey`; else None."""
    claim: ClaimedBy | None = None
    """Which write of the streaming query this is, where there is an owner."""
    origins: "MicroBatchId | None" = None
    """For a write with `idempotentKey` within `foreachBatch`: the name under which it records that
    it has moved the sink's origins. A second write in the same call would take its own rows for
    copies of the first write's rows."""

    def __str__(self) -> str:
        if self.part is not None:
            return f"batchId {self.batch} of sink '{self.sink}', part '{self.part}'"
        return f"batch {self.batch} of sink '{self.sink}', query '{self.query}'"


def streaming_micro_batch(options: SinkOptions) -> MicroBatchId:
    """The micro-batch of the task that calls this; not available in a driver."""
    query, batch = task_property(QUERY_ID), task_property(BATCH_ID)
    if not query or not batch:
        raise _no_batch_id()
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
        return MicroBatchId(
            sink=options.sink_id, query=query, batch=number, part=part, write=uuid.uuid4()
        )
    sink = options.sink_id or str(uuid.uuid4())
    write = None if options.origin is None else uuid.uuid4()
    return MicroBatchId(sink=sink, query=unnamed_write_query(), batch=0, write=write)


def with_streaming_query(batch: MicroBatchId) -> MicroBatchId:
    """The id of a batch write with the streaming query that it is a part of, which only tasks
    know."""
    owner, micro_batch = task_property(QUERY_ID), task_property(BATCH_ID)
    if batch.write is None or not owner:
        return batch
    attempt = root_execution()
    if not micro_batch or attempt is None:
        raise _no_batch_id()
    claim = ClaimedBy(int(micro_batch), attempt, batch.write)
    if batch.part is not None:
        return replace(batch, owner=owner, run=query_run(), claim=claim)
    return replace(batch, origins=_of_origins(batch.sink, owner, claim))


def _of_origins(sink: str, owner: str, claim: ClaimedBy) -> MicroBatchId:
    """A name for each micro-batch, which the brokers may forget: numbers of one part would never
    end, and each micro-batch without such a write would be a gap between them."""
    from storage_engine.client.micro_batches import origins_note_query

    return MicroBatchId(
        sink=sink,
        query=origins_note_query(owner, claim.micro_batch),
        batch=0,
        owner=owner,
        run=query_run(),
        claim=claim,
    )


def _no_batch_id() -> ConnectorError:
    return ConnectorError(
        "NO_BATCH_ID",
        "this version of Spark does not pass to tasks which query, micro-batch and execution they "
        "belong to; use deliveryGuarantee=at-least-once, which needs none of it",
    )
