"""Which ranges share a task: each record is in one task, whatever the ranges and options are."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from connector.source.offset_range import OffsetRange, total_records
from connector.source.range_packing import (
    LARGE_RECORDS,
    WORTH_A_TASK_RECORDS,
    TaskLimits,
    pack_ranges,
)
from connector.source.range_tasks import split_ranges
from storage_engine.core.ids import TopicPartition

TWO_CORES = TaskLimits(parallelism=2)


def _range(partition, size, start=7):
    tp = TopicPartition("t", partition)
    return OffsetRange(topic_partition=tp, start_offset=start, end_offset=start + size)


def _ranges(*sizes):
    return [_range(number, size) for number, size in enumerate(sizes)]


def _sizes(tasks):
    return [total_records(task) for task in tasks]


def test_a_small_batch_of_many_partitions_gets_a_task_for_each_core():
    assert _sizes(pack_ranges(_ranges(*[1_666] * 6), TWO_CORES)) == [4_998, 4_998]
    assert len(pack_ranges(_ranges(*[50] * 200), TaskLimits(parallelism=16))) == 16


def test_so_few_records_that_a_task_costs_more_are_read_by_one():
    assert len(pack_ranges(_ranges(*[WORTH_A_TASK_RECORDS // 10] * 10), TWO_CORES)) == 1
    assert len(pack_ranges(_ranges(*[WORTH_A_TASK_RECORDS // 10] * 11), TWO_CORES)) == 2


def test_a_large_batch_gets_whole_rounds_of_tasks():
    packed = pack_ranges(_ranges(*[5_000] * 200), TaskLimits(parallelism=4))
    assert len(packed) == 4 * -(-200 * 5_000 // (4 * LARGE_RECORDS))


def test_a_large_range_has_a_task_of_its_own_and_small_ones_share_the_others():
    packed = pack_ranges(_ranges(LARGE_RECORDS, *[2_000] * 5), TWO_CORES)
    assert _sizes(packed) == [LARGE_RECORDS, 6_000, 4_000]


def test_a_skewed_batch_is_packed_by_records_and_not_by_ranges():
    assert _sizes(pack_ranges(_ranges(9_000, *[1_000] * 9), TWO_CORES)) == [9_000, 9_000]


def test_where_the_parallelism_is_not_known_only_what_is_hardly_worth_a_task_is_joined():
    packed = pack_ranges(_ranges(*[100] * 200, *[5_000] * 3), TaskLimits())
    assert _sizes(packed)[-3:] == [5_000] * 3
    assert len(packed) == 200 * 100 // WORTH_A_TASK_RECORDS + 3


def test_the_number_of_tasks_that_is_asked_for_is_never_gone_below():
    limits = TaskLimits(parallelism=2, min_tasks=5, min_records=1_000)
    assert len(pack_ranges(_ranges(*[10] * 6), limits)) == 5
    assert len(pack_ranges(_ranges(*[10] * 6), replace(limits, min_records=None))) == 5


def test_tasks_have_the_asked_number_of_records_as_far_as_there_are_any():
    limits = TaskLimits(min_records=1_000)
    assert all(each >= 1_000 for each in _sizes(pack_ranges(_ranges(*[700] * 40), limits)))
    assert _sizes(pack_ranges(_ranges(300, 5_000, 600), limits)) == [900, 5_000]


sizes = st.lists(st.integers(1, 1000), min_size=1, max_size=30)
some = st.none() | st.integers(1, 1200)


@given(
    sizes,
    st.none() | st.integers(0, 1500),
    some,
    st.dictionaries(st.integers(0, 29), st.integers(1, 1200)),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 20),
)
def test_tasks_cover_each_offset_once_in_order_and_within_all_bounds(
    sizes, min_records, max_records, by_size, min_partitions, parallelism
):
    if min_records is not None and max_records is not None:
        min_records = min(min_records, max_records)
    max_offsets = {TopicPartition("t", number): most for number, most in by_size.items()}
    whole = _ranges(*sizes)
    pieces = split_ranges(
        whole,
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
        max_offsets_by_size=max_offsets,
    )
    limits = TaskLimits(
        min_records=min_records,
        max_records=max_records,
        max_offsets_by_size=max_offsets,
        min_tasks=min_partitions or 1,
        parallelism=parallelism,
    )
    tasks = pack_ranges(pieces, limits)

    assert sorted(map(str, (each for task in tasks for each in task))) == sorted(map(str, pieces))
    for task in tasks:
        order = [(each.topic_partition, each.start_offset) for each in task]
        assert order == sorted(order)
        assert len({each.topic_partition for each in task}) == len(task)
        assert max_records is None or total_records(task) <= max_records
        shares = [
            len(each) / max_offsets[each.topic_partition]
            for each in task
            if each.topic_partition in max_offsets
        ]
        assert sum(shares) <= 1 + 1e-9
    assert len(tasks) >= min(min_partitions or 1, len(pieces))
    if min_records in (0, 1):
        assert len(tasks) == len(pieces)
    for least in filter(None, [min_records]):
        if max_records is None and not max_offsets and min_partitions is None:
            assert sum(each < least for each in _sizes(tasks)) <= 1
