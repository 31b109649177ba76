"""Which filters narrow a batch read, and by how much."""

import pickle
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from connector.data_source import HeadraceDataSource
from connector.options.offset_specs import EARLIEST, LATEST
from connector.options.source_options import parse_source_options
from connector.source.offset_range import OffsetRange
from connector.source.pushdown.narrowing import Narrowing, narrow
from connector.source.pushdown.reader import PUSHDOWN_WORKER, HeadracePushdownReader
from storage_engine.core.ids import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _range(topic_partition, start_offset, end_offset):
    return OffsetRange(
        topic_partition=topic_partition, start_offset=start_offset, end_offset=end_offset
    )


WHOLE = [_range(A0, 0, 100), _range(A1, 50, 60), _range(B0, 0, 10)]


def _clip(*filters):
    narrowing, left = narrow(filters)
    return [
        (each.topic_partition, each.start_offset, each.end_offset) for each in narrowing.clip(WHOLE)
    ], left


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (EqualTo(("partition",), 1), {A1}),
        (Not(EqualTo(("partition",), 1)), {A0, B0}),
        (GreaterThan(("partition",), 0), {A1}),
        (LessThan(("partition",), 1), {A0, B0}),
        (LessThanOrEqual(("partition",), 1), {A0, A1, B0}),
        (In(("partition",), (1, 7)), {A1}),
        (Not(In(("partition",), (1, 7))), {A0, B0}),
        (IsNull(("partition",)), set()),
        (EqualTo(("topic",), "b"), {B0}),
        (StringStartsWith(("topic",), "a"), {A0, A1}),
        (GreaterThanOrEqual(("topic",), "b"), {B0}),
    ],
)
def test_whole_partitions_are_left_out_and_nothing_is_left_for_spark(one, kept):
    clipped, left = _clip(one)
    assert {each[0] for each in clipped} == kept
    assert left == []


@pytest.mark.parametrize(
    ("one", "start", "end"),
    [
        (EqualTo(("offset",), 55), 55, 56),
        (GreaterThan(("offset",), 55), 56, 60),
        (GreaterThanOrEqual(("offset",), 55), 55, 60),
        (LessThan(("offset",), 55), 50, 55),
        (LessThanOrEqual(("offset",), 55), 50, 56),
        (In(("offset",), (54, 53, 55)), 53, 56),
    ],
)
def test_offsets_are_clipped_at_the_very_bound(one, start, end):
    clipped, left = _clip(one, EqualTo(("partition",), 1))
    assert clipped == [(A1, start, end)]
    assert left == []


def test_offsets_with_gaps_are_clipped_to_their_hull_and_filtered_again():
    one = In(("offset",), (52, 58))
    assert _clip(one, EqualTo(("partition",), 1)) == ([(A1, 52, 59)], [one])


def test_conjunctions_narrow_by_all_their_parts_and_may_leave_nothing():
    parts = [EqualTo(("topic",), "a"), GreaterThan(("offset",), 54), LessThan(("offset",), 70)]
    assert _clip(*parts) == ([(A0, 55, 70), (A1, 55, 60)], [])
    assert _clip(*parts, LessThan(("offset",), 55)) == ([], [])


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        Not(EqualTo(("offset",), 55)),
        EqualTo(("partition",), None),
        In(("partition",), (1, None)),
        In(("offset",), ()),
        In(("offset",), (1, None)),
        EqualTo(("topic", "inner"), "a"),
        EqualTo(("timestamp",), datetime(2000, 1, 1)),
        LessThan(("timestamp",), EPOCH + timedelta(days=1)),
        GreaterThan(("timestamp",), EPOCH - timedelta(days=1)),
    ],
)
def test_what_is_not_understood_narrows_nothing_and_is_left_to_spark(one):
    assert narrow([one]) == (Narrowing(), [one])


def test_columns_that_are_never_null_need_no_look():
    filters = [IsNotNull((name,)) for name in ("topic", "partition", "offset", "timestamp")]
    assert narrow(filters) == (Narrowing(), [])


@pytest.mark.parametrize(
    ("one", "least_ms"),
    [
        (GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=7)), 7),
        (GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=7)), 8),
        (GreaterThan(("timestamp",), EPOCH + timedelta(microseconds=7001)), 8),
        (GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(microseconds=7001)), 8),
        (EqualTo(("timestamp",), EPOCH + timedelta(milliseconds=7)), 7),
        (In(("timestamp",), [EPOCH + timedelta(milliseconds=each) for each in (9, 7)]), 7),
        (GreaterThanOrEqual(("timestamp",), EPOCH), 0),
    ],
)
def test_times_give_the_first_whole_millisecond_that_passes_and_are_filtered_again(one, least_ms):
    assert narrow([one]) == (Narrowing(start_timestamp_ms=least_ms), [one])


def test_a_range_begins_at_the_first_record_that_is_late_enough():
    narrowing = Narrowing(start_timestamp_ms=5)
    clipped = narrowing.begin_at(WHOLE, {A0: 70, A1: 20, B0: -1})
    assert clipped == [_range(A0, 70, 100), _range(A1, 50, 60)]
    assert narrowing.begin_at(WHOLE[:1], {A0: 100}) == []


_COMPARED: dict[type[Filter], Any] = {
    EqualTo: lambda found, wanted: found == wanted,
    GreaterThan: lambda found, wanted: found > wanted,
    GreaterThanOrEqual: lambda found, wanted: found >= wanted,
    LessThan: lambda found, wanted: found < wanted,
    LessThanOrEqual: lambda found, wanted: found <= wanted,
}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(_COMPARED, key=str)),
            st.sampled_from(["partition", "offset"]),
            st.integers(-2, 12),
        ),
        max_size=5,
    )
)
def test_exactly_the_rows_that_pass_all_filters_are_left(parts):
    ranges = [_range(TopicPartition("t", each), each, 10) for each in range(4)]
    narrowing, left = narrow([kind((column,), value) for kind, column, value in parts])
    rows = {
        (each.topic_partition.partition, offset)
        for each in narrowing.clip(ranges)
        for offset in range(each.start_offset, each.end_offset)
    }
    expected = {
        (partition, offset)
        for partition in range(4)
        for offset in range(partition, 10)
        if all(
            _COMPARED[kind](partition if column == "partition" else offset, value)
            for kind, column, value in parts
        )
    }
    assert left == []
    assert rows == expected


def _source():
    return HeadraceDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})


def test_only_where_spark_hands_over_filters_does_a_reader_take_them(monkeypatch):
    source = _source()
    assert not isinstance(source.reader(source.schema()), HeadracePushdownReader)
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))
    assert isinstance(source.reader(source.schema()), HeadracePushdownReader)


class Logs:
    """Partition p of topic t has the offsets 0 to 9, offset o with the time 1000 p + o."""

    def __init__(self):
        self.partitions = tuple(TopicPartition("t", each) for each in range(3))
        self.topic_ids: dict[str, Any] = {}

    def find_all(self, subscription):
        return self

    def offsets_at(self, timestamps_ms):
        return {each: self._offset_at(each, at) for each, at in timestamps_ms.items()}

    def _offset_at(self, topic_partition, at_ms):
        if at_ms in (EARLIEST, LATEST):
            return {EARLIEST: 0, LATEST: 10}[at_ms]
        offset = max(0, at_ms - 1000 * topic_partition.partition)
        return offset if offset < 10 else -1


def test_a_reader_plans_what_the_filters_leave_and_takes_it_to_its_tasks():
    reader = HeadracePushdownReader(
        parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"})
    )
    late = GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=1003))
    assert list(reader.pushFilters([late, LessThan(("offset",), 8)])) == [late]
    reader = pickle.loads(pickle.dumps(reader))
    reader._metadata = Logs()
    (task,) = reader.partitions()
    assert list(map(str, task.value)) == ["t-1 [4, 8)", "t-2 [0, 8)"]
