"""A task attempt of the exactly-once sink. It writes in a transaction of its own, as a member of
the micro-batch. What it reports to the driver is acknowledged in full, and what it does not report
it aborts.

    no rows                     no transaction, nothing to commit
    join: ALREADY_COMMITTED     an earlier run has written these rows: drop them, and say so
    join: a member              write in its transaction, which the driver commits
    the member was aborted      join again: ALREADY_COMMITTED drops the rows, else it is an error
                                and Spark runs the task again

Source: R-SPARK2; docs/sink-protocol.md.
"""

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options.sink_options import SinkOptions
from connector.sink.heartbeats import Heartbeats
from connector.sink.micro_batch import MicroBatchId
from connector.sink.origin_filter import OriginFilter
from connector.sink.origin_sources import source_names
from connector.sink.record_writer import checked, gather, write_gathered
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

if TYPE_CHECKING:
    from connector.sink.columns_sink import ColumnsSink

logger = logging.getLogger(__name__)

ABORT_TIMEOUT_MS = 5_000
"""Aborting is a best effort. A transaction that is not aborted in this time ends with the next
commit, or by its timeout."""

_ABORTED_CODES = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a member whose transaction was aborted."""


@dataclass(frozen=True, kw_only=True)
class TaskAttemptResult(WriterCommitMessage):
    """The message of a task attempt to the driver, which knows the micro-batch from here alone."""

    batch: MicroBatchId
    member: MemberId | None
    """The attempt's member; None where the task had no rows, or has drained them."""

    drained: bool
    """The coordinator answered that the batch is committed, so the rows were dropped."""

    rows: int
    """The number of rows that were written."""

    dropped: int = 0
    """The number of rows that were not written, because the batch is committed or the sink holds
    them already."""

    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The highest offset written from each source partition, inclusive, with `idempotentKey`."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """The name that each topic has in `origins`."""


def write_in_transaction(
    options: SinkOptions,
    batch: MicroBatchId,
    pieces: Iterable[pa.RecordBatch],
    typed: "ColumnsSink | None" = None,
) -> TaskAttemptResult:
    """Writes all rows and waits until they are acknowledged. `typed`: what their columns are
    written as. ConnectorError for a row that can't be written, when the delivery timeout has
    passed, or when the transaction was aborted and the batch is not committed."""
    gathered = gather(pieces)
    with in_one_line(), Heartbeats(options, batch):
        first = next(gathered, None)
        if first is None:
            return TaskAttemptResult(batch=batch, member=None, drained=False, rows=0)
        cluster = cluster_for(options.connection)
        batches = micro_batches(cluster, batch, deadline_ms=options.delivery_timeout_ms)
        rows = _CountedRows(itertools.chain((first,), gathered))
        member, committed = join(batches, options, batch)
        origins = _origin_filter(options, committed)
        if member is None:
            return _drain(batch, rows, origins)
        # A failing write must leave `rows` usable, so neither of these is a generator.
        right = checked(options, typed, rows)
        fresh = right if origins is None else map(origins.fresh, right)
        try:
            with _aborted_unless_written(cluster, batch, member):
                written = write_gathered(options, cluster, fresh, transaction=member, typed=typed)
        except KafkaError as error:
            if error.code not in _ABORTED_CODES:
                raise
            is_committed, committed = _is_committed(batches, options, cluster, batch)
            if is_committed:
                return _drain(batch, rows, _origin_filter(options, committed), before=origins)
            raise ConnectorError(
                "MEMBER_LOST",
                f"the transaction of a task was ended while it wrote: {error}; its rows are not "
                "read, and the task must run again",
            ) from None
        result = TaskAttemptResult(batch=batch, member=member.id, drained=False, rows=written.rows)
        return result if origins is None else _with_origins(result, origins)


def join(
    batches: MicroBatches, options: SinkOptions, batch: MicroBatchId
) -> tuple[MicroBatchMember | None, Origins]:
    """The member, None where the batch is committed, and the origins that the sink has committed.
    ConnectorError where the brokers are not Headrace's, or are older than the connector."""
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
    """Aborts the members' transactions, as a best effort. The write goes on in other attempts."""
    of_tasks = replace(batch, claim=None)
    give_up(cluster, of_tasks, members, deadline_ms=ABORT_TIMEOUT_MS)


def give_up(
    cluster: Cluster, batch: MicroBatchId, members: Iterable[MemberId], *, deadline_ms: int
) -> None:
    """Aborts the members' transactions and gives the whole write up, as a best effort."""
    try:
        micro_batches(cluster, batch, deadline_ms=deadline_ms).abort(list(members))
    except HeadraceError as error:
        logger.warning("the transactions of %s are not aborted yet: %s", batch, error)


@contextmanager
def _aborted_unless_written(
    cluster: Cluster, batch: MicroBatchId, member: MicroBatchMember
) -> Iterator[None]:
    """An open transaction holds up the read_committed readers of its partitions."""
    written = False
    try:
        yield
        written = True
    finally:
        if not written:
            abort_attempts(cluster, batch, [member.id])


def micro_batches(cluster: Cluster, batch: MicroBatchId, *, deadline_ms: int) -> MicroBatches:
    """The client's requests for this micro-batch."""
    return MicroBatches(
        cluster,
        batch.sink,
        batch.query,
        owner=batch.owner,
        run=batch.run,
        claim=batch.claim,
        deadline_ms=deadline_ms,
    )


def _origin_filter(options: SinkOptions, committed: Origins) -> OriginFilter | None:
    """Returns None without `idempotentKey`. `committed` holds the origins that the sink has
    committed."""
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


def _with_origins(result: TaskAttemptResult, origins: OriginFilter) -> TaskAttemptResult:
    if origins.dropped:
        logger.warning(
            "%s: a task has dropped %d rows that the sink has by origin",
            result.batch,
            origins.dropped,
        )
    return replace(
        result, origins=origins.highest, sources=origins.sources, dropped=origins.dropped
    )


def _drain(
    batch: MicroBatchId,
    rest: "_CountedRows",
    origins: OriginFilter | None,
    *,
    before: OriginFilter | None = None,
) -> TaskAttemptResult:
    """Drops the rest of the rows. What the task has written before counts as dropped, too, since it
    was aborted; `before` is the filter that has let it through."""
    if origins is not None and before is not None:
        origins.check_passed(before)
    for piece in rest:
        if origins is not None:
            origins.check_committed(piece)
    logger.warning("%s is committed already: a task has dropped its %d rows", batch, rest.rows)
    return TaskAttemptResult(batch=batch, member=None, drained=True, rows=0, dropped=rest.rows)


class _CountedRows:
    """Iterates over Arrow record batches and counts the rows of those that were taken."""

    def __init__(self, pieces: Iterator[pa.RecordBatch]) -> None:
        self._pieces = pieces
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        piece = next(self._pieces)
        self.rows += piece.num_rows
        return piece
