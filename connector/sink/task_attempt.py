"""A task attempt of the exactly-once sink: it writes in a transaction of its own. Its one rule:
what it hands to the driver is acknowledged in full, and what it doesn't hand over it gives up.

    no rows                     nothing to commit, no transaction
    join: ALREADY_COMMITTED     an earlier run has written these rows: drop them, say so
    join: a member              write in it; the driver commits it, if Spark takes this attempt
    the member ended meanwhile  join once more: ALREADY_COMMITTED, or an error: Spark tries again

Source: R-SPARK2, "Task and driver" of the page on the exactly-once sink.
"""

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options.sink_options import SinkOptions
from connector.sink.heartbeats import Heartbeats
from connector.sink.micro_batch import MicroBatchId
from connector.sink.origin_filter import OriginFilter
from connector.sink.origin_sources import source_names
from connector.sink.record_writer import gather, write_gathered
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import NotServedError
from storage_engine.client.micro_batches import MemberId, MicroBatches, MicroBatchMember, Origins
from storage_engine.core.errors import (
    ErrorCode,
    HeadraceError,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.core.ids import TopicPartition

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
class TaskAttemptResult(WriterCommitMessage):
    """What a task attempt tells its driver; the driver knows the batch from here alone."""

    batch: MicroBatchId
    member: MemberId | None
    """None where there is nothing to commit: no rows, or drained."""

    drained: bool
    """The coordinator said that the batch is committed, so the rows were dropped."""

    rows: int
    """That were written."""

    dropped: int = 0
    """That were not, because the batch is committed, or because the sink has them by origin."""

    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """With `idempotentKey`: by source partition the highest offset that was written, inclusive."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """By topic, under which name its partitions are in `origins`."""


def write_in_transaction(
    options: SinkOptions, batch: MicroBatchId, pieces: Iterable[pa.RecordBatch]
) -> TaskAttemptResult:
    """Writes and waits. ConnectorError for a row that can't be written, when the delivery timeout
    has passed, or when the transaction has ended and the batch is not committed."""
    gathered = gather(pieces)
    with in_one_line(), Heartbeats(options, batch):
        first = next(gathered, None)
        if first is None:
            return TaskAttemptResult(batch=batch, member=None, drained=False, rows=0)
        cluster = cluster_for(options.connection)
        batches = batches_of(cluster, batch, deadline_ms=options.delivery_timeout_ms)
        rows = _Counted(itertools.chain((first,), gathered))
        member, committed = join(batches, options, batch)
        origins = _origin_filter(options, committed)
        if member is None:
            return _drained(batch, rows, origins)
        # Neither closes what is behind it when a write fails: there may be more to do with it.
        fresh = rows if origins is None else map(origins.fresh, rows)
        try:
            with _given_up_unless_written(cluster, batch, member):
                written = write_gathered(options, cluster, fresh, transaction=member)
        except KafkaError as error:
            if error.code not in _ENDED:
                raise
            is_committed, committed = _is_committed(batches, options, cluster, batch)
            if is_committed:
                return _drained(batch, rows, _origin_filter(options, committed), taken=origins)
            raise ConnectorError(
                "MEMBER_LOST",
                f"the transaction of a task was ended while it wrote: {error}; nothing of it is "
                "read, the task has to run again",
            ) from None
        message = TaskAttemptResult(batch=batch, member=member.id, drained=False, rows=written.rows)
        if origins is None:
            return message
        if origins.dropped:
            logger.warning(
                "%s: a task has dropped %d rows that the sink has by origin", batch, origins.dropped
            )
        return replace(
            message,
            origins=origins.highest,
            sources=origins.sources,
            dropped=origins.dropped,
        )


def join(
    batches: MicroBatches, options: SinkOptions, batch: MicroBatchId
) -> tuple[MicroBatchMember | None, Origins]:
    """`MicroBatches.join`; ConnectorError where the brokers are not Headrace's, or older."""
    try:
        joined = batches.join(batch.batch, timeout_ms=options.transaction_timeout_ms)
    except NotServedError as error:
        raise ConnectorError(
            "EXACTLY_ONCE_NOT_SERVED",
            f"{error}; only Headrace's brokers commit micro-batches: to others, write with "
            "deliveryGuarantee=at-least-once, and without sinkId, batchId, sinkPart, idempotentKey "
            "and transaction.timeout.ms",
        ) from None
    except UnsupportedVersionError as error:
        raise ConnectorError(
            "EXACTLY_ONCE_NOT_SERVED",
            f"{error}; the brokers and this connector are of different versions of Headrace: "
            "install the connector's version on the brokers first",
        ) from None
    return (joined if isinstance(joined, MicroBatchMember) else None), joined.origins


def abort_attempts(cluster: Cluster, batch: MicroBatchId, members: Iterable[MemberId]) -> None:
    """Abort them, as well as can be."""
    try:
        batches_of(cluster, batch, deadline_ms=GIVE_UP_MS).abort(list(members))
    except HeadraceError as error:
        logger.warning("what a failed task wrote is not given up yet: %s", error)


@contextmanager
def _given_up_unless_written(
    cluster: Cluster, batch: MicroBatchId, member: MicroBatchMember
) -> Iterator[None]:
    """An open transaction holds up the readers of its partitions."""
    written = False
    try:
        yield
        written = True
    finally:
        if not written:
            abort_attempts(cluster, batch, [member.id])


def batches_of(cluster: Cluster, batch: MicroBatchId, *, deadline_ms: int) -> MicroBatches:
    """To join it, to commit it and to give it up."""
    return MicroBatches(
        cluster,
        batch.sink,
        batch.query,
        owner=batch.owner,
        run=batch.run,
        deadline_ms=deadline_ms,
    )


def _origin_filter(options: SinkOptions, committed: Origins) -> OriginFilter | None:
    """None without idempotentKey."""
    if options.origin is None:
        return None
    return OriginFilter(options.origin, committed, source_names(options.origin))


def _is_committed(
    batches: MicroBatches, options: SinkOptions, cluster: Cluster, batch: MicroBatchId
) -> tuple[bool, Origins]:
    again, committed = join(batches, options, batch)
    if again is not None:
        abort_attempts(cluster, batch, [again.id])
    return again is None, committed


def _drained(
    batch: MicroBatchId,
    rest: "_Counted",
    origins: OriginFilter | None,
    *,
    taken: OriginFilter | None = None,
) -> TaskAttemptResult:
    """Also what the task has written before counts as dropped: it was aborted. `taken`: what it let
    through until then."""
    if origins is not None and taken is not None:
        origins.check_passed(taken)
    for piece in rest:
        if origins is not None:
            origins.check_committed(piece)
    logger.warning("%s is committed already: a task has dropped its %d rows", batch, rest.rows)
    return TaskAttemptResult(batch=batch, member=None, drained=True, rows=0, dropped=rest.rows)


class _Counted:
    """Record batches, and how many rows were in those that were taken."""

    def __init__(self, pieces: Iterator[pa.RecordBatch]) -> None:
        self._pieces = pieces
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        piece = next(self._pieces)
        self.rows += piece.num_rows
        return piece
