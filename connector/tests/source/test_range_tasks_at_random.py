"""Whatever the ranges and the options are: the tasks have each offset once, in the order of its
partition, and pass no limit."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from connector.options.offset_specs import EARLIEST
from connector.options.source_options import parse_source_options
from connector.source import range_tasks
from connector.source.offset_range import OffsetRange, total_records
from connector.source.range_packing import LARGE_RECORDS, WORTH_A_TASK_RECORDS
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import examples

TOPIC_IDS = {"a": UUID(int=1), "b": UUID(int=2), "c": None}
MOST_PIECES = 60
"""About as many as a limit cuts all ranges into: limits follow from how much there is."""

Task = Sequence[OffsetRange]

even = st.sampled_from((10, 2 * WORTH_A_TASK_RECORDS, LARGE_RECORDS // 4)).flatmap(
    lambda most: st.lists(st.integers(0, most), max_size=40)
)
skewed = st.lists(
    st.one_of(
        st.just(0),
        st.integers(1, 30),
        st.integers(WORTH_A_TASK_RECORDS - 2, WORTH_A_TASK_RECORDS + 2),
        st.integers(LARGE_RECORDS - 2, LARGE_RECORDS + 2),
        st.integers(1, 4 * LARGE_RECORDS),
    ),
    max_size=40,
)


@dataclass(frozen=True)
class Log:
    """The wanted range of a partition, and the ends and the size that its leader reports."""

    wanted: OffsetRange
    start: int
    end: int
    size: int | None

    @property
    def bytes_of_an_offset(self) -> float | None:
        """None where there is nothing to estimate it from."""
        return self.size / (self.end - self.start) if self.size and self.end > self.start else None


@st.composite
def some_logs(draw: st.DrawFn) -> list[Log]:
    made = []
    for number, count in enumerate(draw(even | skewed)):
        topic = draw(st.sampled_from("abc"))
        start = draw(st.integers(0, 10**12))
        wanted = OffsetRange(
            topic_partition=TopicPartition(topic, number),
            start_offset=start,
            end_offset=start + count,
            topic_id=TOPIC_IDS[topic],
        )
        first = max(0, start - draw(st.integers(0, 1000)))
        if draw(st.integers(0, 9)) == 0:
            # Retention has deleted all of it meanwhile.
            first = wanted.end_offset
        # Of each offset, on average; less than one where most records were compacted away.
        average = draw(st.sampled_from((None, 0, 0.3, 1, 17, 2000)))
        size = None if average is None else int(average * (wanted.end_offset - first))
        made.append(Log(wanted, first, wanted.end_offset, size))
    return made


class Metadata:
    def __init__(self, logs: Iterable[Log]) -> None:
        self._logs = {each.wanted.topic_partition: each for each in logs}

    def log_sizes(self, partitions):
        return {tp: self._logs[tp].size for tp in partitions if self._logs[tp].size is not None}

    def offsets_at(self, timestamps_ms):
        return {
            tp: self._logs[tp].start if at == EARLIEST else self._logs[tp].end
            for tp, at in timestamps_ms.items()
        }


@st.composite
def some_cases(draw: st.DrawFn) -> tuple[list[Log], dict[str, int], int | None]:
    """Logs, options, and how many tasks Spark runs at the same time."""
    logs = draw(some_logs())
    records = total_records(each.wanted for each in logs)
    size = sum(len(each.wanted) * (each.bytes_of_an_offset or 0) for each in logs)
    options = {"minPartitions": draw(st.none() | st.integers(1, 2 * len(logs) + 2))}
    for name, whole in (("maxRecordsPerPartition", records), ("maxBytesPerPartition", size)):
        pieces = draw(st.none() | st.integers(1, MOST_PIECES))
        options[name] = None if pieces is None else max(1, int(whole / pieces))
    least = draw(st.none() | st.sampled_from((0, 1)) | st.integers(2, max(2, records)))
    if least is not None and options["maxRecordsPerPartition"] is not None:
        least = min(least, options["maxRecordsPerPartition"])
    options["minRecordsPerPartition"] = least
    given_options = {name: value for name, value in options.items() if value is not None}
    return logs, given_options, draw(st.none() | st.integers(1, 32))


def _tasks(logs: list[Log], options: Mapping[str, int], parallelism: int | None) -> list[Task]:
    required = {"bootstrap.servers": "h:1", "subscribe": "a,b,c"}
    parsed = parse_source_options(required | {name: str(each) for name, each in options.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_tasks, "known_parallelism", lambda: parallelism)
        found = range_tasks.range_tasks(parsed, Metadata(logs), [each.wanted for each in logs])
    assert {type(each) for each in found} <= {InputPartition}
    return [each.value for each in found]


def _check_each_offset_is_there_once_in_order(logs: list[Log], tasks: list[Task]) -> None:
    left = {each.wanted.topic_partition: each.wanted for each in logs}
    for piece in chain.from_iterable(tasks):
        rest = left[piece.topic_partition]
        assert 0 < len(piece) <= len(rest)
        assert piece == replace(rest, end_offset=piece.end_offset)
        left[piece.topic_partition] = replace(rest, start_offset=piece.end_offset)
    assert total_records(left.values()) == 0
    for task in tasks:
        partitions = [each.topic_partition for each in task]
        assert partitions == sorted(set(partitions)), "a shared fetch has a partition once"


def _check_limits(logs: list[Log], tasks: list[Task], options: Mapping[str, int]) -> None:
    records = total_records(each.wanted for each in logs)
    assert len(tasks) >= min(options.get("minPartitions", 0), records)
    most = options.get("maxRecordsPerPartition", records)
    assert all(total_records(task) <= most for task in tasks)
    if options.get("minRecordsPerPartition") in (0, 1):
        assert all(len(task) == 1 for task in tasks)
    if "maxBytesPerPartition" in options:
        sizes = {each.wanted.topic_partition: each.bytes_of_an_offset or 0 for each in logs}
        for task in tasks:
            size = sum(len(each) * sizes[each.topic_partition] for each in task)
            is_one_record = max(len(each) for each in task) == 1 and len(task) == 1
            assert is_one_record or size <= options["maxBytesPerPartition"] * (1 + 1e-9)


@settings(max_examples=examples(200))
@given(some_cases())
def test_each_offset_is_in_one_task_in_order_and_no_limit_is_passed(case):
    logs, options, parallelism = case
    tasks = _tasks(logs, options, parallelism)
    _check_each_offset_is_there_once_in_order(logs, tasks)
    _check_limits(logs, tasks, options)


@given(
    some_logs(), st.integers(1, 40), st.integers(0, LARGE_RECORDS // 2), st.none() | st.integers(1)
)
def test_what_shares_a_task_leaves_as_many_as_are_asked_for(logs, tasks, least, parallelism):
    options = {"minPartitions": tasks, "minRecordsPerPartition": least}
    made = _tasks(logs, options, parallelism)
    _check_each_offset_is_there_once_in_order(logs, made)
    _check_limits(logs, made, options)


@given(some_logs(), st.integers(1, 32), st.booleans())
def test_by_default_tasks_are_as_many_as_run_at_once_and_even_whatever_the_skew(
    logs, parallelism, fewer_are_enough
):
    sizes = [len(each.wanted) for each in logs if len(each.wanted)]
    # There are more by themselves, so that it changes nothing.
    options = {"minPartitions": 1} if fewer_are_enough else {}
    tasks = _tasks(logs, options, parallelism)
    _check_each_offset_is_there_once_in_order(logs, tasks)
    small = [each for each in sizes if each < LARGE_RECORDS]
    shared = Counter(total_records(task) for task in tasks)
    # A partition with so many has a task of its own.
    shared.subtract(each for each in sizes if each >= LARGE_RECORDS)
    assert min(shared.values(), default=0) >= 0
    loads = sorted(shared.elements())
    worth = -(-sum(small) // WORTH_A_TASK_RECORDS)
    rounds = -(-sum(small) // (parallelism * LARGE_RECORDS))
    assert len(loads) == min(len(small), worth, rounds * parallelism)
    if loads:
        assert loads[-1] - loads[0] <= max(small)


@given(some_logs(), st.integers(2, LARGE_RECORDS // 2), st.none() | st.integers(1, 32))
def test_tasks_have_the_asked_number_of_records_as_far_as_small_partitions_have_it(
    logs, least, parallelism
):
    tasks = _tasks(logs, {"minRecordsPerPartition": least}, parallelism)
    _check_each_offset_is_there_once_in_order(logs, tasks)
    below = [task for task in tasks if total_records(task) < least]
    together = total_records(each.wanted for each in logs if len(each.wanted) < least)
    assert len(below) == (0 < together < least)
    # Nor are more put together than is needed: a partition that has enough stays alone.
    assert all(len(each) < least for task in tasks if len(task) > 1 for each in task)
