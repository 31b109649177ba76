"""Losses: records that a query has to read and the logs no longer have. A loss is an error, or
with failOnDataLoss=false a warning, after which reading goes on with the records that exist."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from connector.errors import DataLossError
from connector.options.offset_specs import EARLIEST
from connector.source.offset_range import OffsetLookup, OffsetRange
from storage_engine.core.ids import TopicPartition

logger = logging.getLogger(__name__)

GO_ON_HINT = "set failOnDataLoss=false to go on with the records that are there"


def report_losses(losses: Iterable[str], *, fail_on_data_loss: bool) -> None:
    """DataLossError for the first of `losses`, or else a warning for each."""
    for loss in losses:
        if fail_on_data_loss:
            raise DataLossError("DATA_LOSS", f"{loss}; {GO_ON_HINT}")
        logger.warning("records may be missing: %s", loss)


def earliest_of(ranges: Iterable[OffsetRange], lookup: OffsetLookup) -> dict[TopicPartition, int]:
    """Where the logs of the ranges begin."""
    return lookup.offsets_at({each.topic_partition: EARLIEST for each in ranges})


def clip_to_logs(
    ranges: Iterable[OffsetRange], lookup: OffsetLookup, *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """`ranges` without the offsets below the start of the logs. A loss is reported here, before
    Spark starts tasks."""
    ranges = list(ranges)
    earliest = earliest_of(ranges, lookup)
    clipped = []
    for offset_range in ranges:
        first = earliest[offset_range.topic_partition]
        if first <= offset_range.start_offset:
            clipped.append(offset_range)
            continue
        report_losses(
            [
                f"offset {offset_range.start_offset} of {offset_range.topic_partition} is wanted, "
                f"but the log begins at {first}"
            ],
            fail_on_data_loss=fail_on_data_loss,
        )
        if first < offset_range.end_offset:
            clipped.append(replace(offset_range, start_offset=first))
    return clipped


def keep_existing(
    ranges: Iterable[OffsetRange],
    partitions: Collection[TopicPartition],
    topic_ids: Mapping[str, UUID],
) -> tuple[list[OffsetRange], list[str]]:
    """The ranges whose partitions still exist, in topics that still have the same id; and for each
    other range a sentence with the reason why it can't be read any more."""
    kept, losses = [], []
    existing = set(partitions)
    for each in ranges:
        topic = each.topic_partition.topic
        if each.topic_partition not in existing:
            losses.append(
                f"{each.topic_partition}, wanted from offset {each.start_offset} to "
                f"{each.end_offset}, is gone"
            )
        elif each.topic_id is not None and topic_ids.get(topic, each.topic_id) != each.topic_id:
            losses.append(
                f"{each.topic_partition} is wanted from offset {each.start_offset} to "
                f"{each.end_offset}, but its topic was deleted and created again since"
            )
        else:
            kept.append(each)
    return kept, losses
