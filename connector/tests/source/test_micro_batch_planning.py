"""Planning: which records make a micro-batch, and which task reads them."""

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from connector.source.micro_batch_planning import plan_next, restarted_partitions, share_out
from connector.source.offset_range import OffsetRange, total_records
from connector.source.range_tasks import split_ranges
from connector.source.stream_offset import StreamOffset
from storage_engine.core.ids import TopicPartition

PLAIN: dict[str, Any] = {"max_offsets": None, "topic_ids": {}}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

OLD, NEW = UUID(int=1), UUID(int=2)


def _range(topic_partition, start_offset, end_offset):
    return OffsetRange(
        topic_partition=topic_partition, start_offset=start_offset, end_offset=end_offset
    )


backlogs = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 5)),
    st.integers(0, 10_000),
    max_size=12,
)


@given(backlogs, st.integers(1, 20_000), st.integers(0, 10**9))
def test_shares_use_the_limit_in_full_and_never_exceed_a_backlog(backlog, limit, turn):
    shares = share_out(backlog, limit=limit, turn=turn)
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= shares[each] <= backlog[each] for each in backlog)


@given(backlogs, st.integers(0, 20_000), st.integers(0, 10**9))
def test_no_partition_starves_where_the_limit_allows_one_record_each(backlog, extra, turn):
    waiting = [each for each, size in backlog.items() if size > 0]
    shares = share_out(backlog, limit=len(waiting) + extra, turn=turn)
    assert all(shares[each] >= 1 for each in waiting)


def test_shares_are_in_proportion_to_the_backlog():
    shares = share_out({A0: 9000, A1: 900, B0: 100}, limit=1000, turn=0)
    assert shares == {A0: 898, A1: 91, B0: 11}


def test_a_limit_below_the_number_of_partitions_goes_round():
    positions = {A0: 0, A1: 0, B0: 0}
    for _ in range(3):
        shares = share_out(dict.fromkeys(positions, 5), limit=1, turn=sum(positions.values()))
        positions = {each: positions[each] + shares[each] for each in positions}
    assert positions == {A0: 1, A1: 1, B0: 1}


def test_a_new_partition_begins_at_its_first_record():
    start = StreamOffset(positions={A0: 10}, begins={A0: 0})
    assert restarted_partitions(start, {A0: 10, A1: 4}, {}) == [A1]
    planned = plan_next(
        start, latest={A0: 10, A1: 4}, earliest={A1: 0}, max_offsets=None, topic_ids={}
    )
    assert planned.end.positions == {A0: 10, A1: 4}
    assert planned.end.begins == {A0: 10, A1: 0}
    assert planned.losses == ()


def test_a_new_partition_whose_first_records_are_gone_is_a_loss():
    start = StreamOffset(positions={A0: 10}, begins={A0: 0})
    planned = plan_next(
        start, latest={A0: 10, A1: 4}, earliest={A1: 2}, max_offsets=None, topic_ids={}
    )
    assert planned.losses == (
        "the new partition a-1 begins at offset 2, not at 0: its first records are gone",
    )


def test_a_partition_that_is_gone_is_a_loss_and_leaves_the_offset():
    start = StreamOffset(positions={A0: 10, B0: 3}, begins={A0: 0, B0: 0})
    planned = plan_next(start, latest={A0: 12}, earliest={}, max_offsets=None, topic_ids={})
    assert planned.losses == ("b-0, read up to offset 3, is gone",)
    assert planned.end.positions == {A0: 12}


def test_a_partition_without_an_id_that_ends_before_where_we_were_is_read_from_its_first_record():
    start = StreamOffset(positions={A0: 10}, begins={A0: 0})
    assert restarted_partitions(start, {A0: 4}, {}) == [A0]
    planned = plan_next(start, latest={A0: 4}, earliest={A0: 1}, max_offsets=None, topic_ids={})
    assert len(planned.losses) == 1
    assert planned.end == StreamOffset(positions={A0: 4}, begins={A0: 1})


def test_a_log_that_was_cut_is_a_loss_and_is_read_on_from_its_end_so_that_no_record_comes_twice():
    start = StreamOffset(positions={A0: 10}, begins={A0: 0}, topic_ids={"a": OLD})
    assert restarted_partitions(start, {A0: 4}, {"a": OLD}) == []
    planned = plan_next(start, latest={A0: 4}, earliest={}, max_offsets=None, topic_ids={"a": OLD})
    assert planned.losses == ("a-0 was read up to offset 10 and now ends at 4: it was cut",)
    assert planned.end.positions == planned.end.begins == {A0: 4}


def test_a_topic_with_another_id_is_a_loss_and_read_from_its_first_record_however_long_it_is():
    start = StreamOffset(positions={A0: 10, B0: 3}, begins={A0: 0, B0: 3}, topic_ids={"a": OLD})
    latest, topic_ids = {A0: 99, A1: 7, B0: 3}, {"a": NEW, "b": OLD}
    assert restarted_partitions(start, latest, topic_ids) == [A0, A1]
    planned = plan_next(
        start, latest=latest, earliest={A0: 2, A1: 0}, max_offsets=None, topic_ids=topic_ids
    )
    assert planned.losses == (
        "a-0 was read up to offset 10, and its topic was deleted and created again since",
    )
    assert planned.end == StreamOffset(
        positions=latest, begins={A0: 2, A1: 0, B0: 3}, topic_ids=topic_ids
    )


def test_a_broker_that_tells_no_topic_ids_takes_none_away():
    start = StreamOffset(positions={A0: 10}, begins={A0: 0}, topic_ids={"a": OLD})
    planned = plan_next(start, latest={A0: 12}, earliest={}, max_offsets=None, topic_ids={})
    assert planned.losses == ()
    assert planned.end.topic_ids == {"a": OLD}


def test_ranges_are_cut_into_at_least_the_asked_number_of_tasks():
    whole = [_range(A0, 0, 100), _range(A1, 50, 60)]
    parts = split_ranges(
        whole, min_partitions=5, max_records_per_partition=None, max_offsets_by_size={}
    )
    assert len(parts) >= 5
    assert [part for part in parts if part.topic_partition == A1] == [_range(A1, 50, 60)]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
    st.dictionaries(st.integers(0, 5), st.integers(1, 300)),
)
def test_cut_ranges_cover_every_offset_once(sizes, min_partitions, max_records, by_size):
    whole = [_range(TopicPartition("t", place), 7, 7 + size) for place, size in enumerate(sizes)]
    parts = split_ranges(
        whole,
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
        max_offsets_by_size={TopicPartition("t", place): most for place, most in by_size.items()},
    )
    covered = [
        (part.topic_partition, offset)
        for part in parts
        for offset in range(part.start_offset, part.end_offset)
    ]
    assert len(covered) == len(set(covered)) == total_records(whole)
    assert all(len(part) > 0 for part in parts)
    assert all(len(part) <= by_size.get(part.topic_partition.partition, 1000) for part in parts)
    if max_records is not None:
        assert all(len(part) <= max_records for part in parts)
    if min_partitions is not None:
        assert len(parts) >= min(min_partitions, total_records(whole))
