"""Makes the tasks of Spark of ranges: large ones are cut, small ones are read together. No option
and no failing estimate leaves a record out."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from connector.errors import ConnectorError
from connector.log_once import warn_once
from connector.options.offset_specs import EARLIEST, LATEST
from connector.options.source_options import SourceOptions
from connector.source.offset_range import OffsetRange, total_records
from connector.source.parallelism import known_parallelism
from connector.source.range_packing import TaskLimits, pack_ranges
from connector.source.source_metadata import SourceMetadata
from storage_engine.core.ids import TopicPartition


def range_tasks(
    options: SourceOptions, metadata: SourceMetadata, ranges: Iterable[OffsetRange]
) -> list[InputPartition]:
    """The ranges that each task reads, as a tuple. `minPartitions`, `maxRecordsPerPartition` and
    `maxBytesPerPartition` cut ranges; `minRecordsPerPartition` says which small ones share a
    task."""
    ranges = [each for each in ranges if len(each)]
    max_offsets_by_size = _max_offsets_by_size(options, metadata, ranges)
    pieces = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        max_offsets_by_size=max_offsets_by_size,
    )
    known = known_parallelism()
    if options.min_partitions is not None:
        known = max(options.min_partitions, known or 1)
    limits = TaskLimits(
        min_records=options.min_records_per_partition,
        max_records=options.max_records_per_partition,
        max_offsets_by_size=max_offsets_by_size,
        min_tasks=options.min_partitions or 1,
        parallelism=known,
    )
    return [InputPartition(task) for task in pack_ranges(pieces, limits)]


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None,
    max_records_per_partition: int | None,
    max_offsets_by_size: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """Ranges of at most `max_records_per_partition`, at most as many as `max_offsets_by_size`
    allows, and at least `min_partitions` ranges where there are that many offsets. All three count
    offsets: where compaction, markers or aborted records leave gaps, a task gets fewer records,
    never more.
    """
    whole = [offset_range for offset_range in ranges if len(offset_range)]
    piece = max_records_per_partition or max((len(each) for each in whole), default=1)
    if min_partitions is not None and min_partitions > len(whole):
        piece = min(piece, max(1, total_records(whole) // min_partitions))
    return [
        part
        for each in whole
        for part in _cut(each, min(piece, max_offsets_by_size.get(each.topic_partition, piece)))
    ]


def _cut(offset_range: OffsetRange, piece: int) -> list[OffsetRange]:
    size = len(offset_range)
    parts = -(-size // piece)
    bounds = [offset_range.start_offset + size * part // parts for part in range(parts + 1)]
    return [
        replace(offset_range, start_offset=start, end_offset=end) for start, end in pairwise(bounds)
    ]


def _max_offsets_by_size(
    options: SourceOptions, metadata: SourceMetadata, ranges: Iterable[OffsetRange]
) -> dict[TopicPartition, int]:
    """How many offsets of each partition make up `maxBytesPerPartition`, by the average over its
    log, because there is no cheap way to ask for the size of a range."""
    partitions = {each.topic_partition for each in ranges}
    if options.max_bytes_per_partition is None or not partitions:
        return {}
    try:
        sizes = metadata.log_sizes(partitions)
        starts = metadata.offsets_at(dict.fromkeys(partitions, EARLIEST))
        ends = metadata.offsets_at(dict.fromkeys(partitions, LATEST))
    except ConnectorError as error:
        warn_once([f"'maxBytesPerPartition' has no effect, the brokers tell no sizes: {error}"])
        return {}
    return {
        each: max(1, options.max_bytes_per_partition * (ends[each] - starts[each]) // sizes[each])
        for each in partitions
        if sizes.get(each, 0) > 0 and ends[each] > starts[each]
    }
