"""A task attempt of the exactly-once sink: it writes in a transaction of its own. Its one rule:
what it hands to the driver is acknowledged in full, and what it doesn't hand over it gives up.

    no rows                     nothing to commit, no transaction
    join: ALREADY_COMMITTED     an earlier run has written these rows: drop them, say so
    join: a member              write in it; the driver commits it, if Spark takes this attempt
    the member ended meanwhile  join once more: ALREADY_COMMITTED, or an error: Spark tries again

Source: R-SPARK2, "Task and driver" of the page on the exactly-once sink.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.heartbeats import Heartbeats
from connector.options import SinkOptions
from connector.record_writer import gather, write_gathered
from connector.sink_batch import SinkBatch
from storage_engine.client.cluster import Cluster
from storage_engine.client.sink_batches import Member, MemberId, SinkBatches
from storage_engine.core.errors import (
    ErrorCode,
    HeadraceError,
    KafkaError,
    UnsupportedVersionError,
)

logger = logging.getLogger(__name__)

GIVE_UP_MS = 5_000
"""For a best effort to abort. What is missed then ends with the next commit, or by timeout."""

_ENDED = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""What a member is told that has been aborted."""


@dataclass(frozen=True, kw_only=True)
class WrittenMember(WriterCommitMessage):
    """What a task attempt tells its driver; the driver knows the batch from here alone."""

    batch: SinkBatch
    member: MemberId | None
    """None where there is nothing to commit: no rows, or drained."""

    drained: bool
    """The coordinator said that the batch is committed, so the rows were dropped."""

    rows: int


def write_member(
    options: SinkOptions, batch: SinkBatch, pieces: Iterable[pa.RecordBatch]
) -> WrittenMember:
    """Writes and waits. ConnectorError for a row that can't be written, when the delivery timeout
    has passed, or when the transaction has ended and the batch is not committed."""
    gathered = gather(pieces)
    with in_one_line(), Heartbeats(options, batch):
        first = next(gathered, None)
        if first is None:
            return WrittenMember(batch=batch, member=None, drained=False, rows=0)
        cluster = cluster_for(options.connection)
        batches = _batches(options, cluster, batch)
        member = join(batches, options, batch)
        if member is None:
            return _drained(batch, gathered)
        try:
            with _given_up_unless_written(cluster, batch, member):
                written = write_gathered(options, cluster, first, gathered, transaction=member)
        except KafkaError as error:
            if error.code not in _ENDED:
                raise
            if _is_committed(batches, options, cluster, batch):
                return _drained(batch, gathered)
            raise ConnectorError(
                "MEMBER_LOST",
                f"the transaction of a task was ended while it wrote: {error}; nothing of it is "
                "read, the task has to run again",
            ) from None
        return WrittenMember(batch=batch, member=member.id, drained=False, rows=written.rows)


def join(batches: SinkBatches, options: SinkOptions, batch: SinkBatch) -> Member | None:
    """`SinkBatches.join`; ConnectorError where the brokers are not Headrace's."""
    try:
        return batches.join(batch.batch, timeout_ms=options.transaction_timeout_ms)
    except UnsupportedVersionError as error:
        raise ConnectorError(
            "EXACTLY_ONCE_NOT_SERVED",
            f"{error}; only Headrace's brokers commit micro-batches, "
            "deliveryGuarantee=at-least-once writes to others",
        ) from None


def give_up(cluster: Cluster, batch: SinkBatch, members: Iterable[MemberId]) -> None:
    """Abort them, as well as can be."""
    try:
        SinkBatches(cluster, batch.sink, batch.query, deadline_ms=GIVE_UP_MS).abort(list(members))
    except HeadraceError as error:
        logger.warning("what a failed task wrote is not given up yet: %s", error)


@contextmanager
def _given_up_unless_written(cluster: Cluster, batch: SinkBatch, member: Member) -> Iterator[None]:
    """An open transaction holds up the readers of its partitions."""
    written = False
    try:
        yield
        written = True
    finally:
        if not written:
            give_up(cluster, batch, [member.id])


def _batches(options: SinkOptions, cluster: Cluster, batch: SinkBatch) -> SinkBatches:
    return SinkBatches(cluster, batch.sink, batch.query, deadline_ms=options.delivery_timeout_ms)


def _is_committed(
    batches: SinkBatches, options: SinkOptions, cluster: Cluster, batch: SinkBatch
) -> bool:
    again = join(batches, options, batch)
    if again is not None:
        give_up(cluster, batch, [again.id])
    return again is None


def _drained(batch: SinkBatch, rest: Iterator[pa.RecordBatch]) -> WrittenMember:
    for _ in rest:
        pass
    return WrittenMember(batch=batch, member=None, drained=True, rows=0)
