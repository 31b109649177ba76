"""Which ranges share a task of Spark. Pure.

A task has a cost of its own, whatever it reads, so small ranges are read together by one task. A
range that was cut, or that is large enough for a task of its own, stays alone. The rest is packed
by size, the largest first into the task that has the least, so that tasks are even.

Rule: every range is in one task, and no limit of the user is passed.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connector.source.offset_range import OffsetRange, total_records
from storage_engine.core.ids import TopicPartition

WORTH_A_TASK_RECORDS = 500
"""Fewer records don't gain from another task: also where Python needs 0.1 ms for each of them, they
take less time than the task itself."""

LARGE_RECORDS = 100_000
"""A task of so many records costs little beside them. 1,000,000 records of 200 partitions, on two
cores: 3.1 s with this, 4.0 s with two tasks, 10.4 s with 200."""

Task = tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """The options for the size and the number of tasks. None, or no entry: no limit."""

    min_records: int | None = None
    """0 or 1: each range has a task of its own. None: the default, by `parallelism`."""

    max_records: int | None = None
    max_offsets_by_size: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How many offsets of a partition make up the most bytes of a task."""

    min_tasks: int = 1
    parallelism: int | None = None
    """How many tasks Spark runs at the same time. None: not known."""


def pack_ranges(ranges: Sequence[OffsetRange], limits: TaskLimits) -> list[Task]:
    """The ranges of each task, all in the order of partitions and offsets. No range is empty, and
    several of one partition are what a cut has left of it."""
    enough = limits.min_records
    if enough is None:
        enough = WORTH_A_TASK_RECORDS if limits.parallelism is None else LARGE_RECORDS
    parts: dict[TopicPartition, int] = {}
    for each in ranges:
        parts[each.topic_partition] = parts.get(each.topic_partition, 0) + 1
    small = [each for each in ranges if len(each) < enough and parts[each.topic_partition] == 1]
    shared = set(small)
    alone: list[Task] = [(each,) for each in ranges if each not in shared]
    count = _wanted_tasks(total_records(small), limits)
    count = min(len(small), max(count, limits.min_tasks - len(alone)))
    packed = _packed(small, count, limits)
    if limits.min_records is not None:
        while _is_below(packed, limits.min_records) and len(packed) > 1:
            fewer = len(packed) - max(1, len(packed) // 16)
            if fewer + len(alone) < limits.min_tasks:
                break
            again = _packed(small, fewer, limits)
            if len(again) >= len(packed):
                # The greatest size of a task does not allow it.
                break
            packed = again
    return sorted([*alone, *packed], key=lambda task: _place(task[0]))


def _wanted_tasks(records: int, limits: TaskLimits) -> int:
    """How many tasks the small ranges of so many records should have."""
    if not records:
        return 0
    if limits.min_records is not None:
        return max(1, records // max(1, limits.min_records))
    worth = math.ceil(records / WORTH_A_TASK_RECORDS)
    if limits.parallelism is None:
        return worth
    # Whole rounds, or cores would be idle in the last one.
    rounds = math.ceil(records / (limits.parallelism * LARGE_RECORDS))
    return min(worth, rounds * limits.parallelism)


def _is_below(packed: Sequence[Task], min_records: int) -> bool:
    return any(total_records(task) < min_records for task in packed)


def _packed(ranges: Sequence[OffsetRange], count: int, limits: TaskLimits) -> list[Task]:
    """`ranges` in `count` tasks, or in more where a limit asks for it."""
    loads = [(0, number) for number in range(count)]
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    filled = [0.0] * count
    for each in sorted(ranges, key=len, reverse=True):
        records, number = loads[0]
        share = len(each) / limits.max_offsets_by_size.get(each.topic_partition, math.inf)
        too_many = limits.max_records is not None and records + len(each) > limits.max_records
        if tasks[number] and (too_many or filled[number] + share > 1):
            records, number = 0, len(tasks)
            tasks.append([])
            filled.append(0.0)
            heapq.heappush(loads, (len(each), number))
        else:
            heapq.heapreplace(loads, (records + len(each), number))
        tasks[number].append(each)
        filled[number] += share
    return [tuple(sorted(task, key=_place)) for task in tasks if task]


def _place(offset_range: OffsetRange) -> tuple[TopicPartition, int]:
    return offset_range.topic_partition, offset_range.start_offset
