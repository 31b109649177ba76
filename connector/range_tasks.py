"""Ranges -> what Spark's tasks read. Its one rule: options cut ranges smaller, and no option and no
failing estimate leaves a record out.
"""

from collections.abc import Iterable

from pyspark.sql.datasource import InputPartition

from connector.cluster_view import ClusterView
from connector.errors import ConnectorError
from connector.notes import tell_once
from connector.offset_specs import EARLIEST, LATEST
from connector.offsets import OffsetRange
from connector.options import SourceOptions
from connector.planning import split_ranges
from storage_engine.core.ids import TopicPartition


def range_tasks(
    options: SourceOptions, view: ClusterView, ranges: Iterable[OffsetRange]
) -> list[InputPartition]:
    """One task a range, or more where `minPartitions`, `maxRecordsPerPartition` or
    `maxBytesPerPartition` say so."""
    ranges = [each for each in ranges if len(each)]
    return [
        InputPartition(each)
        for each in split_ranges(
            ranges,
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
            max_offsets_by_size=_max_offsets_by_size(options, view, ranges),
        )
    ]


def _max_offsets_by_size(
    options: SourceOptions, view: ClusterView, ranges: Iterable[OffsetRange]
) -> dict[TopicPartition, int]:
    """How many offsets of each partition make up `maxBytesPerPartition`, by the average of its
    whole log: there is no cheap way to ask for the size of a range."""
    partitions = {each.topic_partition for each in ranges}
    if options.max_bytes_per_partition is None or not partitions:
        return {}
    try:
        sizes = view.log_sizes(partitions)
        starts = view.offsets_at(dict.fromkeys(partitions, EARLIEST))
        ends = view.offsets_at(dict.fromkeys(partitions, LATEST))
    except ConnectorError as error:
        tell_once([f"'maxBytesPerPartition' has no effect, the brokers tell no sizes: {error}"])
        return {}
    return {
        each: max(1, options.max_bytes_per_partition * (ends[each] - starts[each]) // sizes[each])
        for each in partitions
        if sizes.get(each, 0) > 0 and ends[each] > starts[each]
    }
