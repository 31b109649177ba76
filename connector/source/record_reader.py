"""Reads the ranges of a task. Every record of a range is yielded once, in order within its
partition; records of aborted transactions only with read_uncommitted. A broker that dies only
delays it.

A range that can't be read holds up no other one of its task: the others are read first, and only
then it is asked for again, and is a loss or an error. Source: R-SPARK1, R-CLI5.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.connections import cluster_for
from connector.errors import DataLossError, in_one_line
from connector.options.offset_specs import LATEST
from connector.options.source_options import SourceOptions
from connector.options.subscription import AssignedPartitions
from connector.source.data_loss import keep_existing, report_losses
from connector.source.offset_range import OffsetRange
from connector.source.record_decoding import RangeDecoding, RecordDecoding
from connector.source.shared_reader import UnreadRange, fetch_ranges
from connector.source.source_metadata import SourceMetadata
from connector.source.typed.typed_read import TypedRead
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.source.avro.avro_read import AvroRead
    from connector.source.tables.table_rows import SliceTask


def read_task(
    options: SourceOptions,
    task: "tuple[OffsetRange, ...] | SliceTask",
    *,
    plan: "TypedRead | AvroRead | None",
) -> "Iterator[pa.RecordBatch]":
    """The rows of a task, which reads ranges of logs or a part of a table."""
    if isinstance(task, tuple):
        return read_records(options, task, plan=plan)
    from connector.source.tables.table_rows import read_table

    return read_table(options, task, plan)


def read_records(
    options: SourceOptions,
    wanted: Sequence[OffsetRange],
    *,
    plan: "TypedRead | AvroRead | None" = None,
) -> "Iterator[pa.RecordBatch]":
    """The records of `wanted` as rows of the source's schema, or with the columns of `plan`.
    Topics with an id are fetched by it, so that none of the records is of a topic that was created
    again under the name."""
    metadata = SourceMetadata(options.connection, isolation_level=options.isolation_level)
    failures: list[HeadraceError] = []
    with in_one_line():
        decoding = _decoding(options, plan)
        existing, doubtful = _by_existence(options, metadata, wanted)
        unread: list[UnreadRange] = []
        if len(existing) > 1:
            yield from _read_together(options, decoding, existing, unread)
        elif existing:
            yield from _read_alone(options, metadata, decoding, existing[0], plan)
        for each in _found_again(options, metadata, doubtful, failures):
            rows = _read_alone(options, metadata, decoding, each, plan)
            yield from _unless_it_fails(rows, failures)
        for left, error in unread:
            if isinstance(error, DeadlineExceededError) and _has_timed_out(failures):
                # The task fails anyhow; another minute of waiting gains nothing.
                continue
            rows = _read_alone(options, metadata, decoding, left, plan, error)
            yield from _unless_it_fails(rows, failures)
        if failures:
            raise failures[0]


def _decoding(options: SourceOptions, plan: "TypedRead | AvroRead | None") -> RangeDecoding:
    if plan is None:
        return RecordDecoding(options)
    if isinstance(plan, TypedRead):
        from connector.source.typed.typed_decoding import TypedDecoding

        return TypedDecoding(options, plan)
    from connector.source.avro.avro_decoding import AvroDecoding

    return AvroDecoding(plan)


def _by_existence(
    options: SourceOptions, metadata: SourceMetadata, wanted: Sequence[OffsetRange]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The ranges whose topics have the right ids, by metadata that may be a little old, and those
    that may be lost. Where brokers know no ids, reading shows it."""
    identified = [each for each in wanted if each.topic_id is not None]
    if not identified:
        return list(wanted), []
    now = metadata.find(
        _partitions_of(identified), max_age_ms=options.connection.metadata_max_age_ms
    )
    kept, _ = keep_existing(identified, now.partitions, now.topic_ids)
    doubtful = set(identified) - set(kept)
    return (
        [each for each in wanted if each not in doubtful],
        [each for each in wanted if each in doubtful],
    )


def _found_again(
    options: SourceOptions,
    metadata: SourceMetadata,
    doubtful: Sequence[OffsetRange],
    failures: list[HeadraceError],
) -> list[OffsetRange]:
    """The ranges of `doubtful` that still exist. The others are a loss."""
    if not doubtful:
        return []
    found, losses = metadata.keep_existing(doubtful)
    try:
        report_losses(losses, fail_on_data_loss=options.fail_on_data_loss)
    except DataLossError as failure:
        failures.append(failure)
    return found


def _unless_it_fails(
    rows: "Iterator[pa.RecordBatch]", failures: list[HeadraceError]
) -> "Iterator[pa.RecordBatch]":
    try:
        yield from rows
    except HeadraceError as failure:
        failures.append(failure)


def _has_timed_out(failures: Iterable[HeadraceError]) -> bool:
    return any(isinstance(each, DeadlineExceededError) for each in failures)


def _partitions_of(ranges: Iterable[OffsetRange]) -> AssignedPartitions:
    return AssignedPartitions(partitions=tuple(each.topic_partition for each in ranges))


def _read_together(
    options: SourceOptions,
    decoding: RangeDecoding,
    ranges: Sequence[OffsetRange],
    unread: list[UnreadRange],
) -> "Iterator[pa.RecordBatch]":
    """Adds to `unread` the ranges that could not be read."""
    ends = {each.topic_partition: each.end_offset for each in ranges}
    fetches = fetch_ranges(
        options,
        ranges,
        unread,
        typed_wants=decoding.wanted(ranges),
    )
    yield from decoding.together(fetches, ends)


def _read_alone(
    options: SourceOptions,
    metadata: SourceMetadata,
    decoding: RangeDecoding,
    wanted: OffsetRange,
    plan: "TypedRead | AvroRead | None",
    error: HeadraceError | None = None,
) -> "Iterator[pa.RecordBatch]":
    """`error`: the error that ended an earlier attempt."""
    left = wanted
    while len(left):
        if error is not None and options.tables is not None:
            begin = left.start_offset
            left, rows = _of_table(options, left, plan, error)
            yield from rows
            if left.start_offset > begin:
                error = None
                continue
        if error is not None:
            left, error = _after(options, metadata, left, error), None
            continue
        try:
            fetches = fetch_ranges(options, [left], typed_wants=decoding.wanted([left]))
            for rows, next_offset in decoding.alone(fetches, left):
                yield from rows
                left = replace(left, start_offset=next_offset)
            return
        except (KafkaError, DeadlineExceededError) as failure:
            # What was fetched and is not decoded yet is read again, too.
            error = failure


def _of_table(
    options: SourceOptions,
    left: OffsetRange,
    plan: "TypedRead | AvroRead | None",
    error: HeadraceError,
) -> "tuple[OffsetRange, Iterator[pa.RecordBatch]]":
    """The rest of `left`, and the rows before it that are in a table, where retention has taken
    them since the range was planned."""
    if not isinstance(error, OffsetOutOfRangeError) or left.start_offset >= error.log_start_offset:
        return left, iter(())
    from connector.source.tables.deleted_records import read_deleted

    return read_deleted(options, left, error.log_start_offset, plan)


def _after(
    options: SourceOptions, metadata: SourceMetadata, left: OffsetRange, error: HeadraceError
) -> OffsetRange:
    """The rest of `left` to read after `error`. Raises `error` where no retry helps, or a loss."""
    strict = options.fail_on_data_loss
    match error:
        case LogTruncatedError():
            # Rows of the records that were cut off are written already and stay.
            report_losses([str(error)], fail_on_data_loss=strict)
            return left
        case OffsetOutOfRangeError():
            return _after_gap(options, left, error)
        case DeadlineExceededError():
            leader = cluster_for(options.connection).known_leader(left.topic_partition)
            shorter = None if leader is None else _what_is_there(options, left)
            if shorter is not None:
                return shorter
        case KafkaError(code=ErrorCode.OFFSET_OUT_OF_RANGE):
            # A shared fetch leaves it to this one to find out more.
            return left
        case KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.UNKNOWN_TOPIC_ID):
            found, losses = metadata.keep_existing([left])
            report_losses(losses, fail_on_data_loss=strict)
            return left if found else replace(left, start_offset=left.end_offset)
    raise error


def _after_gap(
    options: SourceOptions, left: OffsetRange, error: OffsetOutOfRangeError
) -> OffsetRange:
    """The rest of `left` where the log has lost the next offset, by retention or a truncation since
    the range was planned. DataLossError with failOnDataLoss."""
    loss = (
        f"offset {left.start_offset} of {left.topic_partition} is wanted, but the log has the "
        f"offsets from {error.log_start_offset} to {error.log_end_offset}"
    )
    report_losses([loss], fail_on_data_loss=options.fail_on_data_loss)
    is_before = left.start_offset < error.log_start_offset
    return replace(left, start_offset=error.log_start_offset if is_before else left.end_offset)


def _what_is_there(options: SourceOptions, left: OffsetRange) -> OffsetRange | None:
    """`left` up to the end of the log, after nothing came for kafkaConsumer.pollTimeoutMs. Where
    the log now ends before `left` does, that is a loss; None where it does not."""
    topic_partition = left.topic_partition
    cluster = cluster_for(options.connection)
    latest = cluster.list_offsets({topic_partition: LATEST}, isolation=options.isolation_level)
    if latest[topic_partition] >= left.end_offset:
        return None
    loss = (
        f"{topic_partition} is wanted up to offset {left.end_offset}, but now ends at "
        f"{latest[topic_partition]}"
    )
    report_losses([loss], fail_on_data_loss=options.fail_on_data_loss)
    return replace(left, end_offset=latest[topic_partition])
