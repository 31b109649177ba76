"""The bytes of the index files, the search in them, and that indexes agree with the log: R-LOG3."""

import struct
from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.segments.indexes import (
    PENDING_MAX_BYTES,
    IndexFile,
    OffsetIndex,
    TimeIndex,
    count_up_to,
)
from storage_engine.tests.log.support import append, check_indexes, open_log, segment_files


def test_entries_are_those_of_the_format(tmp_path):
    log = open_log(tmp_path)
    for number in range(6):
        append(log, 2, payload=bytes(139), timestamp_ms=7000 + number)
    log.close()
    index = segment_files(tmp_path, ".index")[0].read_bytes()
    assert list(struct.iter_unpack(">ii", index)) == [(5, 400), (9, 800)]
    times = segment_files(tmp_path, ".timeindex")[0].read_bytes()
    assert list(struct.iter_unpack(">qi", times)) == [(7002, 5), (7004, 9), (7005, 11)]
    assert check_indexes(tmp_path) == 5


def test_indexes_agree_with_the_log_after_rolls_cuts_and_reopening(tmp_path):
    log = open_log(tmp_path)
    for number in range(80):
        append(log, 1 + number % 3, timestamp_ms=1000 + number * 7 % 31)
    log.truncation.truncate_to(100)
    for number in range(40):
        append(log, 1 + number % 3, timestamp_ms=1000 + number)
    log.close()
    assert check_indexes(tmp_path) > 10
    log = open_log(tmp_path)
    append(log)
    log.close()
    assert check_indexes(tmp_path) > 10


def make_offset_index(path) -> OffsetIndex:
    return OffsetIndex(REAL_DISK, OpenFiles(), path / "x.index", 1000, max_bytes=1 << 20)


def test_the_floor_of_an_offset_is_the_last_entry_that_is_not_beyond(tmp_path):
    index = make_offset_index(tmp_path)
    assert index.floor(5000) is None
    for number in range(10):
        index.append(1010 + number * 10, number * 100 + 100)
    for flushed in (False, True):
        if flushed:
            index.file.flush()
        assert index.floor(1009) is None
        assert index.floor(1010) == (1010, 100)
        assert index.floor(1055) == (1050, 500)
        assert index.floor(9999) == (1100, 1000)
        assert index.floor_of_position(99) is None
        assert index.floor_of_position(550) == (1050, 500)


def test_entries_in_the_file_and_in_memory_read_alike(tmp_path):
    index = make_offset_index(tmp_path)
    for number in range(5):
        index.append(1001 + number, number + 1)
    index.file.flush()
    for number in range(5, 9):
        index.append(1001 + number, number + 1)
    assert [index.entry(number) for number in range(9)] == [
        (1001 + number, number + 1) for number in range(9)
    ]
    index.truncate_to(7)
    assert index.last() == (1006, 6)
    index.truncate_to(3)
    assert index.last() == (1002, 2)
    index.append(1003, 50)
    index.file.flush()
    assert (tmp_path / "x.index").stat().st_size == 24
    assert make_offset_index(tmp_path).last() == (1003, 50)


def test_a_partial_entry_at_the_end_is_overwritten(tmp_path):
    (tmp_path / "x.index").write_bytes(struct.pack(">ii", 1, 1) + b"abc")
    index = make_offset_index(tmp_path)
    assert len(index) == 1
    index.append(1002, 2)
    index.file.flush()
    assert (tmp_path / "x.index").read_bytes() == struct.pack(">iiii", 1, 1, 2, 2)


def test_entries_go_to_the_file_in_blocks(tmp_path):
    file = IndexFile(REAL_DISK, OpenFiles(), tmp_path / "i", 8)
    for _ in range(PENDING_MAX_BYTES // 8 - 1):
        file.append(bytes(8))
    assert not (tmp_path / "i").exists()
    file.append(bytes(8))
    assert (tmp_path / "i").stat().st_size == PENDING_MAX_BYTES


def test_a_time_index_takes_only_later_times(tmp_path):
    index = TimeIndex(REAL_DISK, OpenFiles(), tmp_path / "t", 0, max_bytes=1 << 20)
    index.append(100, 1)
    index.append(100, 2)
    index.append(90, 3)
    index.append(101, 4)
    assert [index.entry(number) for number in range(len(index))] == [(100, 1), (101, 4)]
    assert index.floor(99) is None
    assert index.floor(100) == (100, 1)


COLUMNS = st.lists(st.integers(0, 2000), unique=True, max_size=200).map(sorted)


@settings(deadline=None)
@given(COLUMNS, st.integers(-10, 2010))
def test_it_counts_the_entries_up_to_a_value(column, value):
    expected = sum(entry <= value for entry in column)
    assert count_up_to(len(column), value, column.__getitem__) == expected


@settings(deadline=None)
@given(st.integers(17, 5000), st.integers(1, 1000), st.data())
def test_an_even_column_takes_few_looks_however_long_it_is(count, distance, data):
    looked: list[int] = []

    def at(number: int) -> int:
        looked.append(number)
        return number * distance

    value = data.draw(st.integers(0, count * distance))
    assert count_up_to(count, value, at) == min(count, value // distance + 1)
    assert len(looked) <= 7


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=17, max_size=60), st.integers(-60, 60))
def test_a_damaged_column_gives_some_number_in_range(column, value):
    assert 0 <= count_up_to(len(column), value, column.__getitem__) <= len(column)


def test_a_column_with_one_far_jump_is_searched_as_any_other():
    column = [*range(500), *range(10**9, 10**9 + 500)]
    for value in (0, 250, 499, 10**6, 10**9, 10**9 + 250, 2 * 10**9):
        found = count_up_to(len(column), value, column.__getitem__)
        assert found == bisect_right(column, value)
