"""Reads one range of one partition, in a task. Every record of the range is yielded once, in order;
records of aborted transactions only with read_uncommitted. A broker that dies only delays it.

Source: R-SPARK1, R-CLI5.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options.offset_specs import LATEST
from connector.options.source_options import SourceOptions
from connector.options.subscription import AssignedPartitions
from connector.source.arrow_batches import arrow_batches
from connector.source.data_loss import report_losses
from connector.source.offset_range import OffsetRange
from connector.source.source_metadata import SourceMetadata
from storage_engine.client.fetching.range_reader import read_range
from storage_engine.core.errors import (
    DeadlineExceededError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from storage_engine.protocol.records.records import iter_decoded

GUESSED_RECORD_BYTES = 512
"""The assumed record size in a short range, which limits the fetch because records beyond its end
are thrown away. Larger records cost another fetch."""

LEAST_FETCH_BYTES = 64 * 1024

if TYPE_CHECKING:
    import pyarrow as pa

    from storage_engine.protocol.records.records import DecodedRecords


def read_records(options: SourceOptions, wanted: OffsetRange) -> "Iterator[pa.RecordBatch]":
    """The records of `wanted` as rows of the source's schema.

    Brokers serve records by the name of the topic. So its id is compared before the first record
    and after the last: ids are never reused, so all records between are of the wanted topic.
    """
    metadata = SourceMetadata(options.connection, isolation_level=options.isolation_level)
    if wanted.topic_id is not None:
        max_age_ms = options.connection.metadata_max_age_ms
        kept, losses = metadata.keep_existing([wanted], max_age_ms=max_age_ms)
        report_losses(losses, fail_on_data_loss=options.fail_on_data_loss)
        if not kept:
            return
    yield from _read_by_name(options, wanted)
    if wanted.topic_id is not None and _is_another_topic(metadata, wanted):
        raise ConnectorError(
            "TOPIC_RECREATED",
            f"the topic of {wanted.topic_partition} was deleted and created again while it was "
            "read; run the task again",
        )


def _is_another_topic(metadata: SourceMetadata, wanted: OffsetRange) -> bool:
    """Whether the name now belongs to another topic, by new metadata. A topic that is gone was read
    as it was."""
    now = metadata.find(
        AssignedPartitions(partitions=(wanted.topic_partition,)), max_age_ms=0
    ).topic_ids
    return now.get(wanted.topic_partition.topic, wanted.topic_id) != wanted.topic_id


def _read_by_name(options: SourceOptions, wanted: OffsetRange) -> "Iterator[pa.RecordBatch]":
    position = wanted.start_offset
    with in_one_line():
        while position < wanted.end_offset:
            try:
                for decoded in _decoded(options, wanted, position):
                    yield from arrow_batches(
                        decoded, wanted.topic_partition, columns=options.columns
                    )
                    position = decoded.offsets[-1].as_py() + 1
                return
            except LogTruncatedError as error:
                # Rows of the records that were cut off are written already and stay.
                report_losses([str(error)], fail_on_data_loss=options.fail_on_data_loss)
            except OffsetOutOfRangeError as error:
                position = _after_gap(options, wanted, position, error)
            except DeadlineExceededError:
                shorter = _what_is_left(options, wanted)
                if shorter is None:
                    raise
                # What was fetched and is not decoded yet is read again, too.
                wanted = shorter


def _decoded(
    options: SourceOptions, wanted: OffsetRange, position: int
) -> "Iterator[DecodedRecords]":
    guessed_bytes = (wanted.end_offset - position) * GUESSED_RECORD_BYTES
    fetched = read_range(
        cluster_for(options.connection),
        wanted.topic_partition,
        position,
        wanted.end_offset,
        max_bytes=min(options.fetch_bytes, max(guessed_bytes, LEAST_FETCH_BYTES)),
        isolation=options.isolation_level,
        timeout_ms=options.poll_timeout_ms,
    )
    return iter_decoded(
        (piece for each in fetched for piece in each.committed()),
        start_offset=position,
        end_offset=wanted.end_offset,
        include_keys="key" in options.columns,
        include_values="value" in options.columns,
        include_headers="headers" in options.columns,
    )


def _after_gap(
    options: SourceOptions, wanted: OffsetRange, position: int, error: OffsetOutOfRangeError
) -> int:
    """The offset to go on from where the log does not have `position` any more, because of
    retention or a truncation since the range was planned."""
    loss = (
        f"offset {position} of {wanted.topic_partition} is wanted, but the log has the offsets "
        f"from {error.log_start_offset} to {error.log_end_offset}"
    )
    report_losses([loss], fail_on_data_loss=options.fail_on_data_loss)
    return error.log_start_offset if position < error.log_start_offset else wanted.end_offset


def _what_is_left(options: SourceOptions, wanted: OffsetRange) -> OffsetRange | None:
    """`wanted` up to the end of the log, after nothing came for kafkaConsumer.pollTimeoutMs. Where
    the log now ends before `wanted` does, that is a loss; None where it does not."""
    topic_partition = wanted.topic_partition
    cluster = cluster_for(options.connection)
    latest = cluster.list_offsets({topic_partition: LATEST}, isolation=options.isolation_level)
    if latest[topic_partition] >= wanted.end_offset:
        return None
    loss = (
        f"{topic_partition} is wanted up to offset {wanted.end_offset}, but now ends at "
        f"{latest[topic_partition]}"
    )
    report_losses([loss], fail_on_data_loss=options.fail_on_data_loss)
    return replace(wanted, end_offset=latest[topic_partition])
