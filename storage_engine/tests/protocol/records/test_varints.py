"""Varint columns against the naive varint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.records.control_record import read_varint
from storage_engine.protocol.records.varints import (
    VARLONG_BYTES,
    DamagedVarintError,
    constant_column,
    read_column,
    varint_size,
    write_column,
    zigzag_column,
)
from storage_engine.tests.protocol.naive_codec import varint

INT64 = (
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-200, 200)
    | st.integers(-(1 << 21), 1 << 21)
)


@given(st.lists(INT64, min_size=1, max_size=30))
def test_a_column_is_written_and_read_as_the_naive_varints_are(values):
    column = zigzag_column(np.array(values, np.int64))
    expected = b"".join(map(varint, values))
    sizes = np.broadcast_to(np.asarray(column.sizes), len(values))
    assert sizes.tolist() == [len(varint(value)) for value in values]
    ends = np.cumsum(sizes)
    target = np.zeros(int(ends[-1]), np.uint8)
    write_column(target, ends - sizes, column)
    assert target.tobytes() == expected
    read, following = read_column(target, ends - sizes, ends, max_bytes=VARLONG_BYTES)
    assert read.tolist() == values
    assert following.tolist() == ends.tolist()


@given(INT64)
def test_size_and_constant_agree_with_the_naive_varint(value):
    assert varint_size(value) == len(varint(value)) == constant_column(value).sizes
    target = np.zeros(len(varint(value)), np.uint8)
    write_column(target, np.zeros(1, np.int64), constant_column(value))
    assert target.tobytes() == varint(value)


def test_an_empty_column_has_nothing_to_write():
    write_column(np.zeros(0, np.uint8), np.zeros(0, np.int64), zigzag_column(np.zeros(0, np.int64)))


@pytest.mark.parametrize(
    ("data", "stop"),
    [
        (b"\x80", 1),
        (b"\x80\x80\x01", 2),
        (b"\x01", 0),
        (b"\xff" * 5 + b"\x01", 6),
        (b"\xff" * 9, 9),
    ],
)
def test_a_damaged_varint_names_its_row(data, stop):
    source = np.frombuffer(b"\x02" + data, np.uint8)
    with pytest.raises(DamagedVarintError) as failure:
        read_column(source, np.array([0, 1]), np.array([1, 1 + stop]))
    assert failure.value.index == 1
    assert read_varint(memoryview(data), 0, stop) is None


def test_a_single_varint_is_read_with_the_position_after_it():
    data = b"\x00" + varint(-70_000) + b"\x00"
    assert read_varint(memoryview(data), 1, len(data)) == (-70_000, len(data) - 1)
