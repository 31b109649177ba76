"""Resolves the user's specifications (`options/offset_specs.py`) to offsets that exist. An offset
that the log does not have is a loss, or with failOnDataLoss=false a warning and the nearest offset
that it has.

Source: startingOffsets, endingOffsets and their timestamp forms of Spark's Kafka connector.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from connector.errors import ConnectorError, OptionError
from connector.options.offset_specs import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Everywhere,
    OffsetSpec,
    PerPartition,
    PerPartitionTimestamp,
)
from connector.source.data_loss import report_losses
from connector.source.offset_range import NO_OFFSET, OffsetLookup
from storage_engine.core.ids import TopicPartition


def resolve(
    spec: OffsetSpec,
    partitions: Iterable[TopicPartition],
    lookup: OffsetLookup,
    *,
    which: str,
    fail_on_data_loss: bool,
    fall_back_to_latest: bool,
) -> dict[TopicPartition, int]:
    """An offset for each of `partitions`. `which`: starting or ending."""
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
