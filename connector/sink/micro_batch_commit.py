"""The driver's side of the exactly-once sink. All that the tasks of a micro-batch have written is
committed by one request, or nothing is; and rows that are not written are reported in the log.

Source: R-SPARK2; docs/sink-protocol.md.
"""

import logging
import time
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from connector.commit_notes import ALREADY_COMMITTED, COMMITTED, SinkCommit, tell_commit
from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options.sink_options import SinkOptions
from connector.sink.micro_batch import MicroBatchId
from connector.sink.task_attempt import (
    ABORT_TIMEOUT_MS,
    TaskAttemptResult,
    give_up,
    micro_batches,
)
from storage_engine.client.micro_batches import CommitOutcome, CommitResult, MicroBatches
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.micro_batch_fields import UNKNOWN_ROWS

logger = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


def commit_micro_batch(
    options: SinkOptions, messages: Messages, batch_id: int | None = None
) -> CommitOutcome | None:
    """Commits the members that the tasks report. A batch that is committed already is a success.

    `batch_id`: Spark's number of it, None in a batch write. Returns None when there was no task.
    ConnectorError MEMBER_LOST, NOT_COMMITTED: nothing was committed, and a replay writes all of it
    again.
    """
    written = [each for each in messages if isinstance(each, TaskAttemptResult)]
    if not messages:
        return None
    batch = _common_batch(written)
    if len(written) < len(messages) or batch is None or batch_id not in (None, batch.batch):
        raise ConnectorError(
            "NOT_COMMITTED",
            f"the {len(messages)} tasks of batch {batch_id} have not all written for it: "
            f"{len(written)} wrote, for {batch}",
        )
    rows, dropped = sum(each.rows for each in written), sum(each.dropped for each in written)
    begun_s = time.monotonic()
    with in_one_line():
        batches = micro_batches(
            cluster_for(options.connection), batch, deadline_ms=options.delivery_timeout_ms
        )
        if batch_id is not None and batch.sink != batch.query:
            _claim_sink(batches, batch)
        if batch.origins is not None:
            _claim_origins(options, batch.origins)
        try:
            commit = batches.commit(
                batch.batch,
                [each.member for each in written if each.member is not None],
                drained=sum(each.drained for each in written),
                origins=_common_origins(written),
                rows=rows,
                dropped=dropped,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.MEMBER_LOST:
                raise
            raise _lost(options, batch, is_stream=batch_id is not None) from None
    _log_dropped(batch, commit, rows, dropped)
    if batch_id is not None:
        is_first = commit.outcome is CommitOutcome.COMMITTED
        tell_commit(
            SinkCommit(
                query=batch.query,
                sink=batch.sink,
                batch_id=batch.batch,
                tasks=len(written),
                rows=rows,
                duration_ms=int((time.monotonic() - begun_s) * 1000),
                outcome=COMMITTED if is_first else ALREADY_COMMITTED,
            )
        )
    return commit.outcome


def abort_members(options: SinkOptions, messages: Messages) -> None:
    """Aborts the transactions of the tasks that did not fail. Failed tasks abort their own.

    Where all tasks have written, the commit may have been asked for, and its answer may be lost:
    until the brokers know that this write has failed, another write of its name is refused.
    """
    written = [each for each in messages if isinstance(each, TaskAttemptResult)]
    members = [each.member for each in written if each.member is not None]
    if not written:
        return
    batch = written[0].batch
    may_be_committed = batch.claim is not None and len(written) == len(messages)
    if members or may_be_committed:
        deadline_ms = options.delivery_timeout_ms if may_be_committed else ABORT_TIMEOUT_MS
        give_up(cluster_for(options.connection), batch, members, deadline_ms=deadline_ms)


def close_micro_batch(options: SinkOptions, batch: MicroBatchId, messages: Messages) -> None:
    """Aborts all that any task of the batch has written or still writes, by committing it with no
    members, unless it is committed. For an id that is never used again: Spark does not report the
    writes of tasks that it has abandoned."""
    cluster = cluster_for(options.connection)
    batches = MicroBatches(cluster, batch.sink, batch.query, deadline_ms=ABORT_TIMEOUT_MS)
    try:
        batches.commit(batch.batch, [])
    except HeadraceError as error:
        logger.warning("the transactions of a failed job are not aborted yet: %s", error)
    for each in messages:
        if isinstance(each, TaskAttemptResult) and each.batch.origins is not None:
            give_up(cluster, each.batch.origins, [], deadline_ms=ABORT_TIMEOUT_MS)
            return


def _claim_sink(batches: MicroBatches, batch: MicroBatchId) -> None:
    """Notes under the query's id to which sink the micro-batch goes, so that a query that is
    restarted with another sinkId, or without one, does not write it twice."""
    try:
        batches.claim_sink(batch.batch)
    except KafkaError as error:
        # A user with the right to the sinkId alone can't have written under the query's id.
        if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise


def _claim_origins(options: SinkOptions, note: MicroBatchId) -> None:
    cluster = cluster_for(options.connection)
    batches = micro_batches(cluster, note, deadline_ms=options.delivery_timeout_ms)
    try:
        batches.commit(note.batch, [])
    except KafkaError as error:
        if error.code is not ErrorCode.BATCH_ID_TAKEN:
            raise
        micro_batch = None if note.claim is None else note.claim.micro_batch
        raise ConnectorError(
            "BATCH_ID_TAKEN",
            f"this is a second write with idempotentKey under the sinkId '{note.sink}' in "
            f"micro-batch {micro_batch}, whose rows would count as copies of the first one's: give "
            "each write a sinkId of its own",
        ) from None


def _lost(options: SinkOptions, batch: MicroBatchId, *, is_stream: bool) -> ConnectorError:
    """The error for MEMBER_LOST. The coordinator does not say why a member was lost."""
    reason = "the transaction of a task has ended meanwhile"
    if options.origin is not None:
        reason += ", or another writer has committed rows from the same sources meanwhile"
    remedy = "restart the query" if is_stream or batch.owner else "run the job again"
    return ConnectorError("MEMBER_LOST", f"{batch} is not committed, because {reason}: {remedy}")


def _log_dropped(batch: MicroBatchId, commit: CommitResult, rows: int, dropped: int) -> None:
    """Reports in the driver's log which rows are not written."""
    if commit.outcome is CommitOutcome.COMMITTED or commit.is_own:
        if dropped:
            logger.warning(
                "%s: %d rows dropped, because the sink already has rows of their origins",
                batch,
                dropped,
            )
        return
    by, rows = commit.by, rows + dropped
    by_run = f", by run {by.run}" if by.run is not None else ""
    if rows:
        logger.warning("%s: %d rows dropped, it is committed already%s", batch, rows, by_run)
    if by.rows not in (UNKNOWN_ROWS, rows):
        logger.warning(
            "%s: this replay has %d rows, the committed batch has %d; readers see only the latter",
            batch,
            rows,
            by.rows,
        )


def _common_batch(written: Sequence[TaskAttemptResult]) -> MicroBatchId | None:
    """The batch that all have written for. None where they differ."""
    batches = {each.batch for each in written}
    return batches.pop() if len(batches) == 1 else None


def _common_origins(written: Sequence[TaskAttemptResult]) -> dict[TopicPartition, int]:
    """The highest offset of all tasks by source partition. ConnectorError when two tasks know a
    topic by different ids."""
    sources: dict[str, str] = {}
    origins: dict[TopicPartition, int] = {}
    for each in written:
        for topic, name in each.sources.items():
            if sources.setdefault(topic, name) != name:
                raise ConnectorError(
                    "NOT_COMMITTED",
                    f"the topic '{topic}' was created again while rows of it were written",
                )
        for source, offset in each.origins.items():
            origins[source] = max(offset, origins.get(source, offset))
    return origins
