"""From what the user said (`offset_specs.py`) to offsets that exist. Its one rule: an offset that
the log does not have is a loss told in one line, or with failOnDataLoss=false a warning and the
nearest that it has.

Source: Spark's Kafka connector: startingOffsets, endingOffsets and their timestamp forms
(FACTS.md).
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal, Protocol, assert_never
from uuid import UUID

from connector.errors import ConnectorError, DataLossError, OptionError
from connector.offset_specs import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Everywhere,
    OffsetSpec,
    PerPartition,
    PerPartitionTimestamp,
)
from connector.offsets import OffsetRange
from storage_engine.core.ids import TopicPartition

logger = logging.getLogger(__name__)

NO_OFFSET = -1
"""ListOffsets' answer where no record is at or after the time."""

GO_ON_HINT = "set failOnDataLoss=false to go on with the records that are there"


class OffsetLookup(Protocol):
    """Asks the cluster; EARLIEST and LATEST stand for the ends of the log."""

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Per partition the first offset at or after the time, NO_OFFSET where there is none."""
        ...


def report_losses(losses: Iterable[str], *, fail_on_data_loss: bool) -> None:
    """DataLossError for the first of `losses`, or a warning for each."""
    for loss in losses:
        if fail_on_data_loss:
            raise DataLossError("DATA_LOSS", f"{loss}; {GO_ON_HINT}")
        logger.warning("records may be missing: %s", loss)


def resolve(
    spec: OffsetSpec,
    partitions: Iterable[TopicPartition],
    lookup: OffsetLookup,
    *,
    which: Literal["starting", "ending"],
    fail_on_data_loss: bool,
    fall_back_to_latest: bool,
) -> dict[TopicPartition, int]:
    """An offset for each of `partitions`."""
    wanted = set(partitions)
    match spec:
        case Everywhere():
            return lookup.offsets_at(dict.fromkeys(wanted, spec.special))
        case PerPartition():
            _check_same(wanted, spec.offsets, option=f"{which}Offsets")
            return _resolve_explicit(
                spec, lookup, option=f"{which}Offsets", fail_on_data_loss=fail_on_data_loss
            )
        case AtTimestamp():
            timestamps_ms: Mapping[TopicPartition, int] = dict.fromkeys(wanted, spec.timestamp_ms)
            option = f"{which}Timestamp"
        case PerPartitionTimestamp():
            timestamps_ms, option = spec.timestamps_ms, f"{which}OffsetsByTimestamp"
            _check_same(wanted, timestamps_ms, option=option)
        case _:
            assert_never(spec)
    return _resolve_times(
        timestamps_ms, lookup, option=option, or_latest=fall_back_to_latest or which == "ending"
    )


def clip_to_logs(
    ranges: Iterable[OffsetRange], lookup: OffsetLookup, *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """`ranges` without what the logs no longer begin with; a loss is reported before Spark starts
    tasks for it."""
    ranges = list(ranges)
    earliest = lookup.offsets_at({each.topic_partition: EARLIEST for each in ranges})
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
    """`ranges` of `partitions`, which there are now, in topics that still have the same id; and in
    sentences why the others can't be read any more."""
    kept, losses = [], []
    for each in ranges:
        topic = each.topic_partition.topic
        if each.topic_partition not in partitions:
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


def _resolve_explicit(
    spec: PerPartition, lookup: OffsetLookup, *, option: str, fail_on_data_loss: bool
) -> dict[TopicPartition, int]:
    earliest = lookup.offsets_at(dict.fromkeys(spec.offsets, EARLIEST))
    latest = lookup.offsets_at(dict.fromkeys(spec.offsets, LATEST))
    resolved = {}
    for topic_partition, offset in spec.offsets.items():
        low, high = earliest[topic_partition], latest[topic_partition]
        special = {EARLIEST: low, LATEST: high}.get(offset)
        if special is None and not low <= offset <= high:
            loss = (
                f"'{option}' names offset {offset} of {topic_partition}, "
                f"which has the offsets from {low} to {high}"
            )
            report_losses([loss], fail_on_data_loss=fail_on_data_loss)
        resolved[topic_partition] = min(max(offset, low), high) if special is None else special
    return resolved


def _resolve_times(
    timestamps_ms: Mapping[TopicPartition, int],
    lookup: OffsetLookup,
    *,
    option: str,
    or_latest: bool,
) -> dict[TopicPartition, int]:
    found = lookup.offsets_at(timestamps_ms)
    without = sorted(each for each, offset in found.items() if offset == NO_OFFSET)
    if without and not or_latest:
        raise ConnectorError(
            "NO_OFFSET_FOR_TIMESTAMP",
            f"'{option}': {without[0]} has no record at or after {timestamps_ms[without[0]]}; set "
            "startingOffsetsByTimestampStrategy=latest to begin at its end",
        )
    return found | lookup.offsets_at(dict.fromkeys(without, LATEST))


def _check_same(
    wanted: set[TopicPartition], named: Mapping[TopicPartition, int], *, option: str
) -> None:
    for topic_partition in sorted(wanted - named.keys()):
        raise OptionError(
            "BAD_OPTION",
            f"'{option}' must name every partition that is read, and lacks {topic_partition}",
        )
    for topic_partition in sorted(named.keys() - wanted):
        raise OptionError("BAD_OPTION", f"'{option}' names {topic_partition}, which is not read")
