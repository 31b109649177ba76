"""Where a table ends and the log begins. Pure.

The log gives what it has, and the table what lies below the start of the log. What neither has is a
loss.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from connector.source.data_loss import report_losses
from connector.source.offset_range import OffsetRange
from storage_engine.core.ids import TopicPartition


class HeldOffsets(NamedTuple):
    """The offsets of a partition that a table holds; of one that it does not know, none."""

    start: int
    """The first offset of which it has a row."""
    end: int
    """Exclusive."""


class DividedRanges(NamedTuple):
    """Ranges by where they are read."""

    of_tables: list[OffsetRange]
    of_logs: list[OffsetRange]


def divide(
    ranges: Iterable[OffsetRange],
    log_starts: Mapping[TopicPartition, int],
    held: Callable[[OffsetRange], HeldOffsets | None],
    *,
    fail_on_data_loss: bool,
) -> DividedRanges:
    """Cut the ranges at the starts of the logs. `held` is asked for those that begin below; None:
    the topic has no table, and the range stays as it is. DataLossError where records are in
    neither."""
    divided = DividedRanges([], [])
    for each in ranges:
        log_start = log_starts[each.topic_partition]
        if each.start_offset >= log_start:
            divided.of_logs.append(each)
            continue
        found = held(replace(each, end_offset=min(each.end_offset, log_start)))
        if found is None:
            divided.of_logs.append(each)
            continue
        _divide_one(each, log_start, found, divided, fail_on_data_loss=fail_on_data_loss)
    return divided


def _divide_one(
    whole: OffsetRange,
    log_start: int,
    held: HeldOffsets,
    divided: DividedRanges,
    *,
    fail_on_data_loss: bool,
) -> None:
    below = min(whole.end_offset, log_start)
    start, end = max(whole.start_offset, held.start), min(below, held.end)
    losses = []
    if start > whole.start_offset:
        losses.append(
            f"offset {whole.start_offset} of {whole.topic_partition} is wanted, but the log begins "
            f"at {log_start}, and the table at {held.start}"
        )
    if held.end < below:
        losses.append(
            f"{whole.topic_partition} is wanted from offset {whole.start_offset}, but the table "
            f"holds it up to {held.end}, and the log begins at {log_start}"
        )
    report_losses(losses[-1:], fail_on_data_loss=fail_on_data_loss)
    if start < end:
        divided.of_tables.append(replace(whole, start_offset=start, end_offset=end))
    if log_start < whole.end_offset:
        divided.of_logs.append(replace(whole, start_offset=log_start))
